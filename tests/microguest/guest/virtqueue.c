#include "mmio.h"
#include "virtqueue.h"

#define USED_NO_NOTIFY (1 << 0)

/* x86 keeps stores in order, and loads: only a store before a load needs more than the compiler's attention. Where KVM
 * emulates instructions it knows no MFENCE. */
static void keep_order(void)
{
	asm volatile("" : : : "memory");
}

static void store_before_load(void)
{
	asm volatile("lock orq $0, (%%rsp)" : : : "memory", "cc");
}

void queue_prepare(struct virtqueue *queue, u64 doorbell, u8 event_index)
{
	queue->available.flags = queue->available.index = queue->available.used_event = 0;
	queue->used.flags = queue->used.index = queue->used.available_event = 0;
	queue->taken = queue->rung_at = 0;
	queue->doorbell = doorbell;
	queue->event_index = event_index;
}

void queue_offer(struct virtqueue *queue, u16 head)
{
	queue->available.ring[queue->available.index % VIRTQUEUE_SIZE] = head;
	keep_order();
	queue->available.index++;
}

/* Whether `event` is among the indices from `old` on and before `new`, all of them modulo 2^16. */
static int passed(u16 event, u16 old, u16 new)
{
	return (u16)(new - event - 1) < (u16)(new - old);
}

void queue_ring(struct virtqueue *queue)
{
	u16 index = queue->available.index;
	int wanted;

	/* The device says what it wants to hear of, then looks for chains: this is the other way round. */
	store_before_load();
	if (queue->event_index)
		wanted = passed(queue->used.available_event, queue->rung_at, index);
	else
		wanted = index != queue->rung_at && !(queue->used.flags & USED_NO_NOTIFY);
	queue->rung_at = index;
	if (wanted)
		write16(queue->doorbell, queue->number);
}

static int anything_to_take(const struct virtqueue *queue)
{
	keep_order();
	return queue->used.index != queue->taken;
}

int queue_take(struct virtqueue *queue, struct used_element *done)
{
	if (!anything_to_take(queue))
		return 0;
	keep_order();
	*done = queue->used.ring[queue->taken % VIRTQUEUE_SIZE];
	queue->taken++;
	return 1;
}

int queue_wait_for_next(struct virtqueue *queue)
{
	/* Without the feature an interrupt comes for each chain, after whatever was taken last. */
	if (!queue->event_index)
		return 1;
	queue->available.used_event = queue->taken;
	store_before_load();
	return !anything_to_take(queue);
}
