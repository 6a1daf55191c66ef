/* console: a stream of bytes to port 0 of a virtio-console device, and the same stream from there, with other bytes on their
 * way in neither direction. */

#include "apic.h"
#include "channel.h"
#include "commands.h"
#include "draw.h"
#include "driver.h"
#include "report.h"
#include "settings.h"

#define CONSOLE_TYPE 3
#define INPUT 0
#define OUTPUT 1

static struct channel input, output;
static u8 sent[CONSOLE_LARGEST], received[CONSOLE_LARGEST];

static void receive(u32 length)
{
	u32 have = 0;

	while (have < length)
		have += channel_pass(&input, received + have, length - have, DESCRIPTOR_WRITE);
	if (have != length)
		give_up(FAILURE_USED_LENGTH, have);
	for (u32 at = 0; at < length; at++)
		if (received[at] != sent[at])
			give_up(FAILURE_CONTENT, received[at]);
}

static u64 exchange(const struct virtio *virtio, u64 rounds, u64 draw)
{
	u64 bytes = 0;

	for (; rounds; rounds--) {
		u32 length;

		draw = next_draw(draw);
		length = 1 + (u32)draw % CONSOLE_LARGEST;
		for (u32 at = 0; at < length; at++)
			sent[at] = (draw >> 32) + at;
		channel_pass(&output, sent, length, 0);
		/* Also an exit to the host, which doorbells and interrupts need not be. */
		virtio_check(virtio);
		receive(length);
		bytes += length;
	}
	return bytes;
}

void command_console(const char *command)
{
	struct virtio virtio = virtio_find(CONSOLE_TYPE);
	u64 wanted = setting(command, "event_index", 1) ? VIRTIO_RING_EVENT_IDX : 0;
	u64 features = virtio_agree(&virtio, VIRTIO_VERSION_1, wanted), bytes;

	apic_enable();
	channel_open(&virtio, INPUT, &input, features);
	channel_open(&virtio, OUTPUT, &output, features);
	virtio_go(&virtio);
	bytes = exchange(&virtio, setting(command, "rounds", 16), setting(command, "seed", 1));
	virtio_stop(&virtio);
	/* As `ConsoleWork::console_line` of src/console.rs has it. */
	say("console: ");
	say_number(bytes);
	say(" bytes\n");
}
