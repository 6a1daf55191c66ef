/* A queue with one buffer in flight at a time, and with interrupts of its own. */
#ifndef CHANNEL_H
#define CHANNEL_H

#include "virtio.h"

struct channel {
	struct virtqueue queue;
	u8 vector;
	u64 interrupts; /* that had come when the buffer was offered */
};

/* Makes the channel the device's queue with this number, before the device goes to work. */
void channel_open(const struct virtio *virtio, u16 number, struct channel *channel, u64 features);

/* Gives a buffer to the device: to fill it if `direction` is DESCRIPTOR_WRITE, to read it if it is 0. */
void channel_offer(struct channel *channel, void *buffer, u32 length, u16 direction);

/* Whether the device is done with the buffer, and how many bytes it has put there. The used ring is looked at only after an
 * interrupt: whoever waits for one that is lost stays halted. */
int channel_is_done(struct channel *channel, u32 *length);

/* Halts until it is. */
u32 channel_wait(struct channel *channel);

/* Both. */
u32 channel_pass(struct channel *channel, void *buffer, u32 length, u16 direction);

/* Has the device read a request, and halts until it has answered. */
void channel_ask(struct channel *channel, void *request, u32 length, void *answer, u32 answer_length);

#endif
