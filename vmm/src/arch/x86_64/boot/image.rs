//! Kernel images: what kind one is, and getting it into memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use linux_loader::loader::bootparam::setup_header;
use linux_loader::loader::elf::PvhBootCapability;
use linux_loader::loader::{BzImage, Elf, Error as LoaderError, KernelLoader};
use thiserror::Error;
use vm_memory::GuestAddress;

use super::low_memory_end;
use crate::arch::x86_64::layout;
use crate::ram::GuestMemory;

/// Offset of the 64-bit entry in the loaded kernel (Documentation/arch/x86/boot.rst).
const LONG_MODE_ENTRY: u64 = 0x200;
/// Bit of xloadflags: the kernel has a 64-bit entry.
const HAS_LONG_MODE_ENTRY: u16 = 1;
const EM_X86_64: u16 = 62;
/// What a kernel of the boot protocol takes at least; Linux takes 2048 since long ago.
const COMMAND_LINE_LIMIT: usize = 2047;

/// Why a file is not booted.
#[derive(Debug, Error)]
pub enum ImageError {
    /// It cannot be read.
    #[error("cannot read it")]
    Read(#[from] io::Error),
    /// Nothing in it.
    #[error("the file is empty")]
    Empty,
    /// Something else.
    #[error("it is {0}, not an ELF kernel (vmlinux) or a bzImage for x86_64")]
    NotAKernel(&'static str),
    /// A kernel for another processor.
    #[error("it is a kernel for {0}; this machine is x86_64")]
    Architecture(String),
    /// It starts as a kernel and does not go on as one.
    #[error("it is damaged: {0}")]
    Damaged(LoaderError),
    /// It would not fit.
    #[error(
        "it needs {} MiB of guest memory, and there are {} MiB: give the guest more",
        mebibytes(*.needed),
        .available >> 20
    )]
    TooLarge {
        /// Its end.
        needed: u64,
        /// The end of low memory.
        available: u64,
    },
    /// It did not fit, and nobody knows how much would do.
    #[error(
        "it does not fit in {} MiB of guest memory: give the guest more; {} MiB are enough for most",
        .available >> 20,
        MANY_KERNELS_FIT >> 20
    )]
    NoRoom {
        /// The end of low memory.
        available: u64,
    },
}

/// How many of them hold so many bytes.
pub(super) fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Where and how a kernel is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// 32 bits, paging off.
    Pvh(GuestAddress),
    /// 64 bits, paging on.
    Long(GuestAddress),
}

/// A kernel in guest memory.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) entry: Entry,
    /// Behind all it needs before it knows its own memory.
    pub(super) end: GuestAddress,
    pub(super) header: Option<setup_header>,
}

impl Kernel {
    pub(super) fn load(memory: &GuestMemory, file: &mut File) -> Result<Self, ImageError> {
        let mut head = [0; 1024];
        let length = read_head(file, &mut head)?;
        match &head[..length] {
            [] => Err(ImageError::Empty),
            [0x7f, b'E', b'L', b'F', rest @ ..] => {
                check_elf(rest)?;
                Self::load_elf(memory, file)
            }
            head if head.get(0x202..0x206) == Some(b"HdrS") => Self::load_bzimage(memory, file),
            head => Err(ImageError::NotAKernel(kind_of(head))),
        }
    }

    fn load_elf(memory: &GuestMemory, file: &mut File) -> Result<Self, ImageError> {
        let loaded = Elf::load(memory, None, file, Some(layout::KERNEL));
        let loaded = loaded.map_err(|error| too_large_or_damaged(error, memory))?;
        let entry = match loaded.pvh_boot_cap {
            PvhBootCapability::PvhEntryPresent(entry) => Entry::Pvh(entry),
            _ => Entry::Long(loaded.kernel_load),
        };
        Ok(Self { entry, end: GuestAddress(loaded.kernel_end), header: None })
    }

    fn load_bzimage(memory: &GuestMemory, file: &mut File) -> Result<Self, ImageError> {
        let loaded = BzImage::load(memory, None, file, Some(layout::KERNEL));
        let loaded = loaded.map_err(|error| too_large_or_damaged(error, memory))?;
        let header = loaded.setup_header.unwrap_or_default();
        if header.xloadflags & HAS_LONG_MODE_ENTRY == 0 {
            return Err(ImageError::Architecture("32-bit x86".into()));
        }
        let start = loaded.kernel_load.0;
        // A kernel that may not be moved unpacks itself to its preferred address.
        let unpacked = if header.relocatable_kernel == 0 { header.pref_address } else { start };
        let needed =
            unpacked.max(start).saturating_add(u64::from(header.init_size)).max(loaded.kernel_end);
        let available = low_memory_end(memory);
        if needed > available {
            return Err(ImageError::TooLarge { needed, available });
        }
        let entry = Entry::Long(GuestAddress(start + LONG_MODE_ENTRY));
        Ok(Self { entry, end: GuestAddress(needed), header: Some(header) })
    }

    /// Longest command line it takes.
    pub(super) fn command_line_limit(&self) -> usize {
        let said = self.header.map_or(0, |header| header.cmdline_size);
        usize::try_from(said).unwrap_or(0).max(COMMAND_LINE_LIMIT)
    }

    /// Address that no byte of the initrd may reach.
    pub(super) fn initrd_limit(&self) -> u64 {
        let said = self.header.map_or(0, |header| header.initrd_addr_max);
        if said == 0 { layout::LOW_RAM_END.0 } else { u64::from(said) + 1 }
    }
}

fn read_head(file: &mut File, head: &mut [u8]) -> io::Result<usize> {
    file.seek(SeekFrom::Start(0))?;
    let mut length = 0;
    while length < head.len() {
        match file.read(&mut head[length..])? {
            0 => break,
            read => length += read,
        }
    }
    file.rewind()?;
    Ok(length)
}

/// `rest` follows the magic number.
fn check_elf(rest: &[u8]) -> Result<(), ImageError> {
    const CLASS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    let machine = rest.get(14..16).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    match (rest.first(), rest.get(1), machine) {
        (Some(&CLASS_64), Some(&LITTLE_ENDIAN), EM_X86_64) => Ok(()),
        (_, _, 3) => Err(ImageError::Architecture("32-bit x86".into())),
        (_, _, 183) => Err(ImageError::Architecture("arm64".into())),
        (_, _, 243) => Err(ImageError::Architecture("RISC-V".into())),
        (_, _, other) => Err(ImageError::Architecture(format!("ELF machine {other}"))),
    }
}

/// A guess at what a file is, to help whoever gave the wrong one.
fn kind_of(head: &[u8]) -> &'static str {
    const KINDS: [(usize, &[u8], &str); 12] = [
        (0x38, b"ARM\x64", "an arm64 kernel image"),
        (0x38, b"RSC\x05", "a RISC-V kernel image"),
        (0, b"\x1f\x8b", "a gzip file"),
        (0, b"\xfd7zXZ", "an xz file"),
        (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
        (0, b"\x02\x21\x4c\x18", "an lz4 file"),
        (0, b"070701", "an initramfs (cpio)"),
        (0, b"QFI\xfb", "a qcow2 disk image"),
        (0, b"#!", "a script"),
        (0, b"MZ", "a program for UEFI or Windows"),
        (0x1fe, b"\x55\xaa", "a disk image"),
        (0, b"", "of no kind that is known here"),
    ];
    let matches =
        |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    KINDS.iter().find(|(at, magic, _)| matches(*at, magic)).map_or("nothing", |(_, _, kind)| kind)
}

/// The loader says of a kernel that does not fit only that it could not be read into memory.
fn too_large_or_damaged(error: LoaderError, memory: &GuestMemory) -> ImageError {
    use linux_loader::loader::{bzimage, elf};
    let available = low_memory_end(memory);
    match error {
        LoaderError::Elf(elf::Error::ReadKernelImage)
        | LoaderError::Bzimage(bzimage::Error::ReadBzImageCompressedKernel)
            if available < MANY_KERNELS_FIT =>
        {
            ImageError::NoRoom { available }
        }
        other => ImageError::Damaged(other),
    }
}

/// Guest memory in which no kernel we have met lacks room.
const MANY_KERNELS_FIT: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::ram::{Ram, slots};

    fn load(bytes: &[u8]) -> Result<Kernel, ImageError> {
        let ram =
            Ram::new(&slots(16 << 20, layout::LOW_RAM_END, layout::HIGH_RAM).unwrap()).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Kernel::load(ram.memory(), &mut file)
    }

    fn refusal(bytes: &[u8]) -> String {
        load(bytes).unwrap_err().to_string()
    }

    fn elf(machine: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(18, 0);
        bytes.extend(machine.to_le_bytes());
        bytes.resize(2048, 0);
        bytes
    }

    #[test]
    fn files_that_are_no_kernels_are_called_by_their_name() {
        assert_eq!(refusal(b""), "the file is empty");
        for (bytes, kind) in [
            (&b"\x1f\x8b\x08rest"[..], "a gzip file"),
            (b"070701000", "an initramfs"),
            (b"QFI\xfb", "a qcow2 disk image"),
            (b"hello", "no kind that is known"),
            (b"MZ\x90", "a program for UEFI"),
        ] {
            assert!(refusal(bytes).contains(kind), "{}", refusal(bytes));
        }
    }

    #[test]
    fn kernels_for_other_processors_are_called_by_theirs() {
        assert!(refusal(&elf(183)).contains("a kernel for arm64"));
        assert!(refusal(&elf(3)).contains("a kernel for 32-bit x86"));
        assert!(refusal(&elf(8)).contains("ELF machine 8"));
        let mut arm = vec![0; 4096];
        arm[0x38..0x3c].copy_from_slice(b"ARM\x64");
        assert!(refusal(&arm).contains("an arm64 kernel image"));
    }

    #[test]
    fn kernel_without_room_says_how_much_it_takes() {
        let error = ImageError::TooLarge { needed: 0x38e_e000, available: 48 << 20 };
        assert_eq!(
            error.to_string(),
            "it needs 57 MiB of guest memory, and there are 48 MiB: give the guest more"
        );
    }

    #[test]
    fn cut_kernels_are_damaged_not_a_panic() {
        assert!(matches!(load(&elf(EM_X86_64)), Err(ImageError::Damaged(_))));
        let mut cut = vec![0; 0x206];
        cut[0x202..].copy_from_slice(b"HdrS");
        assert!(load(&cut).is_err());
    }
}
