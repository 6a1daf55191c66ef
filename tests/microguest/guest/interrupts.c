/* interrupts and timer: whatever comes is counted by the handler and reported here, with interrupts off. */

#include "apic.h"
#include "commands.h"
#include "report.h"
#include "settings.h"
#include "traps.h"

void command_interrupts(const char *command)
{
	u8 vector = setting(command, "vector", 0x41);
	u64 count = setting(command, "count", 1), before = interrupts_on(vector);

	apic_enable();
	report(EVENT_READY, vector);
	for (u64 seen = 0; seen < count; seen++) {
		wait_for_interrupt(vector, before + seen);
		report(EVENT_INTERRUPT, seen + 1);
	}
}

void command_timer(const char *command)
{
	u8 vector = setting(command, "vector", 0x42);
	u64 count = setting(command, "count", 1), before = interrupts_on(vector);
	u32 ticks = setting(command, "ticks", 1000000);

	apic_enable();
	report(EVENT_READY, vector);
	for (u64 seen = 0; seen < count; seen++) {
		apic_timer_start(vector, ticks);
		wait_for_interrupt(vector, before + seen);
		report(EVENT_INTERRUPT, seen + 1);
	}
}
