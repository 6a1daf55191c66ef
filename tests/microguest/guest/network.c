/* network: frames sent by a virtio-net device to a peer that sends each of them back. */

#include "apic.h"
#include "channel.h"
#include "commands.h"
#include "draw.h"
#include "driver.h"
#include "report.h"
#include "settings.h"

#define NETWORK_TYPE 1
#define RECEIVE 0
#define TRANSMIT 1

/* struct virtio_net_hdr: nothing is left to anybody else. */
#define HEADER_SIZE 12

struct packet {
	u8 header[HEADER_SIZE], frame[NETWORK_LARGEST];
};

static struct channel receive, transmit;
static struct packet sent, received;

/* From anybody to everybody, of the type for local experiments. The rest is drawn. As `NetworkWork::frames` has it. */
static void fill(u64 draw, u32 length)
{
	for (u32 at = 0; at < length; at++)
		sent.frame[at] = at < 6 ? 0xff : at < 12 ? 2 : (draw >> 32) + at;
	sent.frame[12] = 0x88;
	sent.frame[13] = 0xb5;
}

static u64 exchange(const struct virtio *virtio, u64 rounds, u64 draw)
{
	u64 bytes = 0;

	for (; rounds; rounds--) {
		u32 length, got;

		draw = next_draw(draw);
		length = NETWORK_SMALLEST + (u32)draw % (NETWORK_LARGEST - NETWORK_SMALLEST + 1);
		fill(draw, length);
		channel_offer(&receive, &received, sizeof received, DESCRIPTOR_WRITE);
		channel_pass(&transmit, &sent, HEADER_SIZE + length, 0);
		/* Also an exit to the host, which doorbells and interrupts need not be. */
		virtio_check(virtio);
		got = channel_wait(&receive);
		if (got != HEADER_SIZE + length)
			give_up(FAILURE_USED_LENGTH, got);
		for (u32 at = 0; at < length; at++)
			if (received.frame[at] != sent.frame[at])
				give_up(FAILURE_CONTENT, at);
		bytes += length;
	}
	return bytes;
}

void command_network(const char *command)
{
	struct virtio virtio = virtio_find(NETWORK_TYPE);
	u64 wanted = setting(command, "event_index", 1) ? VIRTIO_RING_EVENT_IDX : 0;
	u64 features = virtio_agree(&virtio, VIRTIO_VERSION_1, wanted), bytes;

	apic_enable();
	channel_open(&virtio, RECEIVE, &receive, features);
	channel_open(&virtio, TRANSMIT, &transmit, features);
	virtio_go(&virtio);
	bytes = exchange(&virtio, setting(command, "rounds", 16), setting(command, "seed", 1));
	virtio_stop(&virtio);
	/* As `NetworkWork::console_line` of src/network.rs has it. */
	say("network: ");
	say_number(bytes);
	say(" bytes\n");
}
