#include "apic.h"

#define APIC 0xfee00000
#define END_OF_INTERRUPT 0x0b0
#define SPURIOUS 0x0f0
#define TIMER 0x320
#define TIMER_INITIAL_COUNT 0x380
#define TIMER_DIVIDER 0x3e0

#define SOFTWARE_ENABLE 0x100
#define DIVIDE_BY_1 0xb

static void write_register(u64 offset, u32 value)
{
	*(volatile u32 *)(APIC + offset) = value;
}

void apic_enable(void)
{
	write_register(SPURIOUS, SOFTWARE_ENABLE | SPURIOUS_VECTOR);
}

void apic_end_of_interrupt(void)
{
	write_register(END_OF_INTERRUPT, 0);
}

void apic_timer_start(u8 vector, u32 ticks)
{
	write_register(TIMER_DIVIDER, DIVIDE_BY_1);
	write_register(TIMER, vector); /* one shot, not masked */
	write_register(TIMER_INITIAL_COUNT, ticks);
}
