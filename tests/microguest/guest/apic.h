/* The local APIC, by its memory-mapped registers (Intel SDM volume 3, chapter 11). */
#ifndef APIC_H
#define APIC_H

#include "types.h"

#define SPURIOUS_VECTOR 0xff

void apic_enable(void);
void apic_end_of_interrupt(void);

/* Where a device writes a vector to interrupt this CPU (Intel SDM volume 3, 11.11). */
u32 apic_message_address(void);

/* Starts every other CPU in real mode at the page with this number. */
void apic_start_others(u8 page);

/* One interrupt on `vector` after `ticks` of the APIC's clock. */
void apic_timer_start(u8 vector, u32 ticks);

#endif
