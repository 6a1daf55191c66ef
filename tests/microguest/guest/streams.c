/* streams: messages by port 1 of a virtio-console device, of which the driver hears by control messages. In each round the
 * port is opened, a message sent, its answer received, and the port closed. After some answers a message without bytes says
 * goodbye: the host closes its end, and comes back.
 *
 * A machine that was restored has lost the host's end, which the device tells in the same way. The round is then done again.
 * An answer comes in cells, each of which says which attempt it is for. */

#include "apic.h"
#include "channel.h"
#include "commands.h"
#include "draw.h"
#include "driver.h"
#include "pace.h"
#include "report.h"
#include "settings.h"
#include "traps.h"

#define CONSOLE_TYPE 3
#define MULTIPORT (1 << 1)

#define CONTROL_INPUT 2
#define CONTROL_OUTPUT 3
#define INPUT 4
#define OUTPUT 5
#define QUEUES 6

#define PORTS 2
#define PORT 1

enum control_event { DEVICE_READY, DEVICE_ADD, DEVICE_REMOVE, PORT_READY, CONSOLE_PORT_IS, RESIZE, PORT_OPEN, PORT_NAME };

struct control {
	u32 port;
	u16 event, value;
	char name[32];
};

#define CONTROL_SIZE 8

/* As `Message` of src/streams.rs has it. */
struct message {
	u32 round, attempt, length;
	u8 bytes[STREAMS_LARGEST];
};

struct cell {
	u32 attempt;
	u8 bytes[STREAMS_CELL];
};

/* Those of port 0 are there, and nothing goes by them. */
static struct channel channels[QUEUES];
static struct control told, said;
static struct message sent;
static struct cell received;
static struct pace pace;
static int is_named, is_host_open;
static u64 closings;

/* As restore/streams.rs of the tests has it. */
static const char expected_name[] = "org.corten.echo";

static void tell(u32 port, u16 event, u16 value)
{
	said.port = port;
	said.event = event;
	said.value = value;
	channel_pass(&channels[CONTROL_OUTPUT], &said, CONTROL_SIZE, 0);
	pace_here(&pace);
}

static void check_name(u32 length)
{
	if (told.port != PORT || length != CONTROL_SIZE + sizeof expected_name - 1)
		give_up(FAILURE_USED_LENGTH, length);
	for (u32 at = 0; expected_name[at]; at++)
		if (told.name[at] != expected_name[at])
			give_up(FAILURE_CONTENT, at);
	is_named = 1;
}

static void hear(u32 length)
{
	u16 event = told.event;
	u32 port = told.port, value = told.value;

	if (port >= PORTS || length < CONTROL_SIZE)
		give_up(FAILURE_CONTENT, port);
	if (event == PORT_NAME)
		check_name(length);
	channel_offer(&channels[CONTROL_INPUT], &told, sizeof told, DESCRIPTOR_WRITE);
	if (event == DEVICE_ADD) {
		tell(port, PORT_READY, 1);
	} else if (event == PORT_OPEN && port == PORT) {
		/* Told twice of the same, it would have missed something. */
		if (is_host_open == (int)value)
			give_up(FAILURE_STATUS, value);
		is_host_open = value;
		closings += !value;
	} else if (event != PORT_NAME && event != PORT_OPEN && !(event == CONSOLE_PORT_IS && port == 0)) {
		give_up(FAILURE_STATUS, event);
	}
}

/* Halts until there is a control message, or input if that is wanted. Gives 1 for input. */
static int next(int wants_input)
{
	u32 length;

	for (;; wait_for_any_interrupt()) {
		if (channel_is_done(&channels[CONTROL_INPUT], &length)) {
			hear(length);
			return 0;
		}
		if (wants_input && channel_is_done(&channels[INPUT], &length)) {
			if (length != sizeof received)
				give_up(FAILURE_USED_LENGTH, length);
			return 1;
		}
	}
}

static u8 byte_of(u64 draw, u32 at)
{
	return (draw >> 32) + at;
}

/* Gives 0 if the host's end goes before the answer is there. */
static int receive_answer(u64 draw)
{
	u64 closed = closings;

	for (u32 have = 0; have < sent.length;) {
		if (!next(1)) {
			if (closings != closed)
				return 0;
			continue;
		}
		for (u32 at = 0; received.attempt == sent.attempt && at < STREAMS_CELL; at++, have++)
			if (have < sent.length && received.bytes[at] != 0xff - byte_of(draw, have))
				give_up(FAILURE_CONTENT, have);
		channel_offer(&channels[INPUT], &received, sizeof received, DESCRIPTOR_WRITE);
		pace_here(&pace);
	}
	return 1;
}

static void send(u32 length)
{
	sent.length = length;
	channel_pass(&channels[OUTPUT], &sent, sizeof sent - STREAMS_LARGEST + length, 0);
	pace_here(&pace);
}

static int attempt(u32 round, u32 number, u64 draw)
{
	u32 length = 1 + (u32)draw % STREAMS_LARGEST;
	u64 closed;
	int is_answered;

	pace_attempt(&pace);
	while (!is_host_open)
		next(0);
	closed = closings;
	sent.round = round;
	sent.attempt = number;
	for (u32 at = 0; at < length; at++)
		sent.bytes[at] = byte_of(draw, at);
	tell(PORT, PORT_OPEN, 1);
	send(length);
	is_answered = receive_answer(draw);
	if (is_answered && draw >> 47 & 1) {
		send(0);
		while (closings == closed)
			next(0);
	}
	tell(PORT, PORT_OPEN, 0);
	return is_answered;
}

void command_streams(const char *command)
{
	struct virtio virtio = virtio_find(CONSOLE_TYPE);
	u64 wanted = setting(command, "event_index", 1) ? VIRTIO_RING_EVENT_IDX : 0;
	u64 features = virtio_agree(&virtio, VIRTIO_VERSION_1 | MULTIPORT, wanted);
	u64 rounds = setting(command, "rounds", 4), draw = setting(command, "seed", 1), attempts = 0;

	apic_enable();
	pace.virtio = &virtio;
	for (u16 number = 0; number < QUEUES; number++)
		channel_open(&virtio, number, &channels[number], features);
	virtio_go(&virtio);
	channel_offer(&channels[CONTROL_INPUT], &told, sizeof told, DESCRIPTOR_WRITE);
	channel_offer(&channels[INPUT], &received, sizeof received, DESCRIPTOR_WRITE);
	tell(0, DEVICE_READY, 1);
	for (u64 round = 0; round < rounds; round++) {
		draw = next_draw(draw);
		pace_round(&pace, setting(command, "exits", 1), draw);
		do
			attempts++;
		while (!attempt(round, attempts, draw));
	}
	if (!is_named)
		give_up(FAILURE_CONTENT, PORT);
	virtio_stop(&virtio);
	say_rounds("streams", rounds, attempts, closings);
}
