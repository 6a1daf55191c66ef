//! Where things are in the guest's address spaces. Part of the guest's ABI: a change is a new machine version.
//!
//! ```text
//! memory                                              ports
//! 0                RAM, boot data below 640 KiB       0x0060, 0x0064   i8042 (reset only)
//! 0x000a_0000      nothing                            0x0070, 0x0071   RTC
//! 0x000e_0000      RAM: ACPI tables, SMBIOS, VMGENID  0x03f8 +8        COM1
//! 0x0010_0000      RAM, kernel, initrd                0x0505           pvpanic
//! 0xc000_0000      PCI BARs, 32 bits                  0x0600 +0x20     ACPI: sleep, reset, events, hotplug
//! 0xe800_0000      PCI configuration (ECAM), bus 0    0x0cf8 +8        PCI configuration, the old way
//! 0xfec0_0000      IOAPIC
//! 0xfee0_0000      local APICs
//! 0xfffb_c000      KVM's own pages (Intel)
//! 0x1_0000_0000    RAM above 3 GiB
//! above that RAM   PCI BARs, 64 bits
//! ```

use corten_devices::Range;
use vm_memory::GuestAddress;

/// RAM below this address is one slot, the rest continues at [`HIGH_RAM`].
pub const LOW_RAM_END: GuestAddress = GuestAddress(0xc000_0000);
/// RAM that does not fit below [`LOW_RAM_END`].
pub const HIGH_RAM: GuestAddress = GuestAddress(0x1_0000_0000);

/// Global descriptor table of the 64-bit entry.
pub const GDT: GuestAddress = GuestAddress(0x500);
/// PVH start_info, or the zero page of the Linux boot protocol.
pub const BOOT_INFORMATION: GuestAddress = GuestAddress(0x7000);
/// PVH memory map and module list, behind start_info.
pub const PVH_TABLES: GuestAddress = GuestAddress(0x7800);
/// Page tables of the 64-bit entry: six pages from here on.
pub const PAGE_TABLES: GuestAddress = GuestAddress(0x9000);
/// Kernel command line.
pub const COMMAND_LINE: GuestAddress = GuestAddress(0x2_0000);
/// Longest command line, its final zero included.
pub const COMMAND_LINE_SIZE: usize = 0x1_0000;
/// Where usable low memory ends: nothing of ours is beyond, but kernels expect the border about here.
pub const LOW_MEMORY_END: GuestAddress = GuestAddress(0x9_fc00);

/// Memory that the guest finds reserved: ACPI tables from its start, RSDP first.
pub const FIRMWARE: GuestAddress = GuestAddress(0xe_0000);
/// ACPI tables end here.
pub const SMBIOS: GuestAddress = GuestAddress(0xf_0000);
/// The page of the generation id.
pub const GENERATION_ID: GuestAddress = GuestAddress(0xf_f000);
/// Where a processor starts after reset in real mode, and where kernels jump that know no better way to restart.
pub const RESET_VECTOR: GuestAddress = GuestAddress(0xf_fff0);
/// First address at which a kernel is loaded; firmware memory ends here.
pub const KERNEL: GuestAddress = GuestAddress(0x10_0000);

/// PCI BARs of 32 bits.
pub const PCI_WINDOW: Range = Range::new(0xc000_0000, 0x2800_0000);
/// PCI configuration space of bus 0: 32 devices with 8 functions of 4 KiB.
pub const PCI_CONFIGURATION: Range = Range::new(0xe800_0000, 0x10_0000);
/// The interrupt controller for lines.
pub const IOAPIC: GuestAddress = GuestAddress(0xfec0_0000);
/// The interrupt controller of each CPU.
pub const LOCAL_APIC: GuestAddress = GuestAddress(0xfee0_0000);
/// One page for the identity map that Intel's KVM wants; the three of its TSS follow.
pub const KVM_IDENTITY_MAP: GuestAddress = GuestAddress(0xfffb_c000);
/// Three pages that Intel's KVM wants for a TSS.
pub const KVM_TSS: GuestAddress = GuestAddress(0xfffb_d000);

/// Keyboard controller: only its reset line works.
pub const I8042: Range = Range::new(0x60, 5);
/// Real-time clock.
pub const RTC: Range = Range::new(0x70, 2);
/// First serial port.
pub const COM1: Range = Range::new(0x3f8, 8);
/// Tells of guest panics.
pub const PVPANIC: Range = Range::new(0x505, 1);
/// ACPI sleep, reset, events and PCI hotplug.
pub const ACPI: Range = Range::new(0x600, 0x20);
/// PCI configuration by address and data port.
pub const PCI_PORTS: Range = Range::new(0xcf8, 8);

/// Interrupt line of [`COM1`].
pub const COM1_LINE: u32 = 4;
/// Interrupt line of the RTC.
pub const RTC_LINE: u32 = 8;
/// Interrupt line of ACPI events.
pub const ACPI_LINE: u32 = 9;
/// Lines of the IOAPIC; message-signalled interrupts are numbered from here on.
pub const LINES: u32 = 24;
