#include "channel.h"
#include "driver.h"
#include "traps.h"

#define FIRST_VECTOR 0x50

void channel_open(const struct virtio *virtio, u16 number, struct channel *channel, u64 features)
{
	channel->vector = FIRST_VECTOR + number;
	virtio_connect_queue(virtio, number, channel->vector);
	virtio_set_queue(virtio, number, &channel->queue, features);
}

void channel_offer(struct channel *channel, void *buffer, u32 length, u16 direction)
{
	channel->queue.descriptors[0] = (struct descriptor){(u64)buffer, length, direction, 0};
	channel->interrupts = interrupts_on(channel->vector);
	queue_wait_for_next(&channel->queue);
	queue_offer(&channel->queue, 0);
	queue_ring(&channel->queue);
}

u32 channel_wait(struct channel *channel)
{
	struct used_element done;

	do {
		wait_for_interrupt(channel->vector, channel->interrupts);
		channel->interrupts = interrupts_on(channel->vector);
	} while (!queue_take(&channel->queue, &done));
	if (done.id != 0)
		give_up(FAILURE_USED_ID, done.id);
	return done.length;
}

u32 channel_pass(struct channel *channel, void *buffer, u32 length, u16 direction)
{
	channel_offer(channel, buffer, length, direction);
	return channel_wait(channel);
}
