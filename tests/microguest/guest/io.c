/* doorbell and read: port and memory-mapped I/O in all sizes. */

#include "commands.h"
#include "mmio.h"
#include "port.h"
#include "report.h"
#include "settings.h"

#define NO_PORT (1 << 16)

static void write_port(u16 port, u64 size, u64 value)
{
	if (size == 1)
		out8(port, value);
	else if (size == 2)
		out16(port, value);
	else
		out32(port, value);
}

static void write_address(u64 address, u64 size, u64 value)
{
	if (size == 1)
		write8(address, value);
	else if (size == 2)
		write16(address, value);
	else if (size == 4)
		write32(address, value);
	else
		write64(address, value);
}

static u64 read_port(u16 port, u64 size)
{
	return size == 1 ? in8(port) : size == 2 ? in16(port) : in32(port);
}

static u64 read_address(u64 address, u64 size)
{
	return size == 1   ? read8(address)
	       : size == 2 ? read16(address)
	       : size == 4 ? read32(address)
			   : read64(address);
}

void command_doorbell(const char *command)
{
	u64 port = setting(command, "port", NO_PORT), address = setting(command, "address", 0);
	u64 size = setting(command, "size", 4), value = setting(command, "value", 0);
	u64 count = setting(command, "count", 1);

	for (u64 rung = 0; rung < count; rung++) {
		if (port != NO_PORT)
			write_port(port, size, value);
		else
			write_address(address, size, value);
	}
	report(EVENT_RUNG, count);
}

void command_read(const char *command)
{
	u64 port = setting(command, "port", NO_PORT), address = setting(command, "address", 0);
	u64 size = setting(command, "size", 4);

	report(EVENT_READ, port != NO_PORT ? read_port(port, size) : read_address(address, size));
}
