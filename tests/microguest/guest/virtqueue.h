/* A split virtqueue (Virtio 1.2, section 2.7). Its memory is mapped onto itself, so addresses here are the device's. */
#ifndef VIRTQUEUE_H
#define VIRTQUEUE_H

#include "types.h"

#define VIRTQUEUE_SIZE 16

#define DESCRIPTOR_NEXT (1 << 0)
#define DESCRIPTOR_WRITE (1 << 1)

struct descriptor {
	u64 address;
	u32 length;
	u16 flags, next;
};

struct used_element {
	u32 id, length;
};

struct virtqueue {
	struct descriptor descriptors[VIRTQUEUE_SIZE] __attribute__((aligned(16)));
	struct {
		u16 flags, index, ring[VIRTQUEUE_SIZE], used_event;
	} available;
	struct {
		u16 flags, index;
		struct used_element ring[VIRTQUEUE_SIZE];
		u16 available_event;
	} used __attribute__((aligned(4)));
	/* The device sees nothing from here on. */
	u64 doorbell;
	u16 number;
	u16 taken;   /* entries of the used ring, so far */
	u16 rung_at; /* the available index when the device was told last */
	u8 event_index;
};

/* Empties a queue that no device uses. */
void queue_prepare(struct virtqueue *queue, u64 doorbell, u8 event_index);

/* Makes the chain that starts with descriptor `head` available. */
void queue_offer(struct virtqueue *queue, u16 head);

/* Rings for what was offered since the last time, unless the device says that it looks anyway. */
void queue_ring(struct virtqueue *queue);

/* Takes the next chain that the device is done with, if there is one. */
int queue_take(struct virtqueue *queue, struct used_element *done);

/* Asks for an interrupt at the next chain. Gives 0 if there is one to take already, for which none may come. */
int queue_wait_for_next(struct virtqueue *queue);

#endif
