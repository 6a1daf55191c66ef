//! The guest's buffers of one chain. Everything in a chain is the guest's word.

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

use super::GuestRam;

/// Descriptors in one chain: the largest queue on offer, which no chain may be longer than (2.7.5.3.1).
const MAX_DESCRIPTORS: usize = 256;

/// Which way the buffers of a queue go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The driver has filled them.
    FromGuest,
    /// The device fills them.
    ToGuest,
}

/// Why a chain has no buffers for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadChain {
    /// It is none: it breaks off, goes in a circle, is longer than any queue or not in memory. The driver is broken, and has
    /// to [reset the device](super::VirtQueue::fail).
    Broken,
    /// It is one, with a buffer of the other direction. It is given back.
    Useless,
}

/// The memory of one chain, all of it there, as one row of bytes: framing says nothing (2.7.4).
#[derive(Debug)]
pub(crate) struct Buffers<'a> {
    ram: &'a GuestRam,
    parts: Vec<(GuestAddress, usize)>,
    length: usize,
}

impl<'a> Buffers<'a> {
    /// Those of a chain on a queue of this direction.
    pub(crate) fn of(
        descriptors: impl Iterator<Item = Descriptor>,
        direction: Direction,
        ram: &'a GuestRam,
    ) -> Result<Self, BadChain> {
        let access = match direction {
            Direction::FromGuest => Permissions::Read,
            Direction::ToGuest => Permissions::Write,
        };
        let mut parts = Vec::new();
        let (mut length, mut is_complete, mut is_useless) = (0_usize, false, false);
        for (count, descriptor) in descriptors.enumerate() {
            if count >= MAX_DESCRIPTORS {
                return Err(BadChain::Broken);
            }
            is_useless |= descriptor.is_write_only() != (direction == Direction::ToGuest);
            // A chain that breaks off looks like a short one but for this.
            is_complete = !descriptor.has_next();
            let (address, bytes) = (descriptor.addr(), descriptor.len() as usize);
            if bytes == 0 || is_useless {
                continue;
            }
            if !GuestMemory::check_range(&**ram, address, bytes, access) {
                return Err(BadChain::Broken);
            }
            length = length.saturating_add(bytes);
            parts.push((address, bytes));
        }
        match (is_complete, is_useless) {
            (false, _) => Err(BadChain::Broken),
            (true, true) => Err(BadChain::Useless),
            (true, false) => Ok(Self { ram, parts, length }),
        }
    }

    /// How many bytes there are.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Fills `bytes` from `position` on; false if there are not as many.
    pub(crate) fn read(&self, position: usize, bytes: &mut [u8]) -> bool {
        let mut filled = 0;
        for (address, length) in self.pieces(position, bytes.len()) {
            if self.ram.read_slice(&mut bytes[filled..filled + length], address).is_err() {
                return false;
            }
            filled += length;
        }
        filled == bytes.len()
    }

    /// Copies `bytes` to `position` and what follows; false if there is no room for them.
    pub(crate) fn write(&self, position: usize, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        for (address, length) in self.pieces(position, bytes.len()) {
            let (piece, behind) = rest.split_at(length);
            if self.ram.write_slice(piece, address).is_err() {
                return false;
            }
            rest = behind;
        }
        rest.is_empty()
    }

    /// The pieces of memory from `position` on, `length` bytes of them at most.
    fn pieces(
        &self,
        position: usize,
        length: usize,
    ) -> impl Iterator<Item = (GuestAddress, usize)> + '_ {
        let (mut skip, mut left) = (position, length);
        self.parts.iter().filter_map(move |(address, bytes)| {
            let skipped = skip.min(*bytes);
            skip -= skipped;
            let piece = (*bytes - skipped).min(left);
            left -= piece;
            let start = GuestAddress(address.0.wrapping_add(skipped as u64));
            (piece > 0).then_some((start, piece))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::guest_ram;

    const NEXT: u16 = 1;
    const WRITE: u16 = 2;

    fn of(
        ram: &GuestRam,
        direction: Direction,
        chain: &[(u64, u32, u16)],
    ) -> Result<usize, BadChain> {
        let descriptor = |&(address, length, flags)| Descriptor::new(address, length, flags, 0);
        Buffers::of(chain.iter().map(descriptor), direction, ram).map(|buffers| buffers.length())
    }

    #[test]
    fn bytes_go_across_descriptors() {
        let ram = guest_ram();
        let chain = [(0x1000, 3, NEXT), (0x5000, 0, NEXT), (0x2000, 1, NEXT), (0x3000, 4, 0)];
        let descriptors = chain.map(|(at, length, flags)| Descriptor::new(at, length, flags, 0));
        let buffers = Buffers::of(descriptors.into_iter(), Direction::FromGuest, &ram).unwrap();
        assert_eq!(buffers.length(), 8);
        assert!(buffers.write(1, b"bcdefgh"));
        let mut read = [0; 4];
        assert!(buffers.read(2, &mut read));
        assert_eq!(&read, b"cdef");
        assert!(!buffers.read(5, &mut read));
        assert!(!buffers.write(8, b"i"));
    }

    #[test]
    fn chains_of_the_wrong_kind_are_told_from_broken_ones() {
        use BadChain::{Broken, Useless};
        use Direction::{FromGuest, ToGuest};
        let ram = guest_ram();
        for (direction, chain, expected) in [
            (FromGuest, &[(0x1000, 8, 0)][..], Ok(8)),
            (ToGuest, &[(0x1000, 8, WRITE)], Ok(8)),
            (ToGuest, &[(0x1000, 8, 0)], Err(Useless)),
            (FromGuest, &[(0x1000, 8, NEXT), (0x2000, 8, WRITE)], Err(Useless)),
            (FromGuest, &[(0x1000, 8, NEXT | WRITE), (0x2000, 8, NEXT)], Err(Broken)),
            (FromGuest, &[(0x1000, 8, NEXT)], Err(Broken)),
            (FromGuest, &[], Err(Broken)),
            (FromGuest, &[(0xfff9, 8, 0)], Err(Broken)),
            (FromGuest, &[(u64::MAX, 8, 0)], Err(Broken)),
        ] {
            assert_eq!(of(&ram, direction, chain), expected, "{chain:?}");
        }
    }

    #[test]
    fn chain_longer_than_any_queue_is_broken() {
        let ram = guest_ram();
        let mut chain = vec![(0x1000, 1, NEXT); MAX_DESCRIPTORS - 1];
        chain.push((0x1000, 1, 0));
        assert_eq!(of(&ram, Direction::FromGuest, &chain), Ok(MAX_DESCRIPTORS));
        chain.insert(0, (0x1000, 1, NEXT));
        assert_eq!(of(&ram, Direction::FromGuest, &chain), Err(BadChain::Broken));
    }
}
