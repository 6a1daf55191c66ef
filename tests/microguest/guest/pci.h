/* PCI bus 0, by the configuration ports. There is no firmware: the machine has given the BARs their addresses. */
#ifndef PCI_H
#define PCI_H

#include "types.h"

#define PCI_SLOTS 32

#define PCI_IDENTITY 0x00
#define PCI_COMMAND 0x04
#define PCI_COMMAND_MEMORY (1 << 1)
#define PCI_COMMAND_BUS_MASTER (1 << 2)

#define PCI_BARS 0x10

#define PCI_VENDOR_SPECIFIC 0x09
#define PCI_MSIX 0x11

u8 pci_read8(u8 slot, u8 at);
u16 pci_read16(u8 slot, u8 at);
u32 pci_read32(u8 slot, u8 at);
void pci_write16(u8 slot, u8 at, u16 value);
void pci_write32(u8 slot, u8 at, u32 value);

/* The first slot with this device, or 0, which is the host bridge's, where there is none. */
u8 pci_find(u16 vendor, u16 device);

/* The capability after the one at `at`, or the first one for 0. Gives 0 after the last. */
u8 pci_next_capability(u8 slot, u8 at);

/* Where a memory BAR is, or 0 if it is none, has no address or one above what is mapped. */
u64 pci_bar(u8 slot, u8 number);

#endif
