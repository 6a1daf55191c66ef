#include "driver.h"
#include "polled.h"

#define HEADER 0
#define DATA 1
#define STATUS 2

void polled_start(struct polled_disk *disk, u8 slot)
{
	u64 features;

	disk->virtio = virtio_in_slot(slot);
	features = virtio_agree(&disk->virtio, VIRTIO_VERSION_1, 0);
	virtio_start(&disk->virtio, &disk->queue, features);
}

void polled_begin(struct polled_disk *disk, u32 type, u64 sector)
{
	u16 direction = type == BLOCK_READ ? DESCRIPTOR_WRITE : 0;
	struct descriptor *descriptors = disk->queue.descriptors;

	disk->header = (struct block_header){type, 0, sector};
	disk->status = BLOCK_NO_STATUS;
	descriptors[HEADER] = (struct descriptor){(u64)&disk->header, sizeof disk->header, DESCRIPTOR_NEXT, DATA};
	descriptors[DATA] =
		(struct descriptor){(u64)disk->data, sizeof disk->data, DESCRIPTOR_NEXT | direction, STATUS};
	descriptors[STATUS] = (struct descriptor){(u64)&disk->status, sizeof disk->status, DESCRIPTOR_WRITE, 0};
	queue_offer(&disk->queue, HEADER);
	queue_ring(&disk->queue);
}

void polled_finish(struct polled_disk *disk)
{
	struct used_element done;

	while (!queue_take(&disk->queue, &done))
		asm volatile("pause" : : : "memory");
	if (done.id != HEADER)
		give_up(FAILURE_USED_ID, done.id);
	if (disk->status != BLOCK_OK)
		give_up(FAILURE_STATUS, disk->header.sector << 8 | disk->status);
}
