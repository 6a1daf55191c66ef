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

static void offer(struct channel *channel)
{
	channel->interrupts = interrupts_on(channel->vector);
	queue_wait_for_next(&channel->queue);
	queue_offer(&channel->queue, 0);
	queue_ring(&channel->queue);
}

void channel_offer(struct channel *channel, void *buffer, u32 length, u16 direction)
{
	channel->queue.descriptors[0] = (struct descriptor){(u64)buffer, length, direction, 0};
	offer(channel);
}

int channel_is_done(struct channel *channel, u32 *length)
{
	u64 interrupts = interrupts_on(channel->vector);
	struct used_element done;

	if (interrupts == channel->interrupts)
		return 0;
	channel->interrupts = interrupts;
	if (!queue_take(&channel->queue, &done))
		return 0;
	if (done.id != 0)
		give_up(FAILURE_USED_ID, done.id);
	*length = done.length;
	return 1;
}

u32 channel_wait(struct channel *channel)
{
	u32 length;

	while (!channel_is_done(channel, &length))
		wait_for_interrupt(channel->vector, channel->interrupts);
	return length;
}

u32 channel_pass(struct channel *channel, void *buffer, u32 length, u16 direction)
{
	channel_offer(channel, buffer, length, direction);
	return channel_wait(channel);
}

void channel_ask(struct channel *channel, void *request, u32 length, void *answer, u32 answer_length)
{
	channel->queue.descriptors[0] = (struct descriptor){(u64)request, length, DESCRIPTOR_NEXT, 1};
	channel->queue.descriptors[1] = (struct descriptor){(u64)answer, answer_length, DESCRIPTOR_WRITE, 0};
	offer(channel);
	channel_wait(channel);
}
