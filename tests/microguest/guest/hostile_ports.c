/* Attacks on what every machine has: clock, serial port, power and hotplug, keyboard controller, ports of nobody. */

#include "hostile.h"
#include "port.h"

#define RTC_INDEX 0x70
#define RTC_DATA 0x71
#define RTC_REGISTER_B 0x0b
#define RTC_24_HOURS 0x02

#define SERIAL 0x3f8
#define SERIAL_INTERRUPTS (SERIAL + 1)
#define SERIAL_FIFO (SERIAL + 2)
#define SERIAL_LINE (SERIAL + 3)
#define SERIAL_MODEM (SERIAL + 4)
#define EIGHT_BITS 3
#define READY 3

#define ACPI 0x600
#define ACPI_SIZE 0x20
#define ACPI_EVENTS (ACPI + 4)
#define ACPI_EJECT (ACPI + 0x10)

#define KEYBOARD 0x60
/* Below 0x80 no byte is the command that restarts the machine. */
#define HARMLESS 0x7f7f7f7f

static void attack_clock(struct hostile *hostile)
{
	for (u64 i = 0; i < 4; i++) {
		out8(RTC_INDEX, drawn(hostile));
		if (once_in(hostile, 4))
			in_sized(RTC_INDEX + below(hostile, 2), 1ul << below(hostile, 3));
		else
			out8(RTC_DATA, drawn(hostile));
	}
	/* An alarm and its interrupts may stay for a while. */
	if (once_in(hostile, 2)) {
		out8(RTC_INDEX, RTC_REGISTER_B);
		out8(RTC_DATA, RTC_24_HOURS);
	}
}

/* Nothing goes to the console: what is sent, goes back to the sender. */
static void attack_serial(struct hostile *hostile)
{
	out8(SERIAL_MODEM, 1 << 4);
	for (u64 i = 0; i < 4; i++) {
		u16 port = SERIAL + below(hostile, 8);

		if (once_in(hostile, 2))
			in_sized(port, 1ul << below(hostile, 3));
		else if (port != SERIAL_MODEM)
			out8(port, drawn(hostile));
	}
	out8(SERIAL_LINE, EIGHT_BITS);
	out8(SERIAL_INTERRUPTS, 0);
	out8(SERIAL_FIFO, 0);
	out8(SERIAL_MODEM, READY);
}

static void attack_power(struct hostile *hostile)
{
	u16 port = ACPI + below(hostile, ACPI_SIZE);
	u64 size = 1ul << below(hostile, 3);

	/* What is below sleeps and restarts. */
	if (port < ACPI_EVENTS || once_in(hostile, 2))
		in_sized(port, size);
	else
		out_sized(port, size, drawn(hostile));
	out32(ACPI_EJECT, once_in(hostile, 4) ? drawn(hostile) : 0);
}

static void attack_keyboard(struct hostile *hostile)
{
	u16 port = KEYBOARD + below(hostile, 5);
	u64 size = 1ul << below(hostile, 3);

	if (once_in(hostile, 2))
		in_sized(port, size);
	else
		out_sized(port, size, drawn(hostile) & HARMLESS);
}

/* Not above 0x3f0: the last of four bytes would be the serial port's. */
static void attack_nobody(struct hostile *hostile)
{
	u16 port = 0x200 + below(hostile, 0x1f0);

	in_sized(port, 1ul << below(hostile, 3));
	out_sized(port, 1ul << below(hostile, 3), drawn(hostile));
}

void attack_platform(struct hostile *hostile)
{
	static void (*const attacks[])(struct hostile *) = {
		attack_clock, attack_serial, attack_power, attack_keyboard, attack_nobody,
	};

	ONE_OF(hostile, attacks)(hostile);
}
