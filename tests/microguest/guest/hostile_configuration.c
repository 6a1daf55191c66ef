/* Attacks on configuration space, by memory and by ports, and on where the BAR is. */

#include "hostile.h"
#include "mmio.h"
#include "pci.h"
#include "port.h"

#define ECAM 0xe8000000
#define ADDRESS_PORT 0xcf8
#define DATA_PORT 0xcfc
#define ENABLE (1u << 31)

#define CONFIGURATION_SIZE 0x1000
#define BAR_SIZE 0x8000
/* Where nothing else of the machine has its BARs. */
#define EMPTY_WINDOW 0xd0000000
#define EMPTY_WINDOW_SIZE 0x18000000

/* struct virtio_pci_cfg_cap, from its place on. */
#define WINDOW_BAR 4
#define WINDOW_OFFSET 8
#define WINDOW_LENGTH 12
#define WINDOW_DATA 16

static void select(u8 slot, u8 function, u16 at)
{
	out32(ADDRESS_PORT, ENABLE | (u32)(at >> 8) << 24 | slot << 11 | function << 8 | (at & 0xfc));
}

static void note_bar(struct hostile *hostile)
{
	hostile->bar = pci_read32(hostile->home.slot, PCI_BARS) & ~0xfu;
}

void come_home(struct hostile *hostile)
{
	pci_write32(hostile->home.slot, PCI_BARS, hostile->home_bar);
	pci_write16(hostile->home.slot, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_BUS_MASTER);
	hostile->bar = hostile->home_bar;
}

void come_away(struct hostile *hostile)
{
	u64 place = hostile->bar - EMPTY_WINDOW;

	if (hostile->bar != hostile->home_bar && (hostile->bar < EMPTY_WINDOW || place + BAR_SIZE > EMPTY_WINDOW_SIZE))
		come_home(hostile);
}

/* A register that means something more often than not. */
static u16 any_register(struct hostile *hostile)
{
	const u16 known[] = {
		PCI_IDENTITY,
		PCI_COMMAND,
		0x0c,
		PCI_BARS,
		PCI_BARS + 4 * below(hostile, 6),
		0x30,
		0x34,
		0x3c,
		hostile->home.msix,
		hostile->home.msix + 2,
		hostile->home.msix + 4,
		hostile->home.window,
		hostile->home.window + WINDOW_BAR,
		hostile->home.window + WINDOW_LENGTH,
		hostile->home.window + WINDOW_DATA,
		0xfc,
		0x100,
		CONFIGURATION_SIZE - 1,
	};

	return (once_in(hostile, 4) ? below(hostile, CONFIGURATION_SIZE) : ONE_OF(hostile, known)) + below(hostile, 4) *
	       once_in(hostile, 4);
}

/* A window onto the table of vectors would let any message through: its offset is left to attack_window. */
static int moves_window(const struct hostile *hostile, u16 at, u64 size)
{
	u16 offset = hostile->home.window + WINDOW_OFFSET;

	return at < offset + 4 && offset < at + size;
}

static void access_by_ports(struct hostile *hostile, u8 slot, u8 function, u16 at, u64 size)
{
	u16 port = DATA_PORT + (at & 3);
	u32 value = drawn(hostile);

	select(slot, function, at);
	if (once_in(hostile, 2))
		in_sized(port, size);
	else
		out_sized(port, size, value);
}

static void access_by_memory(struct hostile *hostile, u8 slot, u8 function, u16 at, u64 size)
{
	u64 address = ECAM + ((u64)slot << 15) + ((u64)function << 12) + at, value = drawn(hostile);

	if (once_in(hostile, 2))
		read_sized(address, size);
	else
		write_sized(address, size, value);
}

void attack_configuration(struct hostile *hostile)
{
	/* What is in other slots is for others to attack. */
	u8 bridge = once_in(hostile, 8), function = once_in(hostile, 8) ? below(hostile, 8) : 0;
	u8 slot = bridge ? 0 : hostile->home.slot;
	u16 at = any_register(hostile);
	u64 size = any_size(hostile);

	if (at + size > CONFIGURATION_SIZE || moves_window(hostile, at, size))
		return;
	if (once_in(hostile, 2))
		access_by_ports(hostile, slot, function, at, size > 4 ? 4 : size);
	else
		access_by_memory(hostile, slot, function, at, size);
	note_bar(hostile);
}

static u32 any_bar(struct hostile *hostile)
{
	const u32 places[] = {
		hostile->home_bar,
		hostile->neighbour_bar,
		EMPTY_WINDOW + below(hostile, EMPTY_WINDOW_SIZE),
		EMPTY_WINDOW + EMPTY_WINDOW_SIZE - BAR_SIZE,
		EMPTY_WINDOW + EMPTY_WINDOW_SIZE,
		ECAM,
		0,
		hostile->arena,
		0xfec00000,
		0xfee00000,
		-1u,
	};

	return ONE_OF(hostile, places);
}

void attack_bar(struct hostile *hostile)
{
	u8 slot = hostile->home.slot;
	u32 place = any_bar(hostile);

	switch (below(hostile, 4)) {
	case 0:
		/* Sized as Linux does it, but for what comes in between. */
		pci_write32(slot, PCI_BARS, -1u);
		pci_read32(slot, PCI_BARS);
		pci_write32(slot, PCI_BARS, hostile->bar);
		break;
	case 1:
		pci_write16(slot, PCI_COMMAND, drawn(hostile));
		break;
	case 2:
		come_home(hostile);
		break;
	default:
		pci_write32(slot, PCI_BARS, place);
		pci_write16(slot, PCI_COMMAND, PCI_COMMAND_MEMORY);
	}
	note_bar(hostile);
}

void attack_window(struct hostile *hostile)
{
	u8 slot = hostile->home.slot, window = hostile->home.window;
	u64 table = hostile->home.msix_table - hostile->home_bar;
	u32 offset = once_in(hostile, 4) ? drawn(hostile) | 0x10000 : below(hostile, 0x3100);
	u32 length = once_in(hostile, 4) ? drawn(hostile) : any_size(hostile), value = drawn(hostile);

	if (offset + 8ul > table && offset < table + BAR_SIZE)
		return;
	pci_write32(slot, window + WINDOW_OFFSET, offset);
	pci_write32(slot, window + WINDOW_LENGTH, length);
	pci_write16(slot, window + WINDOW_BAR, once_in(hostile, 8) ? drawn(hostile) : 0);
	if (once_in(hostile, 2))
		pci_read32(slot, window + WINDOW_DATA);
	else
		pci_write32(slot, window + WINDOW_DATA, value);
}
