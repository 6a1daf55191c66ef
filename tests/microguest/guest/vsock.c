/* vsock: streams by a virtio-vsock device. In each round the guest opens one to the host, by which both send; then the host
 * opens one to the guest, by which both do.
 *
 * A machine that was restored has lost all streams, which the device tells by an event. The round is then done again, from
 * ports that were not in use before: what still comes for the others is refused. */

#include "apic.h"
#include "channel.h"
#include "commands.h"
#include "draw.h"
#include "driver.h"
#include "mmio.h"
#include "pace.h"
#include "report.h"
#include "settings.h"
#include "traps.h"

#define VSOCK_TYPE 19
#define RECEIVE 0
#define TRANSMIT 1
#define EVENTS 2

#define HOST_CID 2
#define FIRST_PORT 10000
#define STREAM 1
#define SHUT_SEND 2
#define SHUT_BOTH 3
#define TRANSPORT_RESET 0

/* Of what the host sends plainly, and of the answer. */
#define PLAIN 0
#define ANSWER 0xff

enum operation { REQUEST = 1, RESPONSE, RESET, SHUTDOWN, DATA, CREDIT_UPDATE, CREDIT_REQUEST };

struct packet {
	u64 source_cid, target_cid;
	u32 source_port, target_port, length;
	u16 type, operation;
	u32 flags, buffer, forwarded;
	u8 bytes[VSOCK_BUFFER];
} __attribute__((packed));

#define HEADER_SIZE (sizeof(struct packet) - VSOCK_BUFFER)

struct stream {
	u32 guest_port, host_port; /* 0 for one that the host has yet to open */
	u32 forwarded;
};

static struct channel receive, transmit, events;
static struct packet sent, received, arrived;
static u32 event;
static struct pace pace;
static u64 guest_cid, resets;
static u32 next_port = FIRST_PORT;

static void copy(void *to, const void *from, u64 length)
{
	for (u64 at = 0; at < length; at++)
		((u8 *)to)[at] = ((const u8 *)from)[at];
}

static void send(const struct stream *stream, u16 operation, u32 flags, u32 length)
{
	sent.source_cid = guest_cid;
	sent.target_cid = HOST_CID;
	sent.source_port = stream->guest_port;
	sent.target_port = stream->host_port;
	sent.length = length;
	sent.type = STREAM;
	sent.operation = operation;
	sent.flags = flags;
	/* So little that what the host sends comes in parts. */
	sent.buffer = VSOCK_BUFFER;
	sent.forwarded = stream->forwarded;
	channel_pass(&transmit, &sent, HEADER_SIZE + length, 0);
	pace_here(&pace);
}

/* Waits for a packet, which is in `arrived` then. Gives 0 if all streams are gone instead. */
static int next_packet(void)
{
	u32 length;

	for (;; wait_for_any_interrupt()) {
		if (channel_is_done(&events, &length)) {
			if (length != sizeof event || event != TRANSPORT_RESET)
				give_up(FAILURE_CONTENT, event);
			channel_offer(&events, &event, sizeof event, DESCRIPTOR_WRITE);
			resets++;
			return 0;
		}
		if (channel_is_done(&receive, &length)) {
			copy(&arrived, &received, sizeof arrived);
			channel_offer(&receive, &received, sizeof received, DESCRIPTOR_WRITE);
			if (length != HEADER_SIZE + arrived.length)
				give_up(FAILURE_USED_LENGTH, length);
			if (arrived.source_cid != HOST_CID || arrived.target_cid != guest_cid || arrived.type != STREAM)
				give_up(FAILURE_CONTENT, arrived.source_cid);
			return 1;
		}
	}
}

static int is_for(const struct stream *stream)
{
	return arrived.target_port == stream->guest_port &&
	       (stream->host_port == 0 || arrived.source_port == stream->host_port);
}

/* Waits for the stream's next packet, which must be the one that is wanted. Gives 0 if the stream is gone instead. */
static int hear(const struct stream *stream, u16 wanted)
{
	while (next_packet()) {
		if (!is_for(stream)) {
			struct stream other = {arrived.target_port, arrived.source_port, 0};

			if (arrived.operation != RESET)
				send(&other, RESET, 0, 0);
		} else if (arrived.operation == wanted) {
			return 1;
		} else if (arrived.operation == CREDIT_REQUEST) {
			send(stream, CREDIT_UPDATE, 0, 0);
		} else if (arrived.operation == RESET) {
			return 0;
		} else if (arrived.operation != CREDIT_UPDATE) {
			give_up(FAILURE_STATUS, arrived.operation);
		}
	}
	return 0;
}

static u8 byte_of(u64 draw, u32 at, u8 mask)
{
	return ((draw >> 32) + at) ^ mask;
}

static void send_all(const struct stream *stream, u64 draw, u32 length, u8 mask)
{
	u32 part;

	for (u32 done = 0; done < length; done += part) {
		part = length - done < VSOCK_BUFFER ? length - done : VSOCK_BUFFER;
		for (u32 at = 0; at < part; at++)
			sent.bytes[at] = byte_of(draw, done + at, mask);
		send(stream, DATA, 0, part);
	}
}

static int receive_all(struct stream *stream, u64 draw, u32 length, u8 mask)
{
	while (stream->forwarded < length) {
		if (!hear(stream, DATA))
			return 0;
		for (u32 at = 0; at < arrived.length; at++)
			if (arrived.bytes[at] != byte_of(draw, stream->forwarded + at, mask))
				give_up(FAILURE_CONTENT, stream->forwarded + at);
		stream->forwarded += arrived.length;
		send(stream, CREDIT_UPDATE, 0, 0);
	}
	if (stream->forwarded > length)
		give_up(FAILURE_USED_LENGTH, stream->forwarded);
	return 1;
}

/* Who it is, where it can be called, and how much it has to say: the numbers of `Introduction` of src/vsock.rs. */
static void introduce(const struct stream *stream, u32 round, u32 port, u32 length)
{
	const u32 introduction[] = {round, port, length};

	copy(sent.bytes, introduction, sizeof introduction);
	send(stream, DATA, 0, sizeof introduction);
}

/* Gives 0 if the streams are gone before all is done. */
static int attempt(u32 round, u64 draw)
{
	struct stream ours = {next_port++, VSOCK_PORT, 0}, theirs = {next_port++, 0, 0};
	u32 length = 1 + (u32)draw % VSOCK_LARGEST;

	pace_attempt(&pace);
	send(&ours, REQUEST, 0, 0);
	if (!hear(&ours, RESPONSE))
		return 0;
	introduce(&ours, round, theirs.guest_port, length);
	send_all(&ours, draw, length, PLAIN);
	if (!receive_all(&ours, draw, length, ANSWER) || !hear(&ours, SHUTDOWN))
		return 0;
	if (arrived.flags != SHUT_SEND)
		give_up(FAILURE_STATUS, arrived.flags);
	send(&ours, SHUTDOWN, SHUT_BOTH, 0);
	if (!hear(&ours, RESET) || !hear(&theirs, REQUEST))
		return 0;
	theirs.host_port = arrived.source_port;
	send(&theirs, RESPONSE, 0, 0);
	if (!receive_all(&theirs, draw, length, PLAIN))
		return 0;
	send_all(&theirs, draw, length, ANSWER);
	send(&theirs, SHUTDOWN, SHUT_SEND, 0);
	if (!hear(&theirs, SHUTDOWN))
		return 0;
	if (arrived.flags != SHUT_BOTH)
		give_up(FAILURE_STATUS, arrived.flags);
	send(&theirs, RESET, 0, 0);
	return 1;
}

void command_vsock(const char *command)
{
	struct virtio virtio = virtio_find(VSOCK_TYPE);
	u64 wanted = setting(command, "event_index", 1) ? VIRTIO_RING_EVENT_IDX : 0;
	u64 features = virtio_agree(&virtio, VIRTIO_VERSION_1, wanted);
	u64 rounds = setting(command, "rounds", 4), draw = setting(command, "seed", 1), attempts = 0;

	apic_enable();
	pace.virtio = &virtio;
	guest_cid = read64(virtio.device);
	channel_open(&virtio, RECEIVE, &receive, features);
	channel_open(&virtio, TRANSMIT, &transmit, features);
	channel_open(&virtio, EVENTS, &events, features);
	virtio_go(&virtio);
	channel_offer(&events, &event, sizeof event, DESCRIPTOR_WRITE);
	channel_offer(&receive, &received, sizeof received, DESCRIPTOR_WRITE);
	for (u64 round = 0; round < rounds; round++) {
		draw = next_draw(draw);
		pace_round(&pace, setting(command, "exits", 1), draw);
		do
			attempts++;
		while (!attempt(round, draw));
	}
	virtio_stop(&virtio);
	say_rounds("vsock", rounds, attempts, resets);
}
