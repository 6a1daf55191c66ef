//! The PVH entry: 32-bit protected mode, paging off, EBX = start_info (Xen's public/arch-x86/hvm/start_info.h).

use kvm_bindings::{kvm_regs, kvm_sregs};
use linux_loader::loader::start_info::{hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info};
use vm_memory::{Bytes, GuestAddress};

use super::memory_map::Entry;
use super::registers::{CR0_EXTENSION_TYPE, CR0_PROTECTION, flat_segments, regs_at};
use super::{BootError, Initrd, StartRegisters};
use crate::arch::x86_64::layout;
use crate::ram::GuestMemory;

const MAGIC: u32 = 0x336e_c578;

pub(super) fn prepare(
    memory: &GuestMemory,
    entry: GuestAddress,
    initrd: Option<Initrd>,
    (map, rsdp): (&[Entry], GuestAddress),
    reset: kvm_sregs,
) -> Result<StartRegisters, BootError> {
    let modules = layout::PVH_TABLES;
    let map_start = GuestAddress(modules.0 + size_of::<hvm_modlist_entry>() as u64);
    let mut information = hvm_start_info {
        magic: MAGIC,
        version: 1,
        cmdline_paddr: layout::COMMAND_LINE.0,
        rsdp_paddr: rsdp.0,
        memmap_paddr: map_start.0,
        memmap_entries: u32::try_from(map.len()).unwrap_or(0),
        ..Default::default()
    };
    if let Some(initrd) = initrd {
        let module =
            hvm_modlist_entry { paddr: initrd.start.0, size: initrd.size, ..Default::default() };
        memory.write_obj(module, modules)?;
        information.nr_modules = 1;
        information.modlist_paddr = modules.0;
    }
    let mut at = map_start;
    for range in map {
        let entry = hvm_memmap_table_entry {
            addr: range.start,
            size: range.size,
            type_: range.kind as u32,
            reserved: 0,
        };
        memory.write_obj(entry, at)?;
        at.0 += size_of::<hvm_memmap_table_entry>() as u64;
    }
    memory.write_obj(information, layout::BOOT_INFORMATION)?;
    let mut sregs = flat_segments(reset, false);
    sregs.cr0 = CR0_PROTECTION | CR0_EXTENSION_TYPE;
    sregs.cr4 = 0;
    sregs.efer = 0;
    let regs = kvm_regs { rbx: layout::BOOT_INFORMATION.0, ..regs_at(entry) };
    Ok(StartRegisters { regs, sregs })
}
