//! The 64-bit entry of the Linux boot protocol: long mode, memory mapped onto itself, RSI = boot_params
//! (Documentation/arch/x86/boot.rst).

use kvm_bindings::{kvm_regs, kvm_sregs};
use linux_loader::loader::bootparam::{boot_e820_entry, boot_params};
use vm_memory::{Bytes, GuestAddress};

use super::image::Kernel;
use super::memory_map::Entry;
use super::registers::{CR0_EXTENSION_TYPE, CR0_PROTECTION, flat_segments, regs_at};
use super::{BootError, Initrd, StartRegisters};
use crate::arch::x86_64::layout;
use crate::ram::GuestMemory;

const CR0_PAGING: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LONG_MODE_ENABLED_AND_ACTIVE: u64 = 1 << 8 | 1 << 10;
const PRESENT_AND_WRITABLE: u64 = 3;
const LARGE_PAGE: u64 = 1 << 7;
const PAGE: u64 = 4096;

const HEADER_MAGIC: u32 = 0x5372_6448;
const BOOT_FLAG: u16 = 0xaa55;
/// A loader without a number of its own.
const LOADER_UNDEFINED: u8 = 0xff;

pub(super) fn prepare(
    memory: &GuestMemory,
    entry: GuestAddress,
    kernel: &Kernel,
    initrd: Option<Initrd>,
    (map, rsdp): (&[Entry], GuestAddress),
    reset: kvm_sregs,
) -> Result<StartRegisters, BootError> {
    let mut information = boot_params::default();
    if let Some(header) = kernel.header {
        information.hdr = header;
    }
    information.hdr.header = HEADER_MAGIC;
    information.hdr.boot_flag = BOOT_FLAG;
    information.hdr.type_of_loader = LOADER_UNDEFINED;
    information.hdr.cmd_line_ptr = u32::try_from(layout::COMMAND_LINE.0).unwrap_or_default();
    if let Some(initrd) = initrd {
        // Low memory: both fit.
        information.hdr.ramdisk_image = u32::try_from(initrd.start.0).unwrap_or_default();
        information.hdr.ramdisk_size = u32::try_from(initrd.size).unwrap_or_default();
    }
    information.acpi_rsdp_addr = rsdp.0;
    for (range, slot) in map.iter().zip(&mut information.e820_table) {
        *slot = boot_e820_entry { addr: range.start, size: range.size, r#type: range.kind as u32 };
        information.e820_entries += 1;
    }
    memory.write_obj(information, layout::BOOT_INFORMATION)?;
    map_low_memory(memory)?;
    // Selectors 0x10 and 0x18: flat code of 64 bits, flat data.
    memory.write_obj([0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff_u64], layout::GDT)?;
    let mut sregs = flat_segments(reset, true);
    sregs.gdt.base = layout::GDT.0;
    sregs.gdt.limit = 4 * 8 - 1;
    sregs.cr3 = layout::PAGE_TABLES.0;
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LONG_MODE_ENABLED_AND_ACTIVE;
    sregs.cr0 = CR0_PROTECTION | CR0_EXTENSION_TYPE | CR0_PAGING;
    let regs = kvm_regs { rsi: layout::BOOT_INFORMATION.0, ..regs_at(entry) };
    Ok(StartRegisters { regs, sregs })
}

/// The first 4 GiB by pages of 2 MiB: one table of the top level, one below, four of large pages.
fn map_low_memory(memory: &GuestMemory) -> Result<(), BootError> {
    let table = |number: u64| layout::PAGE_TABLES.0 + number * PAGE;
    memory.write_obj(table(1) | PRESENT_AND_WRITABLE, GuestAddress(table(0)))?;
    for gigabyte in 0..4_u64 {
        let directory = table(2 + gigabyte);
        memory
            .write_obj(directory | PRESENT_AND_WRITABLE, GuestAddress(table(1) + gigabyte * 8))?;
        let pages: Vec<u8> = (gigabyte * 512..(gigabyte + 1) * 512)
            .flat_map(|page| (page << 21 | LARGE_PAGE | PRESENT_AND_WRITABLE).to_le_bytes())
            .collect();
        memory.write_slice(&pages, GuestAddress(directory))?;
    }
    Ok(())
}
