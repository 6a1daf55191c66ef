//! Guest memory: one memfd, mapped for us and handed to KVM in one or two slots.
//!
//! A memfd and not anonymous memory, so that a successor process on the same node can map the very same pages. Mappings
//! start at a multiple of 2 MiB, or the kernel could never back them with huge pages. They stay for the life of the
//! process: it has one guest, whose devices may hold on to its memory for as long as they like.
//!
//! Where it is wanted, a thread of its own, `collapse`, makes huge pages of small ones.
//!
//! The memory of a restored guest is filled in from a [`PageSource`]: by a thread, `pager`, while the guest runs, or at once.

mod collapse;
mod pager;
mod source;
mod userfault;

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corten_devices::virtio::GuestRam;
use corten_link::{FillCounters, FillWork};
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

use collapse::Collapser;
use pager::Pager;
pub use pager::{PagerError, Report};
pub use source::{CHUNK, CHUNK_BYTES, PageSource, Present, SourceError, next_data, next_hole};

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
    /// What a restored guest had in it.
    #[error(transparent)]
    Pager(#[from] PagerError),
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
    /// Fills it in, until it is emptied.
    pager: Mutex<Option<Pager>>,
    /// Not all of it is there yet.
    filling: Arc<AtomicBool>,
    /// Held while a device makes holes, and while huge pages are made of what has none.
    holes: Arc<Mutex<()>>,
    /// What it took to fill it in, if there is no pager.
    filled: Mutex<FillWork>,
    /// Makes huge pages of it, if that is wanted.
    collapser: Mutex<Option<Collapser>>,
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
        Ok(Self {
            memory,
            mappings,
            slots: slots.to_vec(),
            file,
            pager: Mutex::default(),
            filling: Arc::default(),
            holes: Arc::default(),
            filled: Mutex::default(),
            collapser: Mutex::default(),
        })
    }

    /// Makes huge pages of it from now on, in the background, where all of one is in use.
    pub fn collapse(&self) -> Result<(), RamError> {
        let file = self.file.try_clone();
        let file = file.map_err(|source| RamError::System { what: "share", source })?;
        let collapser = Collapser::start(&self.mappings, file, &self.filling, &self.holes);
        let collapser =
            collapser.map_err(|source| RamError::System { what: "make huge pages of", source })?;
        *self.collapser.lock().unwrap_or_else(PoisonError::into_inner) = Some(collapser);
        Ok(())
    }

    /// How much of it was in huge pages that were made of small ones, when it was last looked at.
    pub fn huge_bytes(&self) -> u64 {
        let collapser = self.collapser.lock().unwrap_or_else(PoisonError::into_inner);
        collapser.as_ref().map_or(0, Collapser::huge_bytes)
    }

    /// Has `source` fill it in, which is new: page by page when they are wanted if `device`, an open /dev/userfaultfd, is
    /// given, otherwise all of it before this returns. To be called before any vCPU has a state: setting that touches guest
    /// memory. `report` is told if a page cannot be had later on.
    pub fn fill(
        &self,
        mut source: Box<dyn PageSource>,
        device: Option<&OwnedFd>,
        report: Report,
    ) -> Result<(), RamError> {
        match device {
            Some(device) => {
                let (device, filling) = (device.as_fd(), &self.filling);
                let pager = Pager::start(device, &self.mappings, source, filling, report)?;
                *self.pager() = Some(pager);
                Ok(())
            }
            None => self.fill_at_once(&mut *source),
        }
    }

    fn fill_at_once(&self, source: &mut dyn PageSource) -> Result<(), RamError> {
        let size = total(&self.slots);
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut pages = 0;
        for number in 0..size.div_ceil(CHUNK) {
            let start = number * CHUNK;
            let length = usize::try_from((size - start).min(CHUNK)).unwrap_or_default();
            let bytes = &mut buffer[..length];
            let present = source.chunk(number, bytes).map_err(PagerError::Source)?;
            for run in present.runs().map(|run| run.start..run.end.min(length)) {
                let written = self.file.write_all_at(&bytes[run.clone()], start + run.start as u64);
                written.map_err(|source| RamError::System { what: "fill in", source })?;
            }
            pages += present.count();
        }
        let work = FillWork { pages, bytes_read: source.bytes_read(), ..FillWork::default() };
        *self.filled.lock().unwrap_or_else(PoisonError::into_inner) = work;
        Ok(())
    }

    fn pager(&self) -> MutexGuard<'_, Option<Pager>> {
        self.pager.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_pager(
        &self,
        ask: impl FnOnce(&Pager) -> Result<(), PagerError>,
    ) -> Result<(), RamError> {
        Ok(self.pager().as_ref().map_or(Ok(()), ask)?)
    }

    /// The guest is about to run: whatever is not there yet is filled in from now on. Fails if something cannot be.
    pub fn begin_filling(&self) -> Result<(), RamError> {
        self.ask_pager(Pager::begin)
    }

    /// Waits until all of it is there. Otherwise a copy would lack something.
    pub fn finish_filling(&self, limit: Duration) -> Result<(), RamError> {
        self.ask_pager(|pager| pager.finish(limit))
    }

    /// Waits until what is at this address is there, so that who touches it does not wait.
    pub fn bring_in(&self, address: GuestAddress, limit: Duration) -> Result<(), RamError> {
        let mut before = 0;
        for slot in &self.slots {
            let at = address.0.checked_sub(slot.start).filter(|at| *at < slot.size);
            if let Some(at) = at {
                return self.ask_pager(|pager| pager.bring_in(before + at, limit));
            }
            before += slot.size;
        }
        Ok(())
    }

    /// Whether something of it can never be had: who waits for that waits for good.
    pub fn is_broken(&self) -> bool {
        self.ask_pager(Pager::check).is_err()
    }

    /// What it took to fill it in.
    pub fn fill_counters(&self) -> FillCounters {
        let at_once = || {
            let work = *self.filled.lock().unwrap_or_else(PoisonError::into_inner);
            FillCounters { filling: false, all: work, before_run: work }
        };
        self.pager().as_ref().map_or_else(at_once, Pager::counters)
    }

    /// For devices: they do not give back what is being filled in.
    pub fn for_devices(&self) -> GuestRam {
        GuestRam::filled_in(
            Arc::clone(&self.memory),
            Arc::clone(&self.filling),
            Arc::clone(&self.holes),
        )
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

    /// Gives every page back: all memory is zero again, and nothing is filled in any more. Nobody uses it.
    pub fn empty(&self) -> Result<(), RamError> {
        if let Some(pager) = &mut *self.pager() {
            pager.stop();
        }
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
        let mapping = Self { start, size };
        // Where the host lets files in memory have huge pages on advice, a guest that boots takes a fiftieth of the
        // faults. Where it does not, nothing changes.
        mapping.advise_huge_pages(true);
        Ok(mapping)
    }

    fn advise_huge_pages(&self, wanted: bool) {
        let advice = if wanted { MmapAdvise::MADV_HUGEPAGE } else { MmapAdvise::MADV_NOHUGEPAGE };
        // SAFETY: the range is a mapping that is never undone; the advice changes none of its content.
        let _ = unsafe { madvise(self.start, self.size, advice) };
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
