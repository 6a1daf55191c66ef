/* A disk driven by one request at a time, whose queue is looked at until it is done: no interrupt is needed, so whatever
 * else happens to interrupts does not matter here. */
#ifndef POLLED_H
#define POLLED_H

#include "block.h"
#include "protocol.h"
#include "virtio.h"

#define POLLED_WORDS (SECTOR_SIZE / sizeof(u64))

struct polled_disk {
	struct virtio virtio;
	struct virtqueue queue;
	struct block_header header;
	u8 status;
	u64 data[POLLED_WORDS];
};

/* Sets up the disk in `slot`. */
void polled_start(struct polled_disk *disk, u8 slot);

/* Starts a request of one sector on `data`. */
void polled_begin(struct polled_disk *disk, u32 type, u64 sector);

/* Waits until it is done, and ends the guest if it was not done right. */
void polled_finish(struct polled_disk *disk);

#endif
