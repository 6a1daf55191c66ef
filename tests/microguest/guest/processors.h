/* The other CPUs. */
#ifndef PROCESSORS_H
#define PROCESSORS_H

/* Starts the second of two CPUs, and has it do this. The local APIC of the first one is enabled. */
void start_other(void (*work)(void));

#endif
