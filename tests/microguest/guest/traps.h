/* Exceptions and interrupts. */
#ifndef TRAPS_H
#define TRAPS_H

#include "types.h"

/* Loads the IDT. An exception is reported and ends the guest, an interrupt is counted. */
void catch_traps(void);

/* Interrupts taken on `vector` so far. */
u64 interrupts_on(u8 vector);

/* Halts until `vector` was taken more than `seen` times. Interrupts are off before and after. */
void wait_for_interrupt(u8 vector, u64 seen);

/* Halts until an interrupt was taken, on whatever vector. Interrupts are off before and after. */
void wait_for_any_interrupt(void);

/* Between these two interrupts come at any instruction. Elsewhere they are off but for the halts. */
void let_interrupts_in(void);
void keep_interrupts_out(void);

#endif
