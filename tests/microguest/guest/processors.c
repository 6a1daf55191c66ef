/* processors: starts every other CPU as an operating system does, by INIT and two SIPIs. Each counts itself in, in real
 * mode, and halts for good. */

#include "apic.h"
#include "commands.h"
#include "report.h"
#include "settings.h"

/* A page below 1 MiB that nothing else of the guest or its boot uses; its number is the SIPI's vector. */
#define START_PAGE 0x40000ul
#define COUNTER_OFFSET 0x100

static const u8 start_code[] = {
	0xf0, 0x2e, 0x66, 0xff, 0x06, COUNTER_OFFSET & 0xff, COUNTER_OFFSET >> 8, /* lock incl %cs:COUNTER_OFFSET */
	0xfa,                                                                     /* cli */
	0xf4,                                                                     /* hlt */
	0xeb, 0xfd,                                                               /* jmp to the hlt */
};

void command_processors(const char *command)
{
	u64 wanted = setting(command, "count", 1);
	volatile u32 *counter = (volatile u32 *)(START_PAGE + COUNTER_OFFSET);
	volatile u8 *code = (volatile u8 *)START_PAGE;

	for (u64 i = 0; i < sizeof start_code; i++)
		code[i] = start_code[i];
	*counter = 0;
	apic_enable();
	apic_start_others(START_PAGE >> 12);
	while (*counter < wanted)
		asm volatile("pause");
	report(EVENT_PROCESSORS, *counter);
}
