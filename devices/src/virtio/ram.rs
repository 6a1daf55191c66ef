//! Guest memory as devices see it.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nix::fcntl::{FallocateFlags, fallocate};
use thiserror::Error;
use vm_memory::bitmap::{AtomicBitmap, Bitmap};
use vm_memory::{
    Address, FileOffset, GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryError,
    GuestMemoryMmap, GuestMemoryRegion, Permissions,
};

use crate::pci::lock;

/// Why memory is not given back.
#[derive(Debug, Error)]
pub enum DiscardError {
    /// It is not, or not all, the guest's.
    #[error("there are no {length} bytes of guest memory at {:#x}", .address.0)]
    NotThere {
        /// Where it was to begin.
        address: GuestAddress,
        /// How many bytes it was to have.
        length: u64,
    },
    /// It is not all there yet: a hole would be filled with what was there before.
    #[error("guest memory is still being filled in")]
    Filling,
    /// Only memory that is a file has holes.
    #[error("guest memory at {:#x} is not a file", .0.0)]
    NoFile(GuestAddress),
    /// The host refused.
    #[error("cannot make a hole in guest memory at {:#x}", .address.0)]
    System {
        /// Where it was to begin.
        address: GuestAddress,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The guest's memory. Writing through it marks what was written, for migration to send again.
#[derive(Clone, Debug)]
pub struct GuestRam {
    memory: Arc<GuestMemoryMmap<AtomicBitmap>>,
    filling: Arc<AtomicBool>,
    holes: Arc<Mutex<()>>,
}

impl GuestRam {
    /// Memory that comes page by page for as long as `filling` is set. Who sets it clears it once, when all is there. `holes`
    /// is held while holes are made, by whoever looks for them and acts on it.
    pub fn filled_in(
        memory: Arc<GuestMemoryMmap<AtomicBitmap>>,
        filling: Arc<AtomicBool>,
        holes: Arc<Mutex<()>>,
    ) -> Self {
        Self { memory, filling, holes }
    }

    /// Marks memory as written that was written past this type, by the kernel for instance. To be called when the data
    /// has landed: marked earlier, it could be sent without it.
    pub fn mark_written(
        &self,
        address: GuestAddress,
        length: usize,
    ) -> Result<(), GuestMemoryError> {
        for slice in GuestMemory::get_slices(&*self.memory, address, length, Permissions::Write)? {
            let slice = slice?;
            slice.bitmap().mark_dirty(0, slice.len());
        }
        Ok(())
    }

    /// Gives memory back to the host: it reads as zeros, and takes no room until it is touched again. Marked as
    /// written, as its content has changed. Nothing is given back that is not all there.
    ///
    /// The hole is made in the file that the memory is, for this process and the guest alike: giving up the pages of a
    /// shared mapping (MADV_DONTNEED) frees nothing. It lies inside the file, so touching it later cannot fault for
    /// good; who does finds a new page.
    ///
    /// Refused while memory is being filled in: a page that was punched is missing again, and would get its old content.
    pub fn discard(&self, address: GuestAddress, length: u64) -> Result<(), DiscardError> {
        let not_there = || DiscardError::NotThere { address, length };
        let bytes = usize::try_from(length).map_err(|_| not_there())?;
        if !GuestMemory::check_range(&*self.memory, address, bytes, Permissions::Write) {
            return Err(not_there());
        }
        if self.filling.load(Ordering::Acquire) {
            return Err(DiscardError::Filling);
        }
        let _holes = lock(&self.holes);
        let (mut at, mut left) = (address, length);
        while left > 0 {
            let (region, offset) = self.memory.to_region_addr(at).ok_or_else(not_there)?;
            let part = left.min(region.len() - offset.raw_value());
            let file = region.file_offset().ok_or(DiscardError::NoFile(at))?;
            punch(file, offset.raw_value(), part)
                .map_err(|source| DiscardError::System { address: at, source })?;
            // All of it was found to be there.
            let _ = self.mark_written(at, usize::try_from(part).unwrap_or(bytes));
            left -= part;
            at = at.unchecked_add(part);
        }
        Ok(())
    }
}

/// `offset` and `length` are inside what of the file is memory.
fn punch(file: &FileOffset, offset: u64, length: u64) -> io::Result<()> {
    let number = |number: u64| i64::try_from(number).map_err(|_| io::ErrorKind::InvalidInput);
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let start = file.start().saturating_add(offset);
    Ok(fallocate(file.file(), flags, number(start)?, number(length)?)?)
}

impl From<Arc<GuestMemoryMmap<AtomicBitmap>>> for GuestRam {
    fn from(memory: Arc<GuestMemoryMmap<AtomicBitmap>>) -> Self {
        Self { memory, filling: Arc::default(), holes: Arc::default() }
    }
}

impl Deref for GuestRam {
    type Target = GuestMemoryMmap<AtomicBitmap>;

    fn deref(&self) -> &Self::Target {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    use vm_memory::Bytes;

    use super::*;
    use crate::testing::{guest_ram, shared_guest_ram};

    fn written(ram: &GuestRam, address: u64) -> bool {
        let region = ram.iter().next().unwrap();
        region.get_mmap().bitmap().is_addr_set(usize::try_from(address).unwrap())
    }

    #[test]
    fn written_memory_is_marked_both_ways() {
        let ram = guest_ram();
        ram.write_obj(7_u32, GuestAddress(0x1000)).unwrap();
        ram.mark_written(GuestAddress(0x2fff), 2).unwrap();
        let marks = [0, 0x1000, 0x2000, 0x3000, 0x4000].map(|at| written(&ram, at));
        assert_eq!(marks, [false, true, true, true, false]);
    }

    #[test]
    fn memory_that_is_not_there_cannot_be_marked() {
        let ram = guest_ram();
        let end = ram.last_addr().0;
        assert!(ram.mark_written(GuestAddress(end), 2).is_err());
        assert!(ram.mark_written(GuestAddress(u64::MAX), 2).is_err());
    }

    /// Two ranges that touch, one file; full of sevens.
    fn full_ram() -> (GuestRam, std::fs::File) {
        let ranges = [(GuestAddress(0x1_0000), 0x1_0000), (GuestAddress(0x2_0000), 0x1_0000)];
        let (ram, file) = shared_guest_ram(&ranges);
        ram.write_slice(&[7; 0x2_0000], GuestAddress(0x1_0000)).unwrap();
        (ram, file)
    }

    #[test]
    fn discarded_memory_takes_no_room_and_reads_as_zeros() {
        let (ram, file) = full_ram();
        assert_eq!(file.metadata().unwrap().blocks() * 512, 0x2_0000);
        for region in ram.iter() {
            region.get_mmap().bitmap().reset();
        }
        // From the last page of one range to the first two of the other.
        ram.discard(GuestAddress(0x1_f000), 0x3000).unwrap();
        assert_eq!(file.metadata().unwrap().blocks() * 512, 0x2_0000 - 0x3000);
        let mut bytes = [1; 0x5000];
        ram.read_slice(&mut bytes, GuestAddress(0x1_e000)).unwrap();
        assert!(bytes[..0x1000].iter().all(|byte| *byte == 7));
        assert!(bytes[0x1000..0x4000].iter().all(|byte| *byte == 0));
        assert!(bytes[0x4000..].iter().all(|byte| *byte == 7));
        let marks = |region: usize, pages: [usize; 3]| {
            let region = ram.iter().nth(region).unwrap();
            pages.map(|page| region.get_mmap().bitmap().is_addr_set(page * 0x1000))
        };
        assert_eq!(marks(0, [0, 14, 15]), [false, false, true]);
        assert_eq!(marks(1, [0, 1, 2]), [true, true, false]);
    }

    #[test]
    fn memory_that_is_not_all_there_is_not_discarded() {
        let (ram, file) = full_ram();
        for (address, length) in
            [(0, 0x1000), (0xf000, 0x2000), (0x2_f000, 0x1001), (u64::MAX, 2), (0x1_0000, u64::MAX)]
        {
            let error = ram.discard(GuestAddress(address), length).unwrap_err();
            assert!(matches!(error, DiscardError::NotThere { .. }), "{error}");
        }
        assert_eq!(file.metadata().unwrap().blocks() * 512, 0x2_0000);
    }

    #[test]
    fn memory_that_is_being_filled_in_is_not_discarded() {
        let (ram, file) = full_ram();
        let filling = Arc::new(AtomicBool::new(true));
        let ram =
            GuestRam::filled_in(Arc::clone(&ram.memory), Arc::clone(&filling), Arc::default());
        let error = ram.discard(GuestAddress(0x1_0000), 0x1000).unwrap_err();
        assert!(matches!(error, DiscardError::Filling), "{error}");
        assert_eq!(file.metadata().unwrap().blocks() * 512, 0x2_0000);
        filling.store(false, Ordering::Release);
        ram.discard(GuestAddress(0x1_0000), 0x1000).unwrap();
        assert_eq!(file.metadata().unwrap().blocks() * 512, 0x1_f000);
    }

    #[test]
    fn memory_without_a_file_is_not_discarded() {
        let error = guest_ram().discard(GuestAddress(0x1000), 0x1000).unwrap_err();
        assert_eq!(error.to_string(), "guest memory at 0x1000 is not a file");
    }

    #[test]
    fn what_the_host_refuses_is_told() {
        let (ram, file) = full_ram();
        // SAFETY: takes a number only; the descriptor is open. A mapping that can write allows this seal, and holes
        // count as writes.
        let sealed =
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
        assert_eq!(sealed, 0);
        let error = ram.discard(GuestAddress(0x1_0000), 0x1000).unwrap_err();
        assert_eq!(error.to_string(), "cannot make a hole in guest memory at 0x10000");
    }

    #[test]
    fn memory_may_be_discarded_while_it_is_used() {
        let (ram, _file) = full_ram();
        let used = ram.clone();
        let user = std::thread::spawn(move || {
            for turn in 0..20_000_u64 {
                let address = GuestAddress(0x1_0000 + turn % 32 * 0x1000);
                used.write_obj(turn, address).unwrap();
                let found: u64 = used.read_obj(address).unwrap();
                assert!(found == turn || found == 0, "{found:#x}");
            }
        });
        while !user.is_finished() {
            ram.discard(GuestAddress(0x1_0000), 0x2_0000).unwrap();
        }
        user.join().unwrap();
    }
}
