/* What the guest tells its host. */
#ifndef REPORT_H
#define REPORT_H

#include "protocol.h"
#include "types.h"

/* Text on the serial console, for people and for hosts without a result port. */
void say(const char *text);

/* The same for a number: 0x and all 16 digits. */
void say_number(u64 number);

/* How a command ended that does a round again whenever it loses its connections. As `Tally` of src/tally.rs has it. */
void say_rounds(const char *command, u64 rounds, u64 attempts, u64 losses);

/* One result for the host. Interrupts must be off: one that reports in the middle of another's bytes would mix both. */
void report(u32 event, u64 value);

/* Stops for good. */
void halt(void) __attribute__((noreturn));

#endif
