//! Loading the microguest and the registers it starts with.

use std::io::Cursor;

use corten_microguest::{ELF, Entry};
use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};
use linux_loader::cmdline::{Cmdline, Error as CommandLineError};
use linux_loader::loader::bootparam::boot_params;
use linux_loader::loader::elf::PvhBootCapability;
use linux_loader::loader::start_info::hvm_start_info;
use linux_loader::loader::{Elf, Error as LoaderError, KernelLoader, load_cmdline};
use thiserror::Error;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

const GDT: GuestAddress = GuestAddress(0x500);
const BOOT_INFORMATION: GuestAddress = GuestAddress(0x7000);
const PAGE_MAP: GuestAddress = GuestAddress(0x9000);
const DIRECTORY_POINTERS: GuestAddress = GuestAddress(0xa000);
const DIRECTORY: GuestAddress = GuestAddress(0xb000);
/// The zero page has 32 bits for it.
const COMMAND_LINE: u32 = 0x2_0000;
const COMMAND_LINE_LIMIT: usize = 2048;
const BELOW_IMAGE: GuestAddress = GuestAddress(corten_microguest::protocol::IMAGE_START);

const START_INFO_MAGIC: u32 = 0x336e_c578;
const HEADER_MAGIC: u32 = 0x5372_6448;

const CR0_PROTECTION: u64 = 1;
const CR0_EXTENSION_TYPE: u64 = 1 << 4;
const CR0_PAGING: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LONG_MODE_ENABLED_AND_ACTIVE: u64 = 1 << 8 | 1 << 10;
const RFLAGS_RESERVED: u64 = 2;

const PRESENT_AND_WRITABLE: u64 = 3;
const LARGE_PAGE: u64 = 1 << 7;

/// Why the guest could not be put into memory.
#[derive(Debug, Error)]
pub enum BootError {
    /// Not an ELF file that fits.
    #[error("cannot load the microguest")]
    Load(#[from] LoaderError),
    /// Too long, or not text of one line.
    #[error("the command line cannot be passed to a guest")]
    CommandLine(#[from] CommandLineError),
    /// The ELF file has no PVH note.
    #[error("the microguest has no PVH entry")]
    NoPvhEntry,
    /// Guest memory is too small.
    #[error("cannot write boot information")]
    Memory(#[from] GuestMemoryError),
}

/// Registers to start with.
#[derive(Debug)]
pub struct StartRegisters {
    /// General registers.
    pub regs: kvm_regs,
    /// Segments, control registers.
    pub sregs: kvm_sregs,
}

/// Puts the guest and its boot information into `memory`. `reset` is how KVM made the vCPU.
pub fn load(
    memory: &GuestMemoryMmap<()>,
    entry: Entry,
    command_line: &str,
    reset: kvm_sregs,
) -> Result<StartRegisters, BootError> {
    let loaded = Elf::load(memory, None, &mut Cursor::new(ELF), Some(BELOW_IMAGE))?;
    let mut text = Cmdline::new(COMMAND_LINE_LIMIT)?;
    text.insert_str(command_line)?;
    load_cmdline(memory, GuestAddress(COMMAND_LINE.into()), &text)?;
    match (entry, loaded.pvh_boot_cap) {
        (Entry::Pvh, PvhBootCapability::PvhEntryPresent(rip)) => pvh(memory, rip, reset),
        (Entry::Pvh, _) => Err(BootError::NoPvhEntry),
        (Entry::Linux64, _) => linux64(memory, loaded.kernel_load, reset),
    }
}

/// xen/include/public/arch-x86/hvm/start_info.h: protected mode, flat segments, paging off, EBX = start_info.
fn pvh(
    memory: &GuestMemoryMmap<()>,
    rip: GuestAddress,
    reset: kvm_sregs,
) -> Result<StartRegisters, BootError> {
    let information = hvm_start_info {
        magic: START_INFO_MAGIC,
        version: 1,
        cmdline_paddr: COMMAND_LINE.into(),
        ..Default::default()
    };
    memory.write_obj(information, BOOT_INFORMATION)?;
    let mut sregs = with_segments(reset, kvm_segment { db: 1, ..code_segment() });
    sregs.cr0 = CR0_PROTECTION | CR0_EXTENSION_TYPE;
    sregs.cr4 = 0;
    sregs.efer = 0;
    let rbx = BOOT_INFORMATION.raw_value();
    Ok(StartRegisters { regs: kvm_regs { rbx, ..regs_at(rip) }, sregs })
}

/// Documentation/arch/x86/boot.rst, 64-bit boot protocol: long mode, memory mapped onto itself, RSI = boot_params.
fn linux64(
    memory: &GuestMemoryMmap<()>,
    rip: GuestAddress,
    reset: kvm_sregs,
) -> Result<StartRegisters, BootError> {
    let mut information = boot_params::default();
    information.hdr.header = HEADER_MAGIC;
    information.hdr.cmd_line_ptr = COMMAND_LINE;
    memory.write_obj(information, BOOT_INFORMATION)?;
    map_first_gibibyte(memory)?;
    // The protocol wants these two in the GDT as selectors 0x10 and 0x18.
    memory.write_obj([0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff_u64], GDT)?;
    let mut sregs = with_segments(reset, kvm_segment { l: 1, ..code_segment() });
    sregs.gdt.base = GDT.raw_value();
    sregs.gdt.limit = 4 * 8 - 1;
    sregs.cr3 = PAGE_MAP.raw_value();
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LONG_MODE_ENABLED_AND_ACTIVE;
    sregs.cr0 = CR0_PROTECTION | CR0_EXTENSION_TYPE | CR0_PAGING;
    let rsi = BOOT_INFORMATION.raw_value();
    Ok(StartRegisters { regs: kvm_regs { rsi, ..regs_at(rip) }, sregs })
}

fn map_first_gibibyte(memory: &GuestMemoryMmap<()>) -> Result<(), BootError> {
    let table = |address: GuestAddress| address.raw_value() | PRESENT_AND_WRITABLE;
    memory.write_obj(table(DIRECTORY_POINTERS), PAGE_MAP)?;
    memory.write_obj(table(DIRECTORY), DIRECTORY_POINTERS)?;
    for page in 0..512 {
        let entry = page << 21 | LARGE_PAGE | PRESENT_AND_WRITABLE;
        memory.write_obj(entry, DIRECTORY.unchecked_add(page * 8))?;
    }
    Ok(())
}

fn regs_at(rip: GuestAddress) -> kvm_regs {
    kvm_regs { rip: rip.raw_value(), rflags: RFLAGS_RESERVED, ..Default::default() }
}

fn code_segment() -> kvm_segment {
    kvm_segment {
        selector: 0x10,
        limit: u32::MAX,
        type_: 0xb,
        present: 1,
        s: 1,
        g: 1,
        ..Default::default()
    }
}

fn with_segments(mut sregs: kvm_sregs, code: kvm_segment) -> kvm_sregs {
    let data = kvm_segment { selector: 0x18, type_: 3, db: 1, l: 0, ..code };
    sregs.cs = code;
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    // Hardware refuses to enter a guest without a busy task state segment.
    sregs.tr = kvm_segment { limit: 0x67, type_: 0xb, present: 1, ..Default::default() };
    sregs
}
