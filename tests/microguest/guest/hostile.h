/* What the attacks of `hostile` share: the device under attack, and numbers drawn from the seed alone. What an attack
 * reads changes nothing of what comes next, so a seed always gives the same attacks. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include "types.h"
#include "virtio.h"

#define HOSTILE_QUEUES 16

struct hostile {
	u64 draw;
	/* Its registers with the BAR where the machine put it. */
	struct virtio home;
	u64 home_bar;
	/* Where its BAR is now, as far as it has said. */
	u64 bar;
	/* Where its neighbour's is. */
	u64 neighbour_bar;
	/* Memory that nothing else uses, up to the end of RAM: devices are told to write here or where no RAM is. */
	u64 arena, end;
	u16 queues, vectors;
	/* Its requests are those of a disk; those of other devices have buffers of one direction. */
	u8 is_disk;
	/* The first queue that gets requests: of a balloon, the one whose requests would punch holes into this guest's code. */
	u16 first_queue;
	struct {
		u16 size, available;
	} rings[HOSTILE_QUEUES];
};

u64 drawn(struct hostile *hostile);

/* One of 0 to `count` - 1. */
u64 below(struct hostile *hostile, u64 count);

/* True once in `count` times. */
int once_in(struct hostile *hostile, u64 count);

/* 1, 2, 4 or 8. */
u64 any_size(struct hostile *hostile);

/* An address for a device: in the arena, at its end, in registers, or where nothing is. */
u64 any_address(struct hostile *hostile);

/* A number of bytes that somebody may get wrong. */
u32 any_length(struct hostile *hostile);

#define ONE_OF(hostile, values) ((values)[below((hostile), sizeof(values) / sizeof *(values))])

/* Where a register is now that is at `home` with the BAR at home. */
static inline u64 now_at(const struct hostile *hostile, u64 home)
{
	return home - hostile->home_bar + hostile->bar;
}

/* Lets the device be reached at home. */
void come_home(struct hostile *hostile);

/* The same, but only if its BAR is where something else answers: in RAM, in the neighbour, in interrupt controllers. */
void come_away(struct hostile *hostile);

/* Resets the device, however it is, and sets it up with queues in the arena: now and then with one that cannot be. */
void set_up(struct hostile *hostile);

void attack_configuration(struct hostile *hostile);
void attack_bar(struct hostile *hostile);
void attack_window(struct hostile *hostile);
void attack_common(struct hostile *hostile);
void attack_registers(struct hostile *hostile);
void attack_vectors(struct hostile *hostile);
void attack_status(struct hostile *hostile);
void attack_rings(struct hostile *hostile);
void attack_doorbells(struct hostile *hostile);
void attack_platform(struct hostile *hostile);

/* Gives each vector a message that this CPU survives. */
void tame_vectors(struct hostile *hostile);

#endif
