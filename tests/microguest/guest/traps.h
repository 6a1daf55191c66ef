/* Exceptions and interrupts. */
#ifndef TRAPS_H
#define TRAPS_H

#include "types.h"

/* Loads the IDT. An exception is reported and ends the guest, an interrupt is counted. */
void catch_traps(void);

/* Interrupts taken on `vector` so far. */
u64 interrupts_on(u8 vector);

/* Halts until `vector` was taken more than `seen` times. Interrupts are on only here. */
void wait_for_interrupt(u8 vector, u64 seen);

#endif
