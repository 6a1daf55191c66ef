/* disk: reads, writes and flushes on a virtio-blk device, with timer interrupts all along.
 *
 * The work goes on in lanes, each with one request in flight at a time. A lane draws its requests from a state of its
 * own, has blocks that no other lane touches and a checksum of its own. So in whatever order requests are done, and
 * however the guest is interrupted, each lane does and finds the same; src/disk.rs says what.
 *
 * The used ring is looked at only after an interrupt of the queue: one that is lost leaves the guest halted, although
 * the timer wakes it again and again. Interrupts are off but for where the guest halts and where it computes, so they
 * come at any instruction there. */

#include "apic.h"
#include "block.h"
#include "checksum.h"
#include "commands.h"
#include "draw.h"
#include "driver.h"
#include "mmio.h"
#include "report.h"
#include "settings.h"
#include "traps.h"
#include "virtio.h"

/* Each lane has as many descriptors: header, data, status. */
#define HEADER 0
#define DATA 1
#define STATUS 2
#define LANE_DESCRIPTORS 3

#define WORDS_PER_SECTOR (SECTOR_SIZE / sizeof(u64))

struct lane {
	struct block_header header;
	u8 status, busy;
	u64 draw, left, checksum;
	u64 data[DISK_MAX_SECTORS * WORDS_PER_SECTOR];
};

static struct virtqueue queue;
static struct lane lanes[DISK_LANES];

static struct {
	struct virtio virtio;
	u64 blocks, sectors, capacity;
	u64 requests, completions, report_every;
	u8 queue_vector, config_vector, timer_vector;
	u64 config_interrupts;
	u32 ticks;
	u64 armed_at; /* the timer's interrupts when it was armed last */
} disk;

static void arm_timer(void)
{
	disk.armed_at = interrupts_on(disk.timer_vector);
	apic_timer_start(disk.timer_vector, disk.ticks);
}

static void keep_timer_armed(void)
{
	if (interrupts_on(disk.timer_vector) != disk.armed_at)
		arm_timer();
}

static u64 capacity(void)
{
	u64 at = disk.virtio.device + BLOCK_CONFIG_CAPACITY;

	return read32(at) | (u64)read32(at + 4) << 32;
}

static u32 type_of(u64 draw)
{
	u64 kind = draw >> DISK_KIND_SHIFT;

	return kind >= DISK_FIRST_WRITE ? BLOCK_WRITE : kind >= DISK_FIRST_READ ? BLOCK_READ : BLOCK_FLUSH;
}

static u64 words(void)
{
	return disk.sectors * WORDS_PER_SECTOR;
}

static void fill(struct lane *lane)
{
	let_interrupts_in();
	for (u64 word = 0; word < words(); word++)
		lane->data[word] = word_at(word, lane->draw);
	keep_interrupts_out();
}

/* So that a read that brings nothing is seen. */
static void clear(struct lane *lane)
{
	for (u64 word = 0; word < words(); word++)
		lane->data[word] = ~0ul;
}

/* Each word is mixed with its place: equal ones would cancel each other out. */
static void fold(struct lane *lane)
{
	let_interrupts_in();
	for (u64 word = 0; word < words(); word++)
		lane->checksum = checksum_with(lane->checksum, word_at(word, lane->data[word]));
	keep_interrupts_out();
}

static void describe(u16 index, void *part, u32 length, u16 flags, u16 next)
{
	queue.descriptors[index] = (struct descriptor){(u64)part, length, flags, next};
}

static void offer(struct lane *lane)
{
	u16 first = (lane - lanes) * LANE_DESCRIPTORS, status = first + STATUS;
	u32 type = lane->header.type;
	u16 second = type == BLOCK_FLUSH ? status : first + DATA;
	u16 direction = type == BLOCK_READ ? DESCRIPTOR_WRITE : 0;

	describe(first, &lane->header, sizeof lane->header, DESCRIPTOR_NEXT, second);
	describe(first + DATA, lane->data, disk.sectors * SECTOR_SIZE, DESCRIPTOR_NEXT | direction, status);
	describe(status, &lane->status, sizeof lane->status, DESCRIPTOR_WRITE, 0);
	queue_offer(&queue, first);
}

static void begin(struct lane *lane)
{
	u64 block, now = capacity();
	u32 type;

	/* Also an exit to the host in the middle of the work, which doorbells and interrupts need not be. */
	if (now != disk.capacity)
		give_up(FAILURE_CAPACITY, now);
	lane->draw = next_draw(lane->draw);
	type = type_of(lane->draw);
	block = lane - lanes + DISK_LANES * ((u32)lane->draw % (disk.blocks / DISK_LANES));
	lane->header.type = type;
	lane->header.sector = type == BLOCK_FLUSH ? 0 : block * disk.sectors;
	if (type == BLOCK_WRITE)
		fill(lane);
	else if (type == BLOCK_READ)
		clear(lane);
	lane->status = BLOCK_NO_STATUS;
	lane->busy = 1;
	lane->left--;
	offer(lane);
}

static struct lane *lane_of(const struct used_element *done)
{
	struct lane *lane = &lanes[done->id / LANE_DESCRIPTORS % DISK_LANES];

	if (done->id >= DISK_LANES * LANE_DESCRIPTORS || done->id % LANE_DESCRIPTORS != HEADER || !lane->busy)
		give_up(FAILURE_USED_ID, done->id);
	return lane;
}

static void complete(const struct used_element *done)
{
	struct lane *lane = lane_of(done);
	u32 data = lane->header.type == BLOCK_READ ? disk.sectors * SECTOR_SIZE : 0;

	if (lane->status != BLOCK_OK)
		give_up(FAILURE_STATUS, lane->header.sector << 8 | lane->status);
	if (done->length != data + sizeof lane->status)
		give_up(FAILURE_USED_LENGTH, done->length);
	lane->busy = 0;
	lane->checksum = checksum_with(lane->checksum, lane->status);
	if (data)
		fold(lane);
	disk.completions++;
	if (disk.report_every && disk.completions % disk.report_every == 0)
		report(EVENT_DISK_PROGRESS, disk.completions);
	if (lane->left)
		begin(lane);
	keep_timer_armed();
}

/* Halts until the queue's vector was taken more than `seen` times. */
static void wait_for_queue(u64 seen)
{
	while (interrupts_on(disk.queue_vector) == seen) {
		wait_for_any_interrupt();
		keep_timer_armed();
		if (interrupts_on(disk.config_vector) == disk.config_interrupts)
			continue;
		disk.config_interrupts = interrupts_on(disk.config_vector);
		virtio_check(&disk.virtio);
	}
}

static void work(void)
{
	u64 interrupts = interrupts_on(disk.queue_vector);
	struct used_element done;

	for (u64 lane = 0; lane < DISK_LANES; lane++)
		begin(&lanes[lane]);
	queue_ring(&queue);
	while (disk.completions < disk.requests) {
		wait_for_queue(interrupts);
		/* Before the ring is looked at: an interrupt from here on may be for what comes after. */
		interrupts = interrupts_on(disk.queue_vector);
		do {
			while (queue_take(&queue, &done))
				complete(&done);
		} while (!queue_wait_for_next(&queue));
		queue_ring(&queue);
	}
}

static void take_settings(const char *command)
{
	u64 rounds = setting(command, "rounds", 16), seed = setting(command, "seed", 0);
	u8 vector = setting(command, "vector", 0x50);

	disk.blocks = setting(command, "blocks", 64);
	disk.sectors = setting(command, "sectors", 1);
	disk.report_every = setting(command, "every", 16);
	disk.ticks = setting(command, "ticks", 1000000);
	disk.queue_vector = vector;
	disk.config_vector = vector + 1;
	disk.timer_vector = vector + 2;
	disk.completions = 0;
	disk.requests = DISK_LANES * rounds;
	if (rounds == 0)
		give_up(FAILURE_SETTING, rounds);
	if (disk.blocks == 0 || disk.blocks % DISK_LANES != 0)
		give_up(FAILURE_SETTING, disk.blocks);
	if (disk.sectors == 0 || disk.sectors > DISK_MAX_SECTORS)
		give_up(FAILURE_SETTING, disk.sectors);
	for (u64 lane = 0; lane < DISK_LANES; lane++) {
		/* A state of 0 would stay 0. */
		lanes[lane].draw = word_at(lane, seed) | 1;
		lanes[lane].left = rounds;
		lanes[lane].checksum = 0;
		lanes[lane].busy = 0;
	}
}

static void set_up(u8 event_index)
{
	u64 wanted = event_index ? VIRTIO_RING_EVENT_IDX : 0, features;

	disk.virtio = virtio_find(BLOCK_TYPE);
	features = virtio_agree(&disk.virtio, VIRTIO_VERSION_1 | BLOCK_FEATURE_FLUSH, wanted);
	disk.capacity = capacity();
	if (disk.capacity < disk.blocks * disk.sectors)
		give_up(FAILURE_CAPACITY, disk.capacity);
	apic_enable();
	disk.config_interrupts = interrupts_on(disk.config_vector);
	virtio_connect(&disk.virtio, disk.config_vector, disk.queue_vector);
	virtio_start(&disk.virtio, &queue, features);
	report(EVENT_DISK_READY, disk.capacity);
}

/* As `DiskWork::console_line` of src/disk.rs has it. */
static void say_outcome(u64 checksum)
{
	say("disk: ");
	say_number(disk.completions);
	say(" requests, checksum ");
	say_number(checksum);
	say("\n");
}

void command_disk(const char *command)
{
	u64 checksum = 0, ticks_before;

	take_settings(command);
	set_up(setting(command, "event_index", 1));
	ticks_before = interrupts_on(disk.timer_vector);
	arm_timer();
	work();
	/* The timer is armed all the time: one that was lost on the way never fires. */
	wait_for_interrupt(disk.timer_vector, disk.armed_at);
	virtio_stop(&disk.virtio);
	for (u64 lane = 0; lane < DISK_LANES; lane++)
		checksum = checksum_with(checksum, lanes[lane].checksum);
	say_outcome(checksum);
	report(EVENT_DISK_TICKS, interrupts_on(disk.timer_vector) - ticks_before);
	report(EVENT_DISK_COMPLETIONS, disk.completions);
	report(EVENT_DISK_CHECKSUM, checksum);
}
