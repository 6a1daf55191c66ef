/* processors: starts every other CPU as an operating system does, by INIT and two SIPIs. Each counts itself in, in real
 * mode, and halts for good. */

#include "apic.h"
#include "commands.h"
#include "processors.h"
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

extern const u8 other_start[], other_end[];

static void (*volatile work_of_other)(void);
static volatile u32 others;

/* From boot.S, on the stack of one: a second one of them would be lost. */
void other_main(void);

void other_main(void)
{
	others++;
	work_of_other();
}

void start_other(void (*work)(void))
{
	volatile u8 *code = (volatile u8 *)START_PAGE;

	for (u64 i = 0; other_start + i < other_end; i++)
		code[i] = other_start[i];
	work_of_other = work;
	apic_start_others(START_PAGE >> 12);
	while (!others)
		asm volatile("pause");
}

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
