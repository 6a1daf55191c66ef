//! The guest's buffers as the kernel takes them.

use std::io;
use std::ops::Range;

use libc::iovec;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

use super::tap::TapQueue;
use crate::virtio::GuestRam;

/// Bytes of the header before each frame: struct virtio_net_hdr_v1.
pub(super) const HEADER: usize = 12;
/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
/// The longest packet: header, Ethernet header with a VLAN tag, and as much IP as its length can say.
pub(super) const MAX_PACKET: usize = HEADER + ETHERNET + 4 + 65535;

/// Descriptors of one chain: more than any queue has.
const MAX_SEGMENTS: usize = 256;
/// Pieces of memory in one chain: a segment can lie across two of the guest's memory regions.
const MAX_CHAIN: usize = 2 * MAX_SEGMENTS;
/// Pieces in one system call (UIO_MAXIOV), two of them our own.
const MAX_EXTENTS: usize = 1024 - 2;

/// Who writes to a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// The chain is to be read.
    Driver,
    /// The chain is room.
    Device,
}

/// A chain as it lies in the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// How many bytes of it are of use.
    pub(super) length: usize,
    /// How many descriptors it has.
    pub(super) segments: usize,
    /// How many pieces of memory it is.
    extents: usize,
}

/// Why a chain cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadChain {
    /// Too many descriptors, memory that is not there, an end that is none: it is no chain.
    Broken,
    /// A wrong direction.
    Malformed,
    /// More bytes than a packet has.
    TooLong,
}

/// A piece of guest memory that is in one piece here as well.
#[derive(Clone, Copy, Debug)]
struct Extent {
    address: GuestAddress,
    vector: iovec,
}

/// Chains behind each other, as one row of bytes.
pub(super) struct GuestBuffers {
    /// Keeps the memory that the extents are in.
    ram: GuestRam,
    extents: Vec<Extent>,
    /// Those before it were used up.
    first: usize,
    /// What the next call takes, kept for its memory.
    vectors: Vec<iovec>,
}

// SAFETY: the pointers are to guest memory, which any thread may use and which `ram` keeps; those in `vectors` are not
// used after the call that they were put there for.
unsafe impl Send for GuestBuffers {}

impl GuestBuffers {
    pub(super) fn new(ram: GuestRam) -> Self {
        Self { ram, extents: Vec::new(), first: 0, vectors: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.extents.clear();
        self.first = 0;
    }

    /// Whether one more chain, of whatever shape, can be added.
    pub(super) fn has_room(&self) -> bool {
        self.extents.len() - self.first + MAX_CHAIN <= MAX_EXTENTS
    }

    /// Adds a chain at the end, its first bytes that fit a packet; of one that is to be read, none may be left over.
    /// Nothing is added if it cannot be used.
    pub(super) fn add(
        &mut self,
        chain: impl Iterator<Item = Descriptor>,
        writer: Writer,
    ) -> Result<Shape, BadChain> {
        let start = self.extents.len();
        let shape = self.append(chain, writer);
        if shape.is_err() {
            self.extents.truncate(start);
        }
        shape
    }

    fn append(
        &mut self,
        chain: impl Iterator<Item = Descriptor>,
        writer: Writer,
    ) -> Result<Shape, BadChain> {
        let start = self.extents.len();
        let (mut length, mut segments, mut is_open) = (0, 0, true);
        let mut wrong = None;
        // One more than there may be, so as to see it.
        for descriptor in chain.take(MAX_SEGMENTS + 1) {
            segments += 1;
            is_open = descriptor.has_next();
            if segments > MAX_SEGMENTS {
                return Err(BadChain::Broken);
            }
            if descriptor.is_write_only() != (writer == Writer::Device) {
                wrong = Some(BadChain::Malformed);
            }
            let wanted = descriptor.len() as usize;
            let used = wanted.min(MAX_PACKET - length);
            if used < wanted && writer == Writer::Driver {
                wrong = wrong.or(Some(BadChain::TooLong));
            }
            if wrong.is_some() {
                // It is looked through to its end, which it may not have.
                continue;
            }
            self.append_segment(descriptor.addr(), used)?;
            length += used;
        }
        let extents = self.extents.len() - start;
        if is_open || extents > MAX_CHAIN {
            return Err(BadChain::Broken);
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        Ok(Shape { length, segments, extents })
    }

    fn append_segment(&mut self, address: GuestAddress, length: usize) -> Result<(), BadChain> {
        // Both ways: what is received is read back if it has to wait.
        let access = Permissions::ReadWrite;
        let slices = GuestMemory::get_slices(&*self.ram, address, length, access);
        let mut address = address;
        for slice in slices.map_err(|_| BadChain::Broken)? {
            let slice = slice.map_err(|_| BadChain::Broken)?;
            let iov_base = slice.ptr_guard_mut().as_ptr().cast();
            let vector = iovec { iov_base, iov_len: slice.len() };
            if !slice.is_empty() {
                self.extents.push(Extent { address, vector });
            }
            address = GuestAddress(address.0.saturating_add(slice.len() as u64));
        }
        Ok(())
    }

    /// Takes the chain at the front away.
    pub(super) fn remove(&mut self, shape: Shape) {
        self.first += shape.extents;
        if self.first >= MAX_EXTENTS {
            self.extents.drain(..self.first.min(self.extents.len()));
            self.first = 0;
        }
    }

    /// Reads a packet: its first `front` bytes into `own`, the following up to byte `end` into the buffers, all behind
    /// into `own` again, each to its place in the packet.
    pub(super) fn read_from(
        &mut self,
        tap: &TapQueue,
        own: &mut [u8],
        places: Range<usize>,
    ) -> io::Result<usize> {
        let (ours, behind) = own.split_at_mut(places.end.min(own.len()));
        let front = ours.get_mut(..places.start).unwrap_or_default();
        self.vectors.clear();
        self.vectors.push(vector_of(front));
        let parts = parts(self.extents.get(self.first..).unwrap_or_default(), places);
        self.vectors.extend(parts.map(|part| part.vector));
        self.vectors.push(vector_of(behind));
        // SAFETY: the vectors are of guest memory that `ram` keeps, and of `own`, which is borrowed for the call.
        unsafe { tap.read(&self.vectors) }
    }

    /// Writes all of it as one packet.
    pub(super) fn write_to(&mut self, tap: &TapQueue) -> io::Result<usize> {
        self.vectors.clear();
        self.vectors.extend(self.extents.iter().skip(self.first).map(|extent| extent.vector));
        // SAFETY: the vectors are of guest memory that `ram` keeps.
        unsafe { tap.write(&self.vectors) }
    }

    /// Copies `bytes` to `position`; as many as there is room for.
    pub(super) fn write(&self, position: usize, bytes: &[u8]) {
        let mut rest = bytes;
        for part in self.parts(position..position.saturating_add(bytes.len())) {
            let (now, later) = rest.split_at(part.vector.iov_len.min(rest.len()));
            // It was in memory when the chain was added, and memory stays.
            let _ = self.ram.write_slice(now, part.address);
            rest = later;
        }
    }

    /// Fills `bytes` from `position` on; as many as there are.
    pub(super) fn read(&self, position: usize, bytes: &mut [u8]) {
        let mut rest = &mut *bytes;
        for part in self.parts(position..position.saturating_add(rest.len())) {
            let (now, later) = rest.split_at_mut(part.vector.iov_len.min(rest.len()));
            // It was in memory when the chain was added, and memory stays.
            let _ = self.ram.read_slice(now, part.address);
            rest = later;
        }
    }

    /// Marks what the kernel has written.
    pub(super) fn mark_written(&self, range: Range<usize>) {
        for part in self.parts(range) {
            // It was in memory when the chain was added, and memory stays.
            let _ = self.ram.mark_written(part.address, part.vector.iov_len);
        }
    }

    fn parts(&self, range: Range<usize>) -> impl Iterator<Item = Extent> {
        parts(self.extents.get(self.first..).unwrap_or_default(), range)
    }
}

/// The pieces of memory that bytes `range` of the extents are.
fn parts(extents: &[Extent], range: Range<usize>) -> impl Iterator<Item = Extent> {
    let mut skip = range.start;
    let mut left = range.end.saturating_sub(range.start);
    let part = move |extent: &Extent| {
        if left == 0 {
            return None;
        }
        let length = extent.vector.iov_len;
        let skipped = skip.min(length);
        skip -= skipped;
        let taken = (length - skipped).min(left);
        left -= taken;
        let address = GuestAddress(extent.address.0.saturating_add(skipped as u64));
        let iov_base = extent.vector.iov_base.wrapping_byte_add(skipped);
        Some(Extent { address, vector: iovec { iov_base, iov_len: taken } })
    };
    extents.iter().map_while(part).filter(|part| part.vector.iov_len > 0)
}

fn vector_of(bytes: &mut [u8]) -> iovec {
    iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::guest_ram;

    const NEXT: u16 = 1;
    const WRITE: u16 = 2;

    /// Linked in order, but for the last.
    fn chain(buffers: &[(u64, u32, u16)]) -> Vec<Descriptor> {
        let last = buffers.len().saturating_sub(1);
        let link = |(at, (address, length, flags)): (usize, &(u64, u32, u16))| {
            let next = if at == last { 0 } else { NEXT };
            Descriptor::new(*address, *length, flags | next, 0)
        };
        buffers.iter().enumerate().map(link).collect()
    }

    fn add(
        buffers: &mut GuestBuffers,
        list: &[(u64, u32, u16)],
        writer: Writer,
    ) -> Result<Shape, BadChain> {
        buffers.add(chain(list).into_iter(), writer)
    }

    #[test]
    fn chains_are_one_row_of_bytes() {
        let mut buffers = GuestBuffers::new(guest_ram());
        let first = [(0x1000, 3, WRITE), (0x2000, 0, WRITE), (0x2000, 1, WRITE)];
        let shape = add(&mut buffers, &first, Writer::Device).unwrap();
        assert_eq!((shape.length, shape.segments, shape.extents), (4, 3, 2));
        add(&mut buffers, &[(0x3000, 4, WRITE)], Writer::Device).unwrap();
        buffers.write(0, b"abcdefgh");
        let mut read = [0; 4];
        buffers.read(2, &mut read);
        assert_eq!(&read, b"cdef");
        buffers.remove(shape);
        buffers.read(0, &mut read);
        assert_eq!(&read, b"efgh");
        buffers.write(2, b"XYZ");
        buffers.read(0, &mut read);
        assert_eq!(&read, b"efXY", "what does not fit is left out");
    }

    #[test]
    fn chains_that_cannot_be_used_add_nothing() {
        let mut buffers = GuestBuffers::new(guest_ram());
        for (list, writer, expected) in [
            (&[][..], Writer::Driver, BadChain::Broken),
            (&[(0x1000, 8, WRITE)], Writer::Driver, BadChain::Malformed),
            (&[(0x1000, 8, 0)], Writer::Device, BadChain::Malformed),
            (&[(0x1000, 8, 0), (0x2000, 8, WRITE)], Writer::Driver, BadChain::Malformed),
            (&[(0x1000, 8, 0), (0xffff, 2, 0)], Writer::Driver, BadChain::Broken),
            (&[(u64::MAX, 2, 0)], Writer::Driver, BadChain::Broken),
            (&[(0x1000, 1, 0); 257], Writer::Driver, BadChain::Broken),
            (&[(0, 0x8000, 0), (0, 0x8000, 0), (0, 0x80, 0)], Writer::Driver, BadChain::TooLong),
            (&[(0, u32::MAX, 0)], Writer::Driver, BadChain::TooLong),
        ] {
            assert_eq!(add(&mut buffers, list, writer), Err(expected), "{list:?}");
            assert_eq!(buffers.extents.len(), 0);
        }
        let open = [Descriptor::new(0x1000, 8, NEXT, 9)];
        assert_eq!(buffers.add(open.into_iter(), Writer::Driver), Err(BadChain::Broken));
    }

    #[test]
    fn room_is_used_as_far_as_a_packet_goes() {
        let mut buffers = GuestBuffers::new(guest_ram());
        let large = [(0, 0x1_0000, WRITE), (0, u32::MAX, WRITE), (0, u32::MAX, WRITE)];
        let shape = add(&mut buffers, &large, Writer::Device).unwrap();
        assert_eq!((shape.length, shape.extents), (MAX_PACKET, 2));
    }

    #[test]
    fn room_for_chains_comes_back_with_their_removal() {
        let mut buffers = GuestBuffers::new(guest_ram());
        let many = [(0x1000, 1, WRITE); 256];
        let mut shapes = Vec::new();
        while buffers.has_room() {
            shapes.push(add(&mut buffers, &many, Writer::Device).unwrap());
        }
        assert!(buffers.extents.len() <= MAX_EXTENTS);
        for shape in shapes {
            buffers.remove(shape);
        }
        for _ in 0..100 {
            let shape = add(&mut buffers, &many, Writer::Device).unwrap();
            buffers.remove(shape);
            assert!(buffers.has_room());
        }
        assert!(buffers.extents.len() < 2 * MAX_EXTENTS, "{}", buffers.extents.len());
    }

    proptest! {
        #[test]
        fn any_chain_is_in_memory_or_refused(
            list in prop::collection::vec(
                (
                    prop_oneof![0_u64..0x1_0100, any::<u64>()],
                    prop_oneof![0_u32..0x600, any::<u32>()],
                    0_u16..4,
                ),
                0..6,
            ),
            is_room in any::<bool>(),
        ) {
            let mut buffers = GuestBuffers::new(guest_ram());
            let writer = if is_room { Writer::Device } else { Writer::Driver };
            let descriptors =
                list.iter().map(|(address, length, flags)| Descriptor::new(*address, *length, *flags, 0));
            if let Ok(shape) = buffers.add(descriptors, writer) {
                prop_assert!(shape.length <= MAX_PACKET);
                let lengths: usize = buffers.extents.iter().map(|extent| extent.vector.iov_len).sum();
                prop_assert_eq!(lengths, shape.length);
                for extent in &buffers.extents {
                    let end = extent.address.0 + extent.vector.iov_len as u64;
                    prop_assert!(end <= 0x1_0000);
                }
            } else {
                prop_assert_eq!(buffers.extents.len(), 0);
            }
        }
    }
}
