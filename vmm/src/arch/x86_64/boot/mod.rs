//! From a kernel image to a vCPU that is about to execute its first instruction.
//!
//! An ELF kernel with a PVH note is entered there, one without at its entry; a bzImage at its 64-bit entry. There is no
//! firmware: what it would have told the kernel is written into memory. Where there is nothing to boot, a few instructions of
//! our own say so (`notice`).

mod image;
mod linux;
mod memory_map;
mod notice;
mod pvh;
mod registers;

use std::fs::File;
use std::io::{Seek, SeekFrom};

use corten_link::BootFault;
use kvm_bindings::{kvm_regs, kvm_sregs};
use thiserror::Error;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryError, GuestMemoryRegion};

use super::layout;
use crate::ram::GuestMemory;

pub use image::ImageError;
use image::{Entry, Kernel, mebibytes};
pub use notice::notice;

/// What is booted. The descriptors are read anew at each boot.
#[derive(Debug)]
pub struct BootSource {
    /// ELF or bzImage.
    pub kernel: File,
    /// Initial RAM disk.
    pub initrd: Option<File>,
    /// Kernel command line.
    pub command_line: String,
}

/// What the boot processor starts with.
#[derive(Clone, Copy, Debug)]
pub struct StartRegisters {
    /// General registers.
    pub regs: kvm_regs,
    /// Segments and control registers, to be put over those after reset.
    pub sregs: kvm_sregs,
}

/// Why nothing can be booted.
#[derive(Debug, Error)]
pub enum BootError {
    /// The kernel.
    #[error("cannot load the kernel")]
    Kernel(#[from] ImageError),
    /// The initrd cannot be read.
    #[error("cannot read the initrd")]
    ReadInitrd(#[source] std::io::Error),
    /// The initrd is too large.
    #[error(
        "the initrd of {} MiB does not fit into the {} MiB of guest memory beside the kernel: give the guest more",
        mebibytes(*.size),
        .room >> 20
    )]
    InitrdSize {
        /// Its size.
        size: u64,
        /// What is left for it.
        room: u64,
    },
    /// The command line is too long for the guest.
    #[error("the command line has {length} bytes, the kernel takes {limit}")]
    CommandLineLength {
        /// Its length.
        length: usize,
        /// What the kernel takes.
        limit: usize,
    },
    /// The command line has a byte that ends it.
    #[error("the command line has a NUL byte")]
    CommandLineNul,
    /// Guest memory is too small for what is written before the kernel.
    #[error("guest memory is too small to boot anything")]
    Memory(#[from] GuestMemoryError),
}

impl BootError {
    /// What is at fault: a kernel that does not fit is in order, and guest memory is not.
    pub fn fault(&self) -> BootFault {
        match self {
            Self::Kernel(ImageError::TooLarge { .. } | ImageError::NoRoom { .. }) => {
                BootFault::Memory
            }
            Self::InitrdSize { .. } | Self::Memory(_) => BootFault::Memory,
            Self::Kernel(_) => BootFault::Kernel,
            Self::ReadInitrd(_) => BootFault::Initrd,
            Self::CommandLineLength { .. } | Self::CommandLineNul => BootFault::CommandLine,
        }
    }
}

/// Initial RAM disk in guest memory.
#[derive(Clone, Copy, Debug)]
struct Initrd {
    start: GuestAddress,
    size: u64,
}

/// Loads kernel, initrd and command line; `rsdp` is where the ACPI tables start.
pub fn load(
    memory: &GuestMemory,
    source: &mut BootSource,
    rsdp: GuestAddress,
    reset: kvm_sregs,
) -> Result<StartRegisters, BootError> {
    let kernel = Kernel::load(memory, &mut source.kernel)?;
    let initrd = match &mut source.initrd {
        Some(file) => Some(load_initrd(memory, file, &kernel)?),
        None => None,
    };
    write_command_line(memory, &source.command_line, kernel.command_line_limit())?;
    let map = memory_map::entries(memory);
    match kernel.entry {
        Entry::Pvh(entry) => pvh::prepare(memory, entry, initrd, (&map, rsdp), reset),
        Entry::Long(entry) => linux::prepare(memory, entry, &kernel, initrd, (&map, rsdp), reset),
    }
}

/// As high as the kernel allows, out of the way of what it unpacks.
fn load_initrd(
    memory: &GuestMemory,
    file: &mut File,
    kernel: &Kernel,
) -> Result<Initrd, BootError> {
    const PAGE: u64 = 4096;
    let size = file.seek(SeekFrom::End(0)).map_err(BootError::ReadInitrd)?;
    file.rewind().map_err(BootError::ReadInitrd)?;
    let low_end = low_memory_end(memory).min(kernel.initrd_limit());
    let room = low_end.saturating_sub(kernel.end.0);
    let start = low_end.checked_sub(size).map(|start| start / PAGE * PAGE);
    match start {
        Some(start) if start >= kernel.end.0 => {
            let start = GuestAddress(start);
            let length = usize::try_from(size).map_err(|_| BootError::InitrdSize { size, room })?;
            memory.read_exact_volatile_from(start, file, length)?;
            Ok(Initrd { start, size })
        }
        _ => Err(BootError::InitrdSize { size, room }),
    }
}

fn low_memory_end(memory: &GuestMemory) -> u64 {
    let first = memory.iter().next();
    first.map_or(0, |region| region.start_addr().0 + region.len())
}

fn write_command_line(memory: &GuestMemory, text: &str, limit: usize) -> Result<(), BootError> {
    let limit = limit.min(layout::COMMAND_LINE_SIZE - 1);
    if text.len() > limit {
        return Err(BootError::CommandLineLength { length: text.len(), limit });
    }
    if text.contains('\0') {
        return Err(BootError::CommandLineNul);
    }
    memory.write_slice(text.as_bytes(), layout::COMMAND_LINE)?;
    memory.write_obj(0_u8, GuestAddress(layout::COMMAND_LINE.0 + text.len() as u64))?;
    Ok(())
}
