/* loop, undefined and fault: a guest that misbehaves in a known way. */

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
