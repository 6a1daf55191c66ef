/* loop, undefined, fault and shutdown: a guest that misbehaves in a known way. */

#include "commands.h"
#include "settings.h"
#include "types.h"

void command_loop(const char *command)
{
	(void)command;
	for (;;)
		asm volatile("");
}

void command_undefined(const char *command)
{
	(void)command;
	asm volatile("ud2");
}

void command_fault(const char *command)
{
	/* The default is the first address that the page tables do not map. */
	(void)*(volatile u8 *)setting(command, "address", 1ul << 32);
}

void command_shutdown(const char *command)
{
	/* Without a table of handlers an exception is a double fault, and that a triple fault. */
	static const struct {
		u16 limit;
		u64 base;
	} __attribute__((packed)) nowhere;

	(void)command;
	asm volatile("lidt %0; ud2" : : "m"(nowhere));
}
