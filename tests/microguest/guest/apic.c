#include "apic.h"
#include "mmio.h"

#define APIC 0xfee00000
#define ID 0x020
#define END_OF_INTERRUPT 0x0b0
#define SPURIOUS 0x0f0
#define COMMAND 0x300
#define TIMER 0x320
#define TIMER_INITIAL_COUNT 0x380
#define TIMER_DIVIDER 0x3e0

#define ALL_BUT_SELF 0xc0000
#define ASSERT 0x4000
#define INIT 0x500
#define STARTUP 0x600
#define SOFTWARE_ENABLE 0x100
#define DIVIDE_BY_1 0xb

void apic_enable(void)
{
	write32(APIC + SPURIOUS, SOFTWARE_ENABLE | SPURIOUS_VECTOR);
}

void apic_end_of_interrupt(void)
{
	write32(APIC + END_OF_INTERRUPT, 0);
}

u32 apic_message_address(void)
{
	u32 id = read32(APIC + ID) >> 24;

	return APIC | id << 12;
}

void apic_start_others(u8 page)
{
	write32(APIC + COMMAND, ALL_BUT_SELF | ASSERT | INIT);
	/* Twice, as CPUs of old wanted it; a CPU that has started ignores the second. */
	write32(APIC + COMMAND, ALL_BUT_SELF | ASSERT | STARTUP | page);
	write32(APIC + COMMAND, ALL_BUT_SELF | ASSERT | STARTUP | page);
}

void apic_timer_start(u8 vector, u32 ticks)
{
	write32(APIC + TIMER_DIVIDER, DIVIDE_BY_1);
	write32(APIC + TIMER, vector); /* one shot, not masked */
	write32(APIC + TIMER_INITIAL_COUNT, ticks);
}
