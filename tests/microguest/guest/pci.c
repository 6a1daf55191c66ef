#include "pci.h"
#include "port.h"

/* PCI Local Bus Specification 3.0, 3.2.2.3.2: configuration mechanism #1. */
#define ADDRESS_PORT 0xcf8
#define DATA_PORT 0xcfc
#define ENABLE (1u << 31)

#define STATUS 0x06
#define STATUS_HAS_CAPABILITIES (1 << 4)
#define CAPABILITIES 0x34

#define BAR_IO (1 << 0)
#define BAR_WIDE (1 << 2)
#define BAR_FLAGS 0xf

/* The data port for the byte at `at`, with the address port set for it. */
static u16 select(u8 slot, u8 at)
{
	out32(ADDRESS_PORT, ENABLE | slot << 11 | (at & 0xfc));
	return DATA_PORT + (at & 3);
}

u8 pci_read8(u8 slot, u8 at)
{
	return in8(select(slot, at));
}

u16 pci_read16(u8 slot, u8 at)
{
	return in16(select(slot, at));
}

u32 pci_read32(u8 slot, u8 at)
{
	return in32(select(slot, at));
}

void pci_write16(u8 slot, u8 at, u16 value)
{
	out16(select(slot, at), value);
}

void pci_write32(u8 slot, u8 at, u32 value)
{
	out32(select(slot, at), value);
}

u8 pci_find(u16 vendor, u16 device)
{
	for (u8 slot = 1; slot < PCI_SLOTS; slot++) {
		if (pci_read32(slot, PCI_IDENTITY) == (vendor | (u32)device << 16))
			return slot;
	}
	return 0;
}

u8 pci_next_capability(u8 slot, u8 at)
{
	if (at == 0 && !(pci_read16(slot, STATUS) & STATUS_HAS_CAPABILITIES))
		return 0;
	return pci_read8(slot, at == 0 ? CAPABILITIES : at + 1) & 0xfc;
}

u64 pci_bar(u8 slot, u8 number)
{
	u8 at = PCI_BARS + 4 * number;
	u32 low = pci_read32(slot, at);

	if (low & BAR_IO || (low & BAR_WIDE && pci_read32(slot, at + 4) != 0))
		return 0;
	return low & ~BAR_FLAGS;
}
