#include "port.h"
#include "report.h"

void say(const char *text)
{
	for (; *text; text++)
		out8(CONSOLE_PORT, *text);
}

void say_number(u64 number)
{
	say("0x");
	for (int shift = 60; shift >= 0; shift -= 4)
		out8(CONSOLE_PORT, "0123456789abcdef"[number >> shift & 0xf]);
}

void say_rounds(const char *command, u64 rounds, u64 attempts, u64 losses)
{
	say(command);
	say(": ");
	say_number(rounds);
	say(" rounds, ");
	say_number(attempts);
	say(" attempts, ");
	say_number(losses);
	say(" losses\n");
}

void report(u32 event, u64 value)
{
	const u32 words[RESULT_SIZE / sizeof(u32)] = {event, value, value >> 32};
	const u32 *next = words;
	u64 count = sizeof words / sizeof *words;

	asm volatile("rep outsl" : "+S"(next), "+c"(count) : "d"((u16)RESULT_PORT) : "memory");
}

void halt(void)
{
	for (;;)
		asm volatile("cli; hlt");
}
