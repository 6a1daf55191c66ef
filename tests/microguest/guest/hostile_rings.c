/* Attacks by queues: rings, descriptors and doorbells. */

#include "block.h"
#include "hostile.h"
#include "mmio.h"

#define DESCRIPTOR_INDIRECT (1 << 2)

/* Of the arena, for each queue: descriptors, available ring, used ring, a page each, and a table for indirect ones. */
#define RING_MEMORY 0x4000
#define PAGE 0x1000
#define LARGEST (PAGE / sizeof(struct descriptor))
#define SECTORS 2048

static u64 ring_memory(const struct hostile *hostile, u16 queue)
{
	return hostile->arena + (u64)RING_MEMORY * queue;
}

static struct descriptor *descriptors_of(const struct hostile *hostile, u16 queue)
{
	return (struct descriptor *)ring_memory(hostile, queue);
}

static volatile u16 *available_of(const struct hostile *hostile, u16 queue)
{
	return (volatile u16 *)(ring_memory(hostile, queue) + PAGE);
}

static struct descriptor *table_of(const struct hostile *hostile, u16 queue)
{
	return (struct descriptor *)(ring_memory(hostile, queue) + 3 * PAGE);
}

static void set_address(u64 at, u64 address)
{
	write32(at, address);
	write32(at + 4, address >> 32);
}

static void set_up_queue(struct hostile *hostile, u16 queue)
{
	u64 common = hostile->home.common, memory = ring_memory(hostile, queue);
	u16 size = 1 << below(hostile, 9), largest, wild = queue < hostile->first_queue ? 0 : 32;

	write16(common + COMMON_QUEUE_SELECT, queue);
	largest = read16(common + COMMON_QUEUE_SIZE);
	if (size > largest)
		size = largest;
	write16(common + COMMON_QUEUE_SIZE, size);
	write16(common + COMMON_QUEUE_VECTOR, below(hostile, hostile->vectors + 1));
	set_address(common + COMMON_QUEUE_DESCRIPTORS, (wild && once_in(hostile, wild)) ? any_address(hostile) : memory);
	set_address(common + COMMON_QUEUE_DRIVER, (wild && once_in(hostile, wild)) ? any_address(hostile) : memory + PAGE);
	set_address(common + COMMON_QUEUE_DEVICE, (wild && once_in(hostile, wild)) ? any_address(hostile) : memory + 2 * PAGE);
	write16(common + COMMON_QUEUE_ENABLE, 1);
	hostile->rings[queue].size = size ? size : 1;
	hostile->rings[queue].available = 0;
	available_of(hostile, queue)[0] = once_in(hostile, 2);
	available_of(hostile, queue)[1] = 0;
}

void set_up(struct hostile *hostile)
{
	u64 common = hostile->home.common, features, wanted = drawn(hostile);

	come_home(hostile);
	virtio_reset(&hostile->home);
	hostile->queues = read16(common + COMMON_QUEUES);
	if (hostile->queues > HOSTILE_QUEUES)
		hostile->queues = HOSTILE_QUEUES;
	write8(common + COMMON_STATUS, STATUS_ACKNOWLEDGE | STATUS_DRIVER);
	features = virtio_offered(&hostile->home) & (wanted | VIRTIO_VERSION_1);
	for (u32 half = 0; half < 2; half++) {
		write32(common + COMMON_DRIVER_FEATURE_SELECT, half);
		write32(common + COMMON_DRIVER_FEATURE, features >> (32 * half));
	}
	write8(common + COMMON_STATUS, STATUS_ACKNOWLEDGE | STATUS_DRIVER | STATUS_FEATURES_OK);
	for (u16 queue = 0; queue < hostile->queues; queue++)
		set_up_queue(hostile, queue);
	write8(common + COMMON_STATUS, STATUS_ACKNOWLEDGE | STATUS_DRIVER | STATUS_FEATURES_OK | STATUS_DRIVER_OK);
}

/* The header of a request that a disk may take; to other devices it is as good as any other bytes. */
static u64 any_header(struct hostile *hostile)
{
	const u32 types[] = {
		BLOCK_READ,   BLOCK_READ,    BLOCK_WRITE,        BLOCK_WRITE, BLOCK_FLUSH,
		BLOCK_GET_ID, BLOCK_DISCARD, BLOCK_WRITE_ZEROES, -1u,
	};
	u64 place = hostile->end - PAGE + sizeof(struct block_header) * below(hostile, 64);
	struct block_header *header = (struct block_header *)place;

	header->type = ONE_OF(hostile, types);
	header->sector = once_in(hostile, 8) ? drawn(hostile) : below(hostile, SECTORS);
	return place;
}

static int takes_ranges(u64 header)
{
	u32 type = ((struct block_header *)header)->type;

	return type == BLOCK_DISCARD || type == BLOCK_WRITE_ZEROES;
}

/* What a disk is to forget or to fill with zeroes: one range, or bytes of nobody. */
static void describe_range(struct hostile *hostile, struct descriptor *descriptor)
{
	u64 *range = (u64 *)(hostile->end - 3 * PAGE + 16 * below(hostile, 64));

	range[0] = below(hostile, SECTORS);
	range[1] = once_in(hostile, 8) ? drawn(hostile) : below(hostile, 64);
	descriptor->address = (u64)range;
	descriptor->length = once_in(hostile, 8) ? any_length(hostile) : 16;
	descriptor->flags = DESCRIPTOR_NEXT;
}

/* A request as a driver would lay it out, from descriptor `first` of `size` on. Gives how many it has. */
static u16 lay_out(struct hostile *hostile, struct descriptor *table, u16 first, u16 size)
{
	u16 count = 2 + below(hostile, 4), direction = once_in(hostile, 2) ? DESCRIPTOR_WRITE : 0;
	u64 header = any_header(hostile);
	int ranges = takes_ranges(header) && count > 2;

	for (u16 i = 0; i < count; i++) {
		struct descriptor *descriptor = &table[(first + i) % size];

		descriptor->address = any_address(hostile);
		descriptor->length = 512 * below(hostile, 9);
		descriptor->flags = DESCRIPTOR_NEXT | direction;
		descriptor->next = (first + i + 1) % size;
		if (i == 1 && ranges) {
			describe_range(hostile, descriptor);
			descriptor->next = (first + count - 1) % size;
		}
		if (i == 0) {
			descriptor->address = header;
			descriptor->length = sizeof(struct block_header);
			descriptor->flags = DESCRIPTOR_NEXT;
		} else if (i == count - 1) {
			descriptor->address = hostile->end - 2 * PAGE + below(hostile, PAGE);
			descriptor->length = 1;
			descriptor->flags = DESCRIPTOR_WRITE;
		}
	}
	/* What other devices can use as a whole. */
	for (u16 i = 0; !hostile->is_disk && i < count; i++)
		table[(first + i) % size].flags = direction | (i < count - 1 ? DESCRIPTOR_NEXT : 0);
	return count;
}

static void spoil(struct hostile *hostile, struct descriptor *descriptor)
{
	switch (below(hostile, 6)) {
	case 0:
		descriptor->address = any_address(hostile);
		break;
	case 1:
		descriptor->length = any_length(hostile);
		break;
	case 2:
		descriptor->flags = drawn(hostile);
		break;
	case 3:
		descriptor->next = drawn(hostile);
		break;
	case 4:
		/* A loop, as like as not. */
		descriptor->flags |= DESCRIPTOR_NEXT;
		descriptor->next = below(hostile, 4);
		break;
	default:
		descriptor->flags ^= DESCRIPTOR_WRITE;
	}
}

/* Puts a request behind a descriptor of its own; now and then a table in a table, or one that is none. */
static void hide(struct hostile *hostile, u16 queue, struct descriptor *head)
{
	struct descriptor *table = table_of(hostile, queue);
	u16 count = lay_out(hostile, table, 0, LARGEST);

	if (once_in(hostile, 2))
		spoil(hostile, &table[below(hostile, count)]);
	if (once_in(hostile, 8))
		table[below(hostile, count)].flags |= DESCRIPTOR_INDIRECT;
	head->address = once_in(hostile, 8) ? any_address(hostile) : (u64)table;
	head->length = once_in(hostile, 4) ? any_length(hostile) : count * sizeof(struct descriptor);
	head->flags = DESCRIPTOR_INDIRECT | (once_in(hostile, 8) ? drawn(hostile) : 0);
}

static void ring(struct hostile *hostile, u16 queue)
{
	come_away(hostile);
	write16(now_at(hostile, hostile->home.notify) + (u64)hostile->home.notify_step * queue, queue);
}

void attack_rings(struct hostile *hostile)
{
	u16 queue = hostile->first_queue + below(hostile, hostile->queues - hostile->first_queue);
	u16 size = hostile->rings[queue].size, first = below(hostile, size);
	struct descriptor *table = descriptors_of(hostile, queue);
	volatile u16 *available = available_of(hostile, queue);
	u16 index = hostile->rings[queue].available, chains = below(hostile, 4) + 1;

	for (u16 chain = 0; chain < chains; chain++) {
		u16 head = (first + 6 * chain) % size;

		if (once_in(hostile, 4))
			hide(hostile, queue, &table[head]);
		else
			lay_out(hostile, table, head, size);
		if (once_in(hostile, 4))
			spoil(hostile, &table[(head + below(hostile, 3)) % size]);
		available[2 + index++ % size] = once_in(hostile, 32) ? drawn(hostile) : head;
	}
	if (once_in(hostile, 32))
		index = drawn(hostile);
	hostile->rings[queue].available = index;
	available[1] = index;
	ring(hostile, queue);
}

void attack_doorbells(struct hostile *hostile)
{
	u64 doorbells, storm = below(hostile, 64);
	u16 queue = below(hostile, hostile->queues + 2);

	come_away(hostile);
	doorbells = now_at(hostile, hostile->home.notify);
	for (u64 i = 0; i < storm; i++)
		write16(doorbells + hostile->home.notify_step * queue, queue);
	write_sized(doorbells + below(hostile, 0x1000 - 8), any_size(hostile), drawn(hostile));
}
