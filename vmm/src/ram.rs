//! Guest memory: one memfd, mapped for us and handed to KVM in one or two slots.
//!
//! A memfd and not anonymous memory, so that a successor process on the same node can map the very same pages. Mappings
//! start at a multiple of 2 MiB, or the kernel could never back them with huge pages. They stay for the life of the
//! process: it has one guest, whose devices may hold on to its memory for as long as they like.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::Arc;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use vm_memory::bitmap::{AtomicBitmap, NewBitmap};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionCollectionError, GuestRegionMmap,
    mmap::MmapRegionError,
};

/// Guest memory as devices see it. Writes are marked, for whoever has to copy a running guest.
pub type GuestMemory = GuestMemoryMmap<AtomicBitmap>;

const PAGE: u64 = 4096;
/// What stat(2) counts in.
const BLOCK: u64 = 512;
const HUGE_PAGE: usize = 2 << 20;

/// One range of guest memory without a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// First guest address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
}

/// Why there is no guest memory.
#[derive(Debug, Error)]
pub enum RamError {
    /// A size that is no memory.
    #[error("{0} bytes are no guest memory: it is whole pages, at least one")]
    Size(u64),
    /// More than this process can map.
    #[error("{0} bytes are more than can be mapped")]
    TooLarge(u64),
    /// A system call on the memfd or its mapping failed.
    #[error("cannot {what} guest memory")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The memfd is not the one for these slots.
    #[error("the memfd has {found} bytes, the machine {expected}")]
    Mismatch {
        /// Its size.
        found: u64,
        /// What the slots add up to.
        expected: u64,
    },
    /// The mapping was refused.
    #[error("cannot describe guest memory")]
    Region(#[from] MmapRegionError),
    /// The slots do not fit together.
    #[error("slots of guest memory do not fit together")]
    Collection(#[from] GuestRegionCollectionError),
}

/// The slots for `size` bytes: what does not fit below `low_end` continues at `high_start`.
pub fn slots(
    size: u64,
    low_end: GuestAddress,
    high_start: GuestAddress,
) -> Result<Vec<Slot>, RamError> {
    if size == 0 || !size.is_multiple_of(PAGE) {
        return Err(RamError::Size(size));
    }
    high_start.0.checked_add(size).ok_or(RamError::TooLarge(size))?;
    let low = Slot { start: 0, size: size.min(low_end.0) };
    let high = Slot { start: high_start.0, size: size - low.size };
    Ok([low, high].into_iter().filter(|slot| slot.size > 0).collect())
}

/// All memory of one guest.
#[derive(Debug)]
pub struct Ram {
    memory: Arc<GuestMemory>,
    mappings: Vec<Mapping>,
    slots: Vec<Slot>,
    file: File,
}

impl Ram {
    /// New memory, all zero.
    pub fn new(slots: &[Slot]) -> Result<Self, RamError> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create("guest", flags).map_err(system("create"))?);
        let size = total(slots);
        file.set_len(size).map_err(|source| RamError::System { what: "size", source })?;
        Self::map(file, slots)
    }

    /// Memory that another process made.
    pub fn map(file: File, slots: &[Slot]) -> Result<Self, RamError> {
        let metadata = file.metadata();
        let found = metadata.map_err(|source| RamError::System { what: "measure", source })?.len();
        let expected = total(slots);
        if found != expected {
            return Err(RamError::Mismatch { found, expected });
        }
        let mut offset = 0;
        let (mut regions, mut mappings) = (Vec::new(), Vec::new());
        for slot in slots {
            let mapping = Mapping::new(&file, offset, slot.size)?;
            regions.push(region(&mapping, &file, offset, *slot)?);
            mappings.push(mapping);
            offset += slot.size;
        }
        let memory = Arc::new(GuestMemory::from_regions(regions)?);
        Ok(Self { memory, mappings, slots: slots.to_vec(), file })
    }

    /// For reading and writing.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Each slot with the address it is mapped at in this process.
    pub fn mapped_slots(&self) -> impl Iterator<Item = (Slot, u64)> {
        self.slots.iter().copied().zip(self.mappings.iter().map(Mapping::address))
    }

    /// The memfd, for a successor.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes of it that take room on the host.
    pub fn allocated(&self) -> Result<u64, RamError> {
        let metadata = self.file.metadata();
        let blocks = metadata.map_err(|source| RamError::System { what: "measure", source })?;
        Ok(blocks.blocks() * BLOCK)
    }

    /// Gives every page back: all memory is zero again.
    pub fn empty(&self) -> Result<(), RamError> {
        let size = i64::try_from(total(&self.slots))
            .map_err(|_| RamError::TooLarge(total(&self.slots)))?;
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&self.file, punch, 0, size).map_err(system("empty"))
    }
}

fn total(slots: &[Slot]) -> u64 {
    slots.iter().map(|slot| slot.size).sum()
}

fn region(
    mapping: &Mapping,
    file: &File,
    offset: u64,
    slot: Slot,
) -> Result<GuestRegionMmap<AtomicBitmap>, RamError> {
    let file = file.try_clone().map_err(|source| RamError::System { what: "share", source })?;
    let builder =
        MmapRegionBuilder::new_with_bitmap(mapping.size, AtomicBitmap::with_len(mapping.size))
            .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
            .with_mmap_flags(libc::MAP_SHARED)
            .with_file_offset(FileOffset::new(file, offset));
    // SAFETY: the pointer and the size are those of a mapping that is never undone.
    let builder = unsafe { builder.with_raw_mmap_pointer(mapping.start.as_ptr().cast()) };
    GuestRegionMmap::new(builder.build()?, GuestAddress(slot.start))
        .ok_or(RamError::TooLarge(slot.size))
}

fn system(what: &'static str) -> impl Fn(nix::errno::Errno) -> RamError {
    move |source| RamError::System { what, source: source.into() }
}

/// A shared mapping that starts at a multiple of [`HUGE_PAGE`] and is never undone.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: NonNull<c_void>,
    size: usize,
}

// SAFETY: it is only an address range; who reads and writes there goes through vm-memory's volatile accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, offset: u64, size: u64) -> Result<Self, RamError> {
        let too_large = || RamError::TooLarge(size);
        let size = usize::try_from(size).map_err(|_| too_large())?;
        let reserved =
            size.checked_add(HUGE_PAGE).and_then(NonZeroUsize::new).ok_or_else(too_large)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let area = unsafe { mmap_anonymous(None, reserved, ProtFlags::PROT_NONE, flags) }
            .map_err(system("reserve addresses for"))?;
        let first = area.addr();
        let aligned = first.get().next_multiple_of(HUGE_PAGE);
        let before = aligned - first.get();
        let at = NonZeroUsize::new(aligned).ok_or_else(too_large)?;
        let length = NonZeroUsize::new(size).ok_or(RamError::Size(0))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let fixed = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED | MapFlags::MAP_NORESERVE;
        let offset = i64::try_from(offset).map_err(|_| too_large())?;
        // SAFETY: the range lies inside the area that was just reserved and that nobody else knows.
        let start = unsafe { mmap(Some(at), length, access, fixed, file, offset) };
        let after = HUGE_PAGE - before;
        if before > 0 {
            // SAFETY: the part of the reservation before the mapping; nothing is there.
            let _ = unsafe { munmap(area, before) };
        }
        if let Some(rest) =
            NonNull::new(area.as_ptr().wrapping_byte_add(before + size)).filter(|_| after > 0)
        {
            // SAFETY: the part of the reservation behind the mapping; nothing is there.
            let _ = unsafe { munmap(rest, after) };
        }
        let start = start.map_err(system("map"))?;
        // Where the host lets files in memory have huge pages on advice, a guest that boots takes a fiftieth of the
        // faults. Where it does not, nothing changes.
        // SAFETY: the range is the mapping just made; the advice changes none of its content.
        let _ = unsafe { madvise(start, size, MmapAdvise::MADV_HUGEPAGE) };
        Ok(Self { start, size })
    }

    fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes, GuestMemoryBackend};

    use super::*;

    const LOW_END: GuestAddress = GuestAddress(0xc000_0000);
    const HIGH: GuestAddress = GuestAddress(0x1_0000_0000);

    #[test]
    fn memory_over_3_gib_continues_above_4_gib() {
        let slot = |start, size| Slot { start, size };
        assert_eq!(slots(1 << 20, LOW_END, HIGH).unwrap(), [slot(0, 1 << 20)]);
        assert_eq!(slots(3 << 30, LOW_END, HIGH).unwrap(), [slot(0, 3 << 30)]);
        let two = [slot(0, 3 << 30), slot(4 << 30, 1 << 30)];
        assert_eq!(slots(4 << 30, LOW_END, HIGH).unwrap(), two);
    }

    #[test]
    fn sizes_that_are_no_memory_are_refused() {
        for size in [0, 1, 4095, 4097] {
            assert!(matches!(slots(size, LOW_END, HIGH), Err(RamError::Size(_))), "{size}");
        }
        let huge = u64::MAX - 4095;
        assert!(matches!(slots(huge, LOW_END, HIGH), Err(RamError::TooLarge(_))));
    }

    #[test]
    fn every_slot_is_aligned_to_huge_pages_and_reaches_its_end() {
        let ram = Ram::new(&slots(5 << 30, LOW_END, HIGH).unwrap()).unwrap();
        for (slot, address) in ram.mapped_slots() {
            assert_eq!(address % (2 << 20), 0, "{slot:?}");
            ram.memory().write_obj(7_u8, GuestAddress(slot.start + slot.size - 1)).unwrap();
            assert!(ram.memory().write_obj(7_u8, GuestAddress(slot.start + slot.size)).is_err());
        }
        assert_eq!(ram.memory().num_regions(), 2);
    }

    #[test]
    fn mapped_again_it_is_the_same_memory_and_emptied_it_is_zero() {
        let slots = slots(8 << 20, LOW_END, HIGH).unwrap();
        let ram = Ram::new(&slots).unwrap();
        let again = Ram::map(ram.file().try_clone().unwrap(), &slots).unwrap();
        let address = GuestAddress(0x12_3456);
        ram.memory().write_obj(0x1234_u16, address).unwrap();
        assert_eq!(again.memory().read_obj::<u16>(address).unwrap(), 0x1234);
        ram.empty().unwrap();
        assert_eq!(again.memory().read_obj::<u16>(address).unwrap(), 0);
    }

    #[test]
    fn memfd_of_another_size_is_refused() {
        let ram = Ram::new(&slots(1 << 20, LOW_END, HIGH).unwrap()).unwrap();
        let other = slots(2 << 20, LOW_END, HIGH).unwrap();
        let error = Ram::map(ram.file().try_clone().unwrap(), &other).unwrap_err();
        assert!(matches!(error, RamError::Mismatch { .. }));
    }
}
