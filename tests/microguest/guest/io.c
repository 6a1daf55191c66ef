/* doorbell and read: port and memory-mapped I/O in all sizes. typed: the console's input. */

#include "commands.h"
#include "mmio.h"
#include "port.h"
#include "report.h"
#include "settings.h"

#define NO_PORT (1 << 16)
#define LINE_STATUS (CONSOLE_PORT + 5)
#define DATA_READY 1

void command_doorbell(const char *command)
{
	u64 port = setting(command, "port", NO_PORT), address = setting(command, "address", 0);
	u64 size = setting(command, "size", 4), value = setting(command, "value", 0);
	u64 count = setting(command, "count", 1);

	for (u64 rung = 0; rung < count; rung++) {
		if (port != NO_PORT)
			out_sized(port, size, value);
		else
			write_sized(address, size, value);
	}
	report(EVENT_RUNG, count);
}

void command_read(const char *command)
{
	u64 port = setting(command, "port", NO_PORT), address = setting(command, "address", 0);
	u64 size = setting(command, "size", 4);

	report(EVENT_READ, port != NO_PORT ? in_sized(port, size) : read_sized(address, size));
}

void command_typed(const char *command)
{
	u64 lines = setting(command, "lines", 1);

	while (lines) {
		u8 byte;

		while (!(in8(LINE_STATUS) & DATA_READY))
			;
		byte = in8(CONSOLE_PORT);
		out8(CONSOLE_PORT, byte);
		lines -= byte == '\n';
	}
}
