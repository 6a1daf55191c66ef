/* hostile: a driver that does everything wrong with one device, while another one, a disk, has to go on and be right.
 *
 * In each round the neighbour writes a sector and reads another one, and while each of them is under way the device is
 * attacked: by its configuration space, its registers, its queues, and by what else the machine has. At the end it is
 * reset, set up as by any driver, and has to work. src/hostile.rs says what the neighbour must have read and written.
 *
 * What a guest can do to itself is left out: it asks nobody to write into its code or to take it away, sends itself no
 * messages but plain interrupts, and does not switch itself off. */

#include "apic.h"
#include "checksum.h"
#include "commands.h"
#include "draw.h"
#include "driver.h"
#include "hostile.h"
#include "pci.h"
#include "polled.h"
#include "processors.h"
#include "report.h"
#include "settings.h"
#include "traps.h"

#define ARENA_SIZE 0x400000
#define REGISTERS_START 0xc0000000
#define BALLOON_TYPE 5

static struct hostile hostile, accomplice;
static volatile u8 accomplice_works, accomplice_is_done;
static struct polled_disk neighbour, former_victim;

static void (*const attacks[])(struct hostile *) = {
	attack_configuration, attack_bar,     attack_window,    attack_common,    attack_registers,
	attack_vectors,       attack_status,  attack_rings,     attack_rings,     attack_rings,
	attack_doorbells,     attack_platform, set_up,
};

u64 drawn(struct hostile *hostile)
{
	hostile->draw = next_draw(hostile->draw);
	return hostile->draw;
}

u64 below(struct hostile *hostile, u64 count)
{
	return (drawn(hostile) >> 8) % count;
}

int once_in(struct hostile *hostile, u64 count)
{
	return below(hostile, count) == 0;
}

u64 any_size(struct hostile *hostile)
{
	return 1ul << below(hostile, 4);
}

u64 any_address(struct hostile *hostile)
{
	const u64 elsewhere[] = {
		hostile->end - below(hostile, 64),
		hostile->end,
		hostile->bar + below(hostile, 0x8000),
		hostile->neighbour_bar + below(hostile, 0x8000),
		0xe8000000 + below(hostile, 0x100000),
		0xfee00000,
		0xa0000 + below(hostile, 0x20000),
		REGISTERS_START - 1,
		(1ul << 32) - 1 - below(hostile, 32),
		1ul << 32,
		1ul << 52,
		-1ul - below(hostile, 0x2000),
		drawn(hostile) | 1ul << 40,
	};
	u64 inside = hostile->arena + below(hostile, hostile->end - hostile->arena);

	if (once_in(hostile, 4))
		return ONE_OF(hostile, elsewhere);
	return once_in(hostile, 2) ? inside : inside & ~0xffful;
}

u32 any_length(struct hostile *hostile)
{
	const u32 lengths[] = {0, 1, 2, 15, 16, 17, 20, 511, 512, 513, 4096, 65535, 65536, 1u << 20, 1u << 31, -1u};

	return once_in(hostile, 8) ? (u32)drawn(hostile) : ONE_OF(hostile, lengths);
}

static void attack(u64 steps, u64 allowed)
{
	for (u64 step = 0; step < steps; step++) {
		u64 chosen = below(&hostile, sizeof attacks / sizeof *attacks);

		if (allowed >> chosen & 1)
			attacks[chosen](&hostile);
	}
	/* Whatever the device wanted to tell. */
	let_interrupts_in();
	keep_interrupts_out();
}

/* On another CPU. It knows the device at home only, and leaves configuration space alone: its ports are for one at a time.
 * What it does is drawn from the seed, too, but when it does it is not. */
static void help(void)
{
	static void (*const attacks[])(struct hostile *) = {
		attack_common, attack_registers, attack_vectors, attack_status, attack_rings, attack_doorbells,
	};

	while (accomplice_works)
		ONE_OF(&accomplice, attacks)(&accomplice);
	accomplice_is_done = 1;
}

static void start_accomplice(void)
{
	accomplice = hostile;
	accomplice.draw = word_at(2, hostile.draw) | 1;
	accomplice_works = 1;
	start_other(help);
}

static void end_accomplice(void)
{
	accomplice_works = 0;
	while (!accomplice_is_done)
		asm volatile("pause");
}

static u8 last_virtio_slot(void)
{
	u8 last = 0;

	for (u8 slot = 1; slot < PCI_SLOTS; slot++) {
		if (virtio_type(slot))
			last = slot;
	}
	return last;
}

/* Before the victim's: of two BARs at one place, the one in the lower slot is there. */
static u8 first_disk_before(u8 victim)
{
	for (u8 slot = 1; slot < victim; slot++) {
		if (virtio_type(slot) == BLOCK_TYPE)
			return slot;
	}
	give_up(FAILURE_NO_DEVICE, BLOCK_TYPE);
}

static void choose_devices(const char *command)
{
	u8 victim = setting(command, "slot", 0);

	if (victim == 0)
		victim = last_virtio_slot();
	if (virtio_type(victim) == 0)
		give_up(FAILURE_NO_DEVICE, victim);
	polled_start(&neighbour, first_disk_before(victim));
	hostile.neighbour_bar = pci_bar(neighbour.virtio.slot, 0);
	hostile.home = virtio_in_slot(victim);
	hostile.home_bar = hostile.bar = pci_bar(victim, 0);
	hostile.vectors = virtio_vectors(&hostile.home);
	hostile.is_disk = virtio_type(victim) == BLOCK_TYPE;
	hostile.first_queue = virtio_type(victim) == BALLOON_TYPE;
}

static void write_round(u64 round, u64 seed)
{
	for (u64 word = 0; word < POLLED_WORDS; word++)
		neighbour.data[word] = word_at(word, seed + round);
	polled_begin(&neighbour, BLOCK_WRITE, round % HOSTILE_BLOCKS);
}

static void read_round(u64 round)
{
	polled_finish(&neighbour);
	/* So that a read that brings nothing is seen. */
	for (u64 word = 0; word < POLLED_WORDS; word++)
		neighbour.data[word] = ~0ul;
	polled_begin(&neighbour, BLOCK_READ, round * HOSTILE_STRIDE % HOSTILE_BLOCKS);
}

static u64 end_round(u64 checksum)
{
	polled_finish(&neighbour);
	for (u64 word = 0; word < POLLED_WORDS; word++)
		checksum = checksum_with(checksum, word_at(word, neighbour.data[word]));
	return checksum;
}

/* Any device can be reset and set up; from a disk comes back what went there. */
static void make_peace(u64 seed)
{
	u8 slot = hostile.home.slot;

	come_home(&hostile);
	virtio_stop(&hostile.home);
	if (virtio_type(slot) != BLOCK_TYPE) {
		hostile.home = virtio_in_slot(slot);
		virtio_agree(&hostile.home, VIRTIO_VERSION_1, 0);
		virtio_stop(&hostile.home);
		return;
	}
	polled_start(&former_victim, slot);
	for (u64 word = 0; word < POLLED_WORDS; word++)
		former_victim.data[word] = word_at(word, seed);
	polled_begin(&former_victim, BLOCK_WRITE, 1);
	polled_finish(&former_victim);
	for (u64 word = 0; word < POLLED_WORDS; word++)
		former_victim.data[word] = 0;
	polled_begin(&former_victim, BLOCK_READ, 1);
	polled_finish(&former_victim);
	for (u64 word = 0; word < POLLED_WORDS; word++) {
		if (former_victim.data[word] != word_at(word, seed))
			give_up(FAILURE_CONTENT, word);
	}
	virtio_check(&former_victim.virtio);
	virtio_stop(&former_victim.virtio);
}

static void say_numbers(const char *before, u64 number, const char *between, u64 other)
{
	say(before);
	say_number(number);
	say(between);
	say_number(other);
	say("\n");
}

void command_hostile(const char *command)
{
	u64 rounds = setting(command, "rounds", 16), steps = setting(command, "steps", 16);
	u64 seed = setting(command, "seed", 0), every = setting(command, "every", 4);
	u64 allowed = setting(command, "attacks", -1ul), cpus = setting(command, "cpus", 1), checksum = 0;

	/* A state of 0 would stay 0. */
	hostile.draw = word_at(1, seed) | 1;
	hostile.end = setting(command, "memory", 32 << 20);
	hostile.arena = hostile.end - ARENA_SIZE;
	if (hostile.end > REGISTERS_START || hostile.arena < IMAGE_END || every == 0)
		give_up(FAILURE_SETTING, hostile.end);
	choose_devices(command);
	apic_enable();
	tame_vectors(&hostile);
	set_up(&hostile);
	if (cpus > 1)
		start_accomplice();
	for (u64 round = 0; round < rounds; round++) {
		write_round(round, seed);
		attack(steps, allowed);
		read_round(round);
		attack(steps, allowed);
		checksum = end_round(checksum);
		if ((round + 1) % every == 0)
			say_numbers("hostile: round ", round + 1, ", checksum ", checksum);
	}
	if (cpus > 1)
		end_accomplice();
	make_peace(seed);
	virtio_check(&neighbour.virtio);
	virtio_stop(&neighbour.virtio);
	/* As `HostileWork::console_line` of src/hostile.rs has it. */
	say_numbers("hostile: peace after rounds ", rounds, ", checksum ", checksum);
	report(EVENT_HOSTILE_CHECKSUM, checksum);
}
