/* Attacks on the registers in the BAR, and on memory around it where nothing is. */

#include "hostile.h"
#include "mmio.h"

#define BAR_SIZE 0x8000
#define PART 0x1000
#define COMMON_SIZE 0x40

#define ENTRY_SIZE 16
#define FIRST_VECTOR 0x60
#define VECTORS 0x80

static u64 common(const struct hostile *hostile)
{
	return now_at(hostile, hostile->home.common);
}

static u16 any_queue(struct hostile *hostile)
{
	const u16 queues[] = {0, hostile->queues - 1, hostile->queues, hostile->queues + 1, 255, 256, -1};

	return once_in(hostile, 2) ? below(hostile, hostile->queues) : ONE_OF(hostile, queues);
}

/* One register with a value that some driver may write there. */
void attack_common(struct hostile *hostile)
{
	const u16 sizes[] = {0, 1, 2, 3, 16, 255, 256, 257, 1 << 15, -1};
	const u8 addresses[] = {COMMON_QUEUE_DESCRIPTORS, COMMON_QUEUE_DRIVER, COMMON_QUEUE_DEVICE};
	u64 base, at = ONE_OF(hostile, addresses);

	come_away(hostile);
	base = common(hostile);
	switch (below(hostile, 10)) {
	case 0:
		write16(base + COMMON_QUEUE_SELECT, any_queue(hostile));
		break;
	case 1:
		write16(base + COMMON_QUEUE_SIZE, ONE_OF(hostile, sizes));
		break;
	case 2:
		write16(base + COMMON_QUEUE_ENABLE, once_in(hostile, 2) ? 1 : drawn(hostile));
		break;
	case 3:
		write16(base + COMMON_QUEUE_VECTOR, below(hostile, hostile->vectors + 2));
		break;
	case 4:
		write16(base + COMMON_CONFIG_VECTOR, once_in(hostile, 2) ? 0 : drawn(hostile));
		break;
	case 5:
		write32(base + at, any_address(hostile));
		break;
	case 6:
		write64(base + at, any_address(hostile));
		break;
	case 7:
		write32(base + COMMON_DRIVER_FEATURE_SELECT, below(hostile, 4));
		write32(base + COMMON_DRIVER_FEATURE, drawn(hostile));
		break;
	case 8:
		write32(base + COMMON_DEVICE_FEATURE_SELECT, drawn(hostile));
		read32(base + COMMON_DEVICE_FEATURE);
		break;
	default:
		/* Any part of any register. */
		at = below(hostile, COMMON_SIZE + 8);
		if (once_in(hostile, 2))
			read_sized(base + at, any_size(hostile));
		else
			write_sized(base + at, any_size(hostile), drawn(hostile));
	}
}

/* The table of vectors has an attack of its own: any message would reach this CPU. */
static int touches_table(const struct hostile *hostile, u64 offset, u64 size)
{
	u64 table = hostile->home.msix_table - hostile->home_bar;

	return offset + size > table && offset < table + PART;
}

void attack_registers(struct hostile *hostile)
{
	const u64 wild[] = {0xa0000, 0xd0000000, 0xdfff0000, 0xe8200000, 0xf0000000};
	u64 offset = below(hostile, BAR_SIZE), size = any_size(hostile), value = drawn(hostile), address;

	come_away(hostile);
	address = hostile->bar + offset;
	if (once_in(hostile, 8)) {
		address = ONE_OF(hostile, wild) + below(hostile, 0x10000);
		if (address + size > hostile->bar && address < hostile->bar + BAR_SIZE)
			return;
	} else if (touches_table(hostile, offset, size)) {
		return;
	}
	if (once_in(hostile, 2))
		read_sized(address, size);
	else
		write_sized(address, size, value);
}

/* A plain interrupt on a vector that is an interrupt's, with whatever else the word can have. */
static u32 any_message(struct hostile *hostile)
{
	return (drawn(hostile) & 0xffff0000) | (FIRST_VECTOR + below(hostile, VECTORS));
}

static void set_vector(const struct hostile *hostile, u64 vector, u64 field, u32 value)
{
	write32(now_at(hostile, hostile->home.msix_table) + ENTRY_SIZE * vector + 4 * field, value);
}

void tame_vectors(struct hostile *hostile)
{
	for (u64 vector = 0; vector < hostile->vectors; vector++) {
		set_vector(hostile, vector, 0, 0xfee00000);
		set_vector(hostile, vector, 2, any_message(hostile));
	}
}

void attack_vectors(struct hostile *hostile)
{
	u64 vector = below(hostile, hostile->vectors + 1), entry;

	come_away(hostile);
	entry = now_at(hostile, hostile->home.msix_table) + ENTRY_SIZE * vector;
	switch (below(hostile, 6)) {
	case 0:
		set_vector(hostile, vector, below(hostile, 2), drawn(hostile));
		break;
	case 1:
		set_vector(hostile, vector, 2, any_message(hostile));
		break;
	case 2:
		set_vector(hostile, vector, 3, drawn(hostile));
		break;
	case 3:
		write64(entry + 8, (drawn(hostile) & ~0xfffffffful) | any_message(hostile));
		break;
	case 4:
		/* Widths and places that a table does not take. */
		write16(entry + 2 * below(hostile, 4), drawn(hostile));
		read_sized(entry + below(hostile, ENTRY_SIZE), any_size(hostile));
		break;
	default:
		/* Masked and opened, time and again. */
		for (u64 turn = 0; turn < 8; turn++)
			set_vector(hostile, vector, 3, turn & 1);
	}
}

void attack_status(struct hostile *hostile)
{
	const u8 steps[] = {0, 1, 2, 3, 4, 7, 8, 11, 15, 64, 128, 255};
	u64 count = below(hostile, 4) + 1;

	come_away(hostile);
	for (u64 i = 0; i < count; i++)
		write8(common(hostile) + COMMON_STATUS, ONE_OF(hostile, steps));
}
