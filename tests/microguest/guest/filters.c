/* filters: what a driver asks for by the control queue of a virtio-net device: kinds of frames, addresses, its own address,
 * queue pairs. Only what changes from round to round is asked for. Then a peer is told, which sends frames to several
 * addresses, the guest's own last: all that come count for the checksum.
 *
 * A machine that was restored is asked to announce itself, which the driver says it did. */

#include "apic.h"
#include "channel.h"
#include "checksum.h"
#include "commands.h"
#include "draw.h"
#include "driver.h"
#include "mmio.h"
#include "report.h"
#include "settings.h"
#include "traps.h"

#define NETWORK_TYPE 1
#define F_MAC (1ul << 5)
#define F_STATUS (1ul << 16)
#define F_CTRL_VQ (1ul << 17)
#define F_CTRL_RX (1ul << 18)
#define F_CTRL_RX_EXTRA (1ul << 20)
#define F_GUEST_ANNOUNCE (1ul << 21)
#define F_MQ (1ul << 22)
#define F_CTRL_MAC_ADDR (1ul << 23)
#define FEATURES (F_MAC | F_STATUS | F_CTRL_VQ | F_CTRL_RX | F_CTRL_RX_EXTRA | F_GUEST_ANNOUNCE | F_MQ | F_CTRL_MAC_ADDR)

#define PAIRS 2
#define CONTROL (2 * PAIRS)

#define CONFIG_STATUS 6
#define STATUS_ANNOUNCE 2

#define CLASS_MODE 0
#define CLASS_ADDRESS 1
#define TABLES_SET 0
#define ADDRESS_SET 1
#define CLASS_ANNOUNCE 3
#define CLASS_PAIRS 4

#define HEADER_SIZE 12
#define ADDRESS_SIZE 6

struct packet {
	u8 header[HEADER_SIZE], to[ADDRESS_SIZE], from[ADDRESS_SIZE], type[2];
	u32 round, kind;
	u8 rest[38];
} __attribute__((packed));

struct request {
	u8 class, command, data[2 * (sizeof(u32) + ADDRESS_SIZE)];
};

static struct channel receive[PAIRS], transmit[PAIRS], controls;
static struct packet sent, received[PAIRS];
static struct request request;
static u8 answer;
static u8 own[ADDRESS_SIZE] = {2};
static u64 announced, frames, checksum;

static void order(u8 class, u8 command, u32 length)
{
	request.class = class;
	request.command = command;
	channel_ask(&controls, &request, 2 + length, &answer, sizeof answer);
	if (answer != 0)
		give_up(FAILURE_STATUS, class << 8 | command);
}

static void ask(const struct virtio *virtio, u8 class, u8 command, u32 length)
{
	order(class, command, length);
	/* Also an exit to the host, which doorbells and interrupts need not be. */
	virtio_check(virtio);
}

/* One address or none: how many bytes that takes. */
static u32 put_table(u8 *at, int is_listed, u8 first)
{
	*(u32 *)at = is_listed;
	if (!is_listed)
		return sizeof(u32);
	for (u32 byte = 0; byte < ADDRESS_SIZE; byte++)
		at[sizeof(u32) + byte] = byte == 0 ? first : byte == 5 ? FILTERS_LISTED : 0;
	return sizeof(u32) + ADDRESS_SIZE;
}

static int has(u64 choice, u32 bit)
{
	return choice >> bit & 1;
}

/* Asks for what is in `choice` other than it was. As `FiltersWork` of src/filters.rs has it. */
static void change(const struct virtio *virtio, u64 was, u64 choice)
{
	static const struct {
		u8 bit, command;
	} modes[] = {
		{FILTERS_PROMISCUOUS, 0}, {FILTERS_ALL_MULTICAST, 1}, {FILTERS_ALL_UNICAST, 2},
		{FILTERS_NO_MULTICAST, 3}, {FILTERS_NO_BROADCAST, 5},
	};
	u64 changed = was ^ choice;

	for (u64 at = 0; at < sizeof modes / sizeof *modes; at++)
		if (has(changed, modes[at].bit)) {
			request.data[0] = has(choice, modes[at].bit);
			ask(virtio, CLASS_MODE, modes[at].command, 1);
		}
	if (has(changed, FILTERS_UNICAST_TABLE) || has(changed, FILTERS_MULTICAST_TABLE)) {
		u32 length = put_table(request.data, has(choice, FILTERS_UNICAST_TABLE), 2);

		length += put_table(request.data + length, has(choice, FILTERS_MULTICAST_TABLE), 1);
		ask(virtio, CLASS_ADDRESS, TABLES_SET, length);
	}
	if (has(changed, FILTERS_ADDRESS)) {
		own[5] = FILTERS_OWN + has(choice, FILTERS_ADDRESS);
		for (u32 byte = 0; byte < ADDRESS_SIZE; byte++)
			request.data[byte] = own[byte];
		ask(virtio, CLASS_ADDRESS, ADDRESS_SET, ADDRESS_SIZE);
	}
	if (has(changed, FILTERS_PAIRS)) {
		request.data[0] = 1 + has(choice, FILTERS_PAIRS);
		request.data[1] = 0;
		ask(virtio, CLASS_PAIRS, 0, 2);
	}
}

static void announce(const struct virtio *virtio)
{
	while (read16(virtio->device + CONFIG_STATUS) & STATUS_ANNOUNCE) {
		announced++;
		/* Restored at an exit here, it would be asked again and again. */
		order(CLASS_ANNOUNCE, 0, 0);
	}
}

/* Takes a frame: whether it was the last of its round. */
static int take(u32 pair, u32 round, u32 length)
{
	struct packet *packet = &received[pair];
	u32 kind = packet->kind;

	if (length != sizeof *packet)
		give_up(FAILURE_USED_LENGTH, length);
	if (packet->round != round)
		give_up(FAILURE_CONTENT, packet->round);
	frames++;
	checksum = checksum_with(checksum, word_at(round, kind));
	channel_offer(&receive[pair], packet, sizeof *packet, DESCRIPTOR_WRITE);
	return kind == FILTERS_KINDS - 1;
}

static void exchange(u32 pair, u32 round)
{
	for (u32 byte = 0; byte < ADDRESS_SIZE; byte++) {
		sent.to[byte] = 0xff;
		sent.from[byte] = own[byte];
	}
	sent.type[0] = 0x88;
	sent.type[1] = 0xb5;
	sent.round = round;
	channel_pass(&transmit[pair], &sent, sizeof sent, 0);
	for (;; wait_for_any_interrupt())
		for (pair = 0; pair < PAIRS; pair++) {
			u32 length;

			if (channel_is_done(&receive[pair], &length) && take(pair, round, length))
				return;
		}
}

void command_filters(const char *command)
{
	struct virtio virtio = virtio_find(NETWORK_TYPE);
	u64 wanted = setting(command, "event_index", 1) ? VIRTIO_RING_EVENT_IDX : 0;
	u64 features = virtio_agree(&virtio, VIRTIO_VERSION_1 | FEATURES, wanted);
	u64 rounds = setting(command, "rounds", 8), draw = setting(command, "seed", 1);
	u64 choice = 0, was = ~(draw = next_draw(draw)) >> 32;

	apic_enable();
	for (u32 pair = 0; pair < PAIRS; pair++) {
		channel_open(&virtio, 2 * pair, &receive[pair], features);
		channel_open(&virtio, 2 * pair + 1, &transmit[pair], features);
	}
	channel_open(&virtio, CONTROL, &controls, features);
	virtio_go(&virtio);
	for (u32 pair = 0; pair < PAIRS; pair++)
		channel_offer(&receive[pair], &received[pair], sizeof received[pair], DESCRIPTOR_WRITE);
	for (u64 round = 0; round < rounds; round++, draw = next_draw(draw), was = choice) {
		choice = draw >> 32;
		announce(&virtio);
		change(&virtio, was, choice);
		exchange(has(choice, FILTERS_PAIRS), round);
	}
	virtio_stop(&virtio);
	/* As `FiltersWork::console_line` of src/filters.rs has it. */
	say("filters: ");
	say_number(frames);
	say(" frames, ");
	say_number(checksum);
	say("\nannounced: ");
	say_number(announced);
	say("\n");
}
