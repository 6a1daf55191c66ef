/* A virtio device on PCI: where its registers are, and the steps from reset to work (Virtio 1.2, sections 3.1 and 4.1).
 * A device that does not play its part ends the guest with a FAILURE_... */
#ifndef VIRTIO_H
#define VIRTIO_H

#include "types.h"
#include "virtqueue.h"

#define VIRTIO_RING_EVENT_IDX (1ul << 29)
#define VIRTIO_VERSION_1 (1ul << 32)

/* struct virtio_pci_common_cfg */
#define COMMON_DEVICE_FEATURE_SELECT 0x00
#define COMMON_DEVICE_FEATURE 0x04
#define COMMON_DRIVER_FEATURE_SELECT 0x08
#define COMMON_DRIVER_FEATURE 0x0c
#define COMMON_CONFIG_VECTOR 0x10
#define COMMON_QUEUES 0x12
#define COMMON_STATUS 0x14
#define COMMON_QUEUE_SELECT 0x16
#define COMMON_QUEUE_SIZE 0x18
#define COMMON_QUEUE_VECTOR 0x1a
#define COMMON_QUEUE_ENABLE 0x1c
#define COMMON_QUEUE_NOTIFY_OFFSET 0x1e
#define COMMON_QUEUE_DESCRIPTORS 0x20
#define COMMON_QUEUE_DRIVER 0x28
#define COMMON_QUEUE_DEVICE 0x30

#define STATUS_ACKNOWLEDGE (1 << 0)
#define STATUS_DRIVER (1 << 1)
#define STATUS_DRIVER_OK (1 << 2)
#define STATUS_FEATURES_OK (1 << 3)
#define STATUS_NEEDS_RESET (1 << 6)

struct virtio {
	/* Where its capabilities are: MSI-X, and the window into the BAR. */
	u8 slot, msix, window;
	u64 common, notify, device, msix_table;
	u32 notify_step;
};

/* Finds the first device of `type`, lets it be reached and resets it. */
struct virtio virtio_find(u16 type);

/* The same for the device in `slot`. */
struct virtio virtio_in_slot(u8 slot);

/* The type of the device in `slot`, or 0 if it is none of virtio's. */
u16 virtio_type(u8 slot);

/* Resets the device and waits until it is. */
void virtio_reset(const struct virtio *virtio);

/* How many vectors it has. */
u16 virtio_vectors(const struct virtio *virtio);

/* The features that it offers. */
u64 virtio_offered(const struct virtio *virtio);

/* Agrees on all `required` features and on those of `wanted` that the device offers, too. Gives what was agreed on. */
u64 virtio_agree(const struct virtio *virtio, u64 required, u64 wanted);

/* Lets the configuration's interrupts come on one vector of this CPU and those of queue 0 on another. */
void virtio_connect(const struct virtio *virtio, u8 config_vector, u8 queue_vector);

/* Lets the interrupts of the queue with this number come on a vector of this CPU. */
void virtio_connect_queue(const struct virtio *virtio, u16 number, u8 vector);

/* Makes `queue` the device's queue with this number. */
void virtio_set_queue(const struct virtio *virtio, u16 number, struct virtqueue *queue, u64 features);

/* Lets the device go to work, all of whose queues were set. */
void virtio_go(const struct virtio *virtio);

/* Makes `queue` the device's queue 0 and lets the device go to work. */
void virtio_start(const struct virtio *virtio, struct virtqueue *queue, u64 features);

/* Ends the guest if the device asks for a reset: it found something wrong with what the driver did. */
void virtio_check(const struct virtio *virtio);

/* Takes the device back to where it was before its driver, and waits until it is there. No interrupt comes any more. */
void virtio_stop(const struct virtio *virtio);

#endif
