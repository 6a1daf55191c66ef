#include "apic.h"
#include "driver.h"
#include "mmio.h"
#include "pci.h"
#include "virtio.h"

#define VENDOR 0x1af4
#define FIRST_DEVICE 0x1040

/* struct virtio_pci_cap, from its place in configuration space. */
#define CAPABILITY_KIND 3
#define CAPABILITY_BAR 4
#define CAPABILITY_OFFSET 8
#define CAPABILITY_NOTIFY_STEP 16

#define KIND_COMMON 1
#define KIND_NOTIFY 2
#define KIND_DEVICE 4
#define KIND_WINDOW 5

#define MSIX_CONTROL 2
#define MSIX_ENABLE (1 << 15)
#define MSIX_LAST 0x7ff
#define MSIX_TABLE 4
#define MSIX_BAR 7
#define MSIX_ENTRY_SIZE 16

/* Entries of the MSI-X table. */
#define CONFIG_ENTRY 0
#define QUEUE_ENTRY 1

/* The address of a part of the device, `offset` bytes into a BAR. */
static u64 place(u8 slot, u8 bar, u32 offset)
{
	u64 address = pci_bar(slot, bar);

	if (address == 0)
		give_up(FAILURE_BAR, bar);
	return address + offset;
}

static void note_structure(struct virtio *virtio, u8 at)
{
	u8 slot = virtio->slot, kind = pci_read8(slot, at + CAPABILITY_KIND);
	u64 *structure = kind == KIND_COMMON   ? &virtio->common
			 : kind == KIND_NOTIFY ? &virtio->notify
			 : kind == KIND_DEVICE ? &virtio->device
					       : 0;

	if (kind == KIND_WINDOW)
		virtio->window = at;
	/* Of several of one kind, the first is the one the device prefers (4.1.4.1). */
	if (!structure || *structure)
		return;
	*structure = place(slot, pci_read8(slot, at + CAPABILITY_BAR), pci_read32(slot, at + CAPABILITY_OFFSET));
	if (kind == KIND_NOTIFY)
		virtio->notify_step = pci_read32(slot, at + CAPABILITY_NOTIFY_STEP);
}

static void note_msix(struct virtio *virtio, u8 at)
{
	u32 table = pci_read32(virtio->slot, at + MSIX_TABLE);

	virtio->msix = at;
	virtio->msix_table = place(virtio->slot, table & MSIX_BAR, table & ~MSIX_BAR);
}

static void require_structure(u64 address, u8 kind)
{
	if (address == 0)
		give_up(FAILURE_STRUCTURE, kind);
}

static u8 status(const struct virtio *virtio)
{
	return read8(virtio->common + COMMON_STATUS);
}

static void add_status(const struct virtio *virtio, u8 bit)
{
	write8(virtio->common + COMMON_STATUS, status(virtio) | bit);
}

void virtio_reset(const struct virtio *virtio)
{
	write8(virtio->common + COMMON_STATUS, 0);
	while (status(virtio) != 0)
		;
}

u16 virtio_type(u8 slot)
{
	u32 identity = pci_read32(slot, PCI_IDENTITY);
	u16 device = identity >> 16;

	return (u16)identity == VENDOR && device >= FIRST_DEVICE ? device - FIRST_DEVICE : 0;
}

struct virtio virtio_find(u16 type)
{
	u8 slot = pci_find(VENDOR, FIRST_DEVICE + type);

	if (slot == 0)
		give_up(FAILURE_NO_DEVICE, type);
	return virtio_in_slot(slot);
}

struct virtio virtio_in_slot(u8 slot)
{
	struct virtio virtio = {.slot = slot};

	for (u8 at = 0; (at = pci_next_capability(virtio.slot, at));) {
		u8 id = pci_read8(virtio.slot, at);

		if (id == PCI_VENDOR_SPECIFIC)
			note_structure(&virtio, at);
		else if (id == PCI_MSIX)
			note_msix(&virtio, at);
	}
	require_structure(virtio.common, KIND_COMMON);
	require_structure(virtio.notify, KIND_NOTIFY);
	require_structure(virtio.device, KIND_DEVICE);
	require_structure(virtio.msix_table, PCI_MSIX);
	pci_write16(virtio.slot, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_BUS_MASTER);
	virtio_reset(&virtio);
	return virtio;
}

u64 virtio_offered(const struct virtio *virtio)
{
	u64 features = 0;

	for (u32 half = 0; half < 2; half++) {
		write32(virtio->common + COMMON_DEVICE_FEATURE_SELECT, half);
		features |= (u64)read32(virtio->common + COMMON_DEVICE_FEATURE) << (32 * half);
	}
	return features;
}

u64 virtio_agree(const struct virtio *virtio, u64 required, u64 wanted)
{
	u64 can, features;

	add_status(virtio, STATUS_ACKNOWLEDGE);
	add_status(virtio, STATUS_DRIVER);
	can = virtio_offered(virtio);
	features = can & (required | wanted);
	if ((can & required) != required)
		give_up(FAILURE_FEATURES, can);
	for (u32 half = 0; half < 2; half++) {
		write32(virtio->common + COMMON_DRIVER_FEATURE_SELECT, half);
		write32(virtio->common + COMMON_DRIVER_FEATURE, features >> (32 * half));
	}
	add_status(virtio, STATUS_FEATURES_OK);
	if (!(status(virtio) & STATUS_FEATURES_OK))
		give_up(FAILURE_FEATURES, features);
	return features;
}

static void set_message(const struct virtio *virtio, u16 entry, u8 vector)
{
	u64 at = virtio->msix_table + MSIX_ENTRY_SIZE * entry;

	write32(at, apic_message_address());
	write32(at + 4, 0);
	write32(at + 8, vector); /* fixed, edge */
	write32(at + 12, 0); /* not masked */
}

/* A device without resources for an entry reads as having none (4.1.5.1.2.2). */
static void choose_entry(const struct virtio *virtio, u8 at, u16 entry)
{
	write16(virtio->common + at, entry);
	if (read16(virtio->common + at) != entry)
		give_up(FAILURE_VECTOR, entry);
}

u16 virtio_vectors(const struct virtio *virtio)
{
	return (pci_read16(virtio->slot, virtio->msix + MSIX_CONTROL) & MSIX_LAST) + 1;
}

static void control_msix(const struct virtio *virtio, u16 control)
{
	pci_write16(virtio->slot, virtio->msix + MSIX_CONTROL, control);
}

void virtio_connect(const struct virtio *virtio, u8 config_vector, u8 queue_vector)
{
	set_message(virtio, CONFIG_ENTRY, config_vector);
	set_message(virtio, QUEUE_ENTRY, queue_vector);
	control_msix(virtio, MSIX_ENABLE);
	write16(virtio->common + COMMON_QUEUE_SELECT, 0);
	choose_entry(virtio, COMMON_CONFIG_VECTOR, CONFIG_ENTRY);
	choose_entry(virtio, COMMON_QUEUE_VECTOR, QUEUE_ENTRY);
}

void virtio_connect_queue(const struct virtio *virtio, u16 number, u8 vector)
{
	set_message(virtio, QUEUE_ENTRY + number, vector);
	control_msix(virtio, MSIX_ENABLE);
	write16(virtio->common + COMMON_QUEUE_SELECT, number);
	choose_entry(virtio, COMMON_QUEUE_VECTOR, QUEUE_ENTRY + number);
}

static void set_address(const struct virtio *virtio, u8 at, const void *part)
{
	write32(virtio->common + at, (u64)part);
	write32(virtio->common + at + 4, (u64)part >> 32);
}

void virtio_set_queue(const struct virtio *virtio, u16 number, struct virtqueue *queue, u64 features)
{
	u64 common = virtio->common;
	u16 largest;

	write16(common + COMMON_QUEUE_SELECT, number);
	largest = read16(common + COMMON_QUEUE_SIZE);
	if (largest < VIRTQUEUE_SIZE)
		give_up(FAILURE_QUEUE, largest);
	write16(common + COMMON_QUEUE_SIZE, VIRTQUEUE_SIZE);
	queue_prepare(queue, virtio->notify + read16(common + COMMON_QUEUE_NOTIFY_OFFSET) * virtio->notify_step,
		      (features & VIRTIO_RING_EVENT_IDX) != 0);
	queue->number = number;
	set_address(virtio, COMMON_QUEUE_DESCRIPTORS, queue->descriptors);
	set_address(virtio, COMMON_QUEUE_DRIVER, &queue->available);
	set_address(virtio, COMMON_QUEUE_DEVICE, &queue->used);
	write16(common + COMMON_QUEUE_ENABLE, 1);
	if (read16(common + COMMON_QUEUE_ENABLE) != 1)
		give_up(FAILURE_QUEUE, VIRTQUEUE_SIZE);
}

void virtio_go(const struct virtio *virtio)
{
	add_status(virtio, STATUS_DRIVER_OK);
}

void virtio_start(const struct virtio *virtio, struct virtqueue *queue, u64 features)
{
	virtio_set_queue(virtio, 0, queue, features);
	virtio_go(virtio);
}

void virtio_check(const struct virtio *virtio)
{
	u8 found = status(virtio);

	if (found & STATUS_NEEDS_RESET)
		give_up(FAILURE_NEEDS_RESET, found);
}

void virtio_stop(const struct virtio *virtio)
{
	virtio_reset(virtio);
	control_msix(virtio, 0);
}
