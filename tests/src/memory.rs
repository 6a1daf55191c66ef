//! Guest memory on a memfd.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::NonNull;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MmapAdvise, madvise};
use thiserror::Error;
use vm_memory::mmap::FromRangesError;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryError, GuestMemoryMmap,
};

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// Why memory is not to be had or not to be reached.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// A system call on the memfd or its mapping failed.
    #[error("cannot {what} guest memory")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The mapping was refused.
    #[error("cannot map guest memory")]
    Map(#[from] FromRangesError),
    /// Outside of guest memory.
    #[error("cannot reach guest memory")]
    Access(#[from] GuestMemoryError),
}

/// Guest memory at address 0: a shared mapping of a memfd.
#[derive(Debug)]
pub struct Ram {
    file: File,
    mapping: GuestMemoryMmap<()>,
    size: usize,
}

impl Ram {
    /// New memory, all zero.
    pub fn new(size: usize) -> Result<Self, MemoryError> {
        let fd = memfd_create("microguest", MFdFlags::MFD_CLOEXEC).map_err(system("create"))?;
        let file = File::from(fd);
        file.set_len(size as u64)
            .map_err(|source| MemoryError::System { what: "resize", source })?;
        Self::map(file, size)
    }

    /// The same memory, mapped once more.
    pub fn mapped_again(&self) -> Result<Self, MemoryError> {
        let again = self.file.try_clone();
        Self::map(again.map_err(|source| MemoryError::System { what: "share", source })?, self.size)
    }

    /// Other memory with the same contents.
    pub fn copied(&self) -> Result<Self, MemoryError> {
        let copy = Self::new(self.size)?;
        let mut bytes = vec![0; self.size];
        self.mapping.read_slice(&mut bytes, GuestAddress(0))?;
        copy.mapping.write_slice(&bytes, GuestAddress(0))?;
        Ok(copy)
    }

    fn map(file: File, size: usize) -> Result<Self, MemoryError> {
        let again = file.try_clone();
        let again = again.map_err(|source| MemoryError::System { what: "share", source })?;
        let range = (GuestAddress(0), size, Some(FileOffset::new(again, 0)));
        Ok(Self { mapping: GuestMemoryMmap::from_ranges_with_files([range])?, file, size })
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// For reading and writing.
    pub fn mapping(&self) -> &GuestMemoryMmap<()> {
        &self.mapping
    }

    /// Where the `length` bytes from `address` on are mapped in this process.
    pub fn host_address(
        &self,
        address: GuestAddress,
        length: usize,
    ) -> Result<NonNull<c_void>, MemoryError> {
        let slice = self.mapping.get_slice(address, length)?;
        let pointer = slice.ptr_guard_mut().as_ptr();
        NonNull::new(pointer.cast()).ok_or_else(|| GuestMemoryError::InvalidBackendAddress.into())
    }

    /// Gives whole pages back to the kernel: the next access to each is a fault of its own, for no huge page will
    /// stand in for many.
    pub fn discard(&self, first: GuestAddress, pages: usize) -> Result<(), MemoryError> {
        let length = pages * PAGE_SIZE;
        let start = self.host_address(first, length)?;
        // SAFETY: the range is inside our own mapping; this advice changes no contents.
        unsafe { madvise(start, length, MmapAdvise::MADV_NOHUGEPAGE) }
            .map_err(system("advise on"))?;
        let offset = i64::try_from(first.0).map_err(|_| GuestMemoryError::InvalidBackendAddress)?;
        let length = i64::try_from(length).map_err(|_| GuestMemoryError::InvalidBackendAddress)?;
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&self.file, punch, offset, length).map_err(system("discard"))
    }
}

fn system(what: &'static str) -> impl Fn(nix::errno::Errno) -> MemoryError {
    move |source| MemoryError::System { what, source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: GuestAddress = GuestAddress(0x1008);

    fn word(ram: &Ram) -> u64 {
        ram.mapping().read_obj(WORD).unwrap()
    }

    #[test]
    fn mapped_again_is_the_same_memory_and_copied_is_not() {
        let ram = Ram::new(16 * PAGE_SIZE).unwrap();
        ram.mapping().write_obj(1_u64, WORD).unwrap();
        let same = ram.mapped_again().unwrap();
        let copy = ram.copied().unwrap();
        ram.mapping().write_obj(2_u64, WORD).unwrap();
        assert_eq!((word(&same), word(&copy)), (2, 1));
    }

    #[test]
    fn discarded_pages_read_as_zero_and_their_neighbours_stay() {
        let ram = Ram::new(16 * PAGE_SIZE).unwrap();
        ram.mapping().write_slice(&[7; 4 * PAGE_SIZE], GuestAddress(0)).unwrap();
        ram.discard(GuestAddress(0x1000), 2).unwrap();
        let bytes = [0xfff, 0x1000, 0x2fff, 0x3000]
            .map(|address| ram.mapping().read_obj::<u8>(GuestAddress(address)).unwrap());
        assert_eq!(bytes, [7, 0, 0, 7]);
    }
}
