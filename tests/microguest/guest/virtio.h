/* A virtio device on PCI: where its registers are, and the steps from reset to work (Virtio 1.2, sections 3.1 and 4.1).
 * A device that does not play its part ends the guest with a FAILURE_... */
#ifndef VIRTIO_H
#define VIRTIO_H

#include "types.h"
#include "virtqueue.h"

#define VIRTIO_RING_EVENT_IDX (1ul << 29)
#define VIRTIO_VERSION_1 (1ul << 32)

struct virtio {
	u8 slot, msix;
	u64 common, notify, device, msix_table;
	u32 notify_step;
};

/* Finds the first device of `type`, lets it be reached and resets it. */
struct virtio virtio_find(u16 type);

/* Agrees on all `required` features and on those of `wanted` that the device offers, too. Gives what was agreed on. */
u64 virtio_agree(const struct virtio *virtio, u64 required, u64 wanted);

/* Lets the configuration's interrupts come on one vector of this CPU and those of queue 0 on another. */
void virtio_connect(const struct virtio *virtio, u8 config_vector, u8 queue_vector);

/* Makes `queue` the device's queue 0 and lets the device go to work. */
void virtio_start(const struct virtio *virtio, struct virtqueue *queue, u64 features);

/* Ends the guest if the device asks for a reset: it found something wrong with what the driver did. */
void virtio_check(const struct virtio *virtio);

/* Takes the device back to where it was before its driver, and waits until it is there. No interrupt comes any more. */
void virtio_stop(const struct virtio *virtio);

#endif
