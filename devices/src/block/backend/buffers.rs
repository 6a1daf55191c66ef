//! Memory that the kernel reads and writes.

use libc::iovec;
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryError, Permissions};

use crate::block::request::Segment;
use crate::virtio::GuestRam;

/// What a disk asks of the memory it is read into and written from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::block) struct Alignment {
    /// Of addresses.
    pub(in crate::block) memory: usize,
    /// Of the length of each buffer.
    pub(in crate::block) length: usize,
}

impl Alignment {
    /// Any address and any length.
    pub(in crate::block) const NONE: Self = Self { memory: 1, length: 1 };
}

/// The guest's buffers of one transfer.
#[derive(Clone, Debug)]
pub(in crate::block) struct GuestBuffers {
    ram: GuestRam,
    segments: Vec<Segment>,
    length: u64,
}

impl GuestBuffers {
    pub(in crate::block) fn new(ram: GuestRam, segments: Vec<Segment>) -> Self {
        let length = segments.iter().map(|segment| u64::from(segment.length)).sum();
        Self { ram, segments, length }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The buffers as the kernel takes them. They are there as long as `self` is.
    pub(super) fn vectors(&self) -> Result<Vec<iovec>, GuestMemoryError> {
        let mut vectors = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let length = segment.length as usize;
            let access = Permissions::ReadWrite;
            for slice in GuestMemory::get_slices(&*self.ram, segment.address, length, access)? {
                let slice = slice?;
                let iov_base = slice.ptr_guard_mut().as_ptr().cast();
                vectors.push(iovec { iov_base, iov_len: slice.len() });
            }
        }
        Ok(vectors)
    }

    /// Marks all of it as written by the kernel.
    pub(super) fn mark_written(&self) {
        for segment in &self.segments {
            // It is in memory, or there would be no vectors.
            let _ = self.ram.mark_written(segment.address, segment.length as usize);
        }
    }

    /// Copies `bytes` to where they belong, `position` bytes into the buffers.
    pub(super) fn write(&self, position: u64, bytes: &[u8]) -> Result<(), GuestMemoryError> {
        let mut rest = bytes;
        for (address, length) in self.parts(position, bytes.len()) {
            let (part, behind) = rest.split_at(length);
            self.ram.write_slice(part, address)?;
            rest = behind;
        }
        Ok(())
    }

    /// Fills `bytes` from `position` bytes into the buffers.
    pub(super) fn read(&self, position: u64, bytes: &mut [u8]) -> Result<(), GuestMemoryError> {
        let mut filled = 0;
        for (address, length) in self.parts(position, bytes.len()) {
            self.ram.read_slice(&mut bytes[filled..filled + length], address)?;
            filled += length;
        }
        Ok(())
    }

    /// The pieces of memory from `position` on, `length` bytes of them at most.
    fn parts(&self, position: u64, length: usize) -> impl Iterator<Item = (GuestAddress, usize)> {
        let (mut skip, mut left) = (position, length);
        self.segments.iter().filter_map(move |segment| {
            let skipped = skip.min(segment.length.into());
            skip -= skipped;
            let rest = usize::try_from(u64::from(segment.length) - skipped).unwrap_or(0);
            let part = rest.min(left);
            left -= part;
            let address = GuestAddress(segment.address.0.wrapping_add(skipped));
            (part > 0).then_some((address, part))
        })
    }
}

/// Whether the disk can take these buffers as they are.
pub(super) fn are_aligned(vectors: &[iovec], alignment: Alignment) -> bool {
    vectors.iter().all(|vector| {
        vector.iov_base.addr().is_multiple_of(alignment.memory)
            && vector.iov_len.is_multiple_of(alignment.length)
    })
}

/// Memory of our own that any disk can take.
#[derive(Debug)]
pub(in crate::block) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Zeroes.
    pub(in crate::block) fn new(length: usize, alignment: usize) -> Self {
        let bytes = vec![0; length + alignment];
        let past = bytes.as_ptr().addr() % alignment;
        let start = if past == 0 { 0 } else { alignment - past };
        Self { bytes, start, length }
    }

    pub(in crate::block) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }

    /// The first `length` bytes as the kernel takes them.
    pub(in crate::block) fn vector(&mut self, length: usize) -> iovec {
        let bytes = &mut self.bytes()[..length];
        iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::guest_ram;

    fn segment(address: u64, length: u32) -> Segment {
        Segment { address: GuestAddress(address), length }
    }

    #[test]
    fn positions_go_across_buffers() {
        let segments = vec![segment(0x1000, 3), segment(0x2000, 1), segment(0x3000, 4)];
        let buffers = GuestBuffers::new(guest_ram(), segments);
        assert_eq!(buffers.length(), 8);
        buffers.write(0, b"abcdefgh").unwrap();
        let mut read = [0; 4];
        buffers.read(2, &mut read).unwrap();
        assert_eq!(&read, b"cdef");
        assert_eq!(buffers.vectors().unwrap().len(), 3);
    }

    #[test]
    fn own_memory_is_aligned() {
        for alignment in [1, 512, 4096, 0x1_0000] {
            let mut buffer = AlignedBuffer::new(8192, alignment);
            assert!(buffer.bytes().as_ptr().addr().is_multiple_of(alignment));
            assert_eq!(buffer.vector(512).iov_len, 512);
        }
    }
}
