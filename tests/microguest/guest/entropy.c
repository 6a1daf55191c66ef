/* entropy: random numbers from a virtio-rng device. What comes is nobody's to foretell, but how much is. */

#include "apic.h"
#include "channel.h"
#include "commands.h"
#include "draw.h"
#include "driver.h"
#include "report.h"
#include "settings.h"

#define ENTROPY_TYPE 4

static struct channel requests;
static u8 numbers[ENTROPY_LARGEST];

/* So many zeros in a row are not random. */
static int is_random(u32 length)
{
	u8 any = 0;

	for (u32 at = 0; at < length; at++)
		any |= numbers[at];
	return any || length < 16;
}

static u64 ask(const struct virtio *virtio, u64 rounds, u64 draw)
{
	u64 bytes = 0;

	for (; rounds; rounds--) {
		u32 length, got;

		draw = next_draw(draw);
		length = 1 + (u32)draw % ENTROPY_LARGEST;
		for (u32 at = 0; at < length; at++)
			numbers[at] = 0;
		got = channel_pass(&requests, numbers, length, DESCRIPTOR_WRITE);
		if (got != length)
			give_up(FAILURE_USED_LENGTH, got);
		if (!is_random(length))
			give_up(FAILURE_CONTENT, length);
		bytes += got;
		/* Also an exit to the host, which doorbells and interrupts need not be. */
		virtio_check(virtio);
	}
	return bytes;
}

void command_entropy(const char *command)
{
	struct virtio virtio = virtio_find(ENTROPY_TYPE);
	u64 wanted = setting(command, "event_index", 1) ? VIRTIO_RING_EVENT_IDX : 0;
	u64 features = virtio_agree(&virtio, VIRTIO_VERSION_1, wanted), bytes;

	apic_enable();
	channel_open(&virtio, 0, &requests, features);
	virtio_go(&virtio);
	bytes = ask(&virtio, setting(command, "rounds", 16), setting(command, "seed", 1));
	virtio_stop(&virtio);
	/* As `EntropyWork::console_line` of src/entropy.rs has it. */
	say("entropy: ");
	say_number(bytes);
	say(" bytes\n");
}
