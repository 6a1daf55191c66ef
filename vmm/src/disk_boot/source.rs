//! What is read: disks, ranges of them, and numbers in what was read.

use std::cell::Cell;
use std::io;

use corten_devices::block::DiskReader;

/// What a read costs beside its bytes: many small ones are work, too.
const READ_COST: u64 = 4096;

/// Bytes of a disk at offsets.
pub trait Source {
    /// How many there are.
    fn size(&self) -> u64;

    /// Fills `bytes` from `offset` on. An error if there are not as many.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

impl Source for DiskReader {
    fn size(&self) -> u64 {
        self.size()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }
}

impl Source for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|start| self.get(start..));
        let found = from.and_then(|from| from.get(..bytes.len()));
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// How much may still be read: whatever a disk makes us do costs it some of this, so it ends.
#[derive(Debug)]
pub(super) struct Budget(Cell<u64>);

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        Self(Cell::new(bytes))
    }

    /// Allows that much more.
    pub(super) fn add(&self, bytes: u64) {
        self.0.set(self.0.get().saturating_add(bytes));
    }

    fn spend(&self, bytes: u64) -> io::Result<()> {
        let left = self.0.get().checked_sub(bytes.saturating_add(READ_COST));
        self.0.set(left.unwrap_or(0));
        left.map(drop).ok_or_else(|| {
            io::Error::other("finding a system takes more reading than a boot may take")
        })
    }
}

/// A range of a disk, whose bytes are counted from its start.
#[derive(Clone, Copy)]
pub(super) struct Window<'a> {
    source: &'a dyn Source,
    budget: &'a Budget,
    start: u64,
    size: u64,
}

impl<'a> Window<'a> {
    /// All of a disk.
    pub(super) fn whole(source: &'a dyn Source, budget: &'a Budget) -> Self {
        Self { source, budget, start: 0, size: source.size() }
    }

    /// The range from `start` on, as far as it is there; none if it is not at all.
    pub(super) fn part(&self, start: u64, size: u64) -> Option<Self> {
        let left = self.size.checked_sub(start).filter(|left| *left > 0)?;
        let size = size.min(left);
        (size > 0).then_some(Self { start: self.start + start, size, ..*self })
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn budget(&self) -> &'a Budget {
        self.budget
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        let end = offset.checked_add(length).filter(|end| *end <= self.size);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.budget.spend(length)?;
        self.source.read(self.start + offset, bytes)
    }

    /// `length` bytes from `offset` on.
    pub(super) fn bytes(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// The `N` bytes at `at`; zeroes where there are none, for fields that older versions of a format do not have.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(|from| from.first_chunk());
    found.copied().unwrap_or([0; N])
}

pub(super) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(super) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_do_not_reach_beyond_what_they_are_cut_from() {
        let disk: Vec<u8> = (0..100).collect();
        let budget = Budget::new(1 << 20);
        let whole = Window::whole(&disk, &budget);
        let part = whole.part(10, 20).unwrap();
        assert_eq!(part.bytes(0, 2).unwrap(), [10, 11]);
        assert_eq!(part.part(5, u64::MAX).unwrap().size(), 15);
        assert!(part.bytes(19, 2).is_err());
        assert!(part.bytes(u64::MAX, 2).is_err());
        assert!(whole.part(100, 1).is_none());
        assert!(whole.part(0, 0).is_none());
    }

    #[test]
    fn reading_ends_with_the_budget() {
        let disk = vec![0; 100];
        let budget = Budget::new(3 * READ_COST);
        let whole = Window::whole(&disk, &budget);
        assert!(whole.bytes(0, 50).is_ok());
        assert!(whole.bytes(0, 50).is_ok());
        assert!(whole.bytes(0, 50).is_err());
        budget.add(2 * READ_COST);
        assert!(whole.bytes(0, 50).is_ok());
    }

    #[test]
    fn numbers_that_are_not_there_are_zero() {
        assert_eq!(le16(&[1, 2, 3], 1), 0x0302);
        assert_eq!(le16(&[1, 2, 3], 2), 0);
        assert_eq!(be32(&[1, 2, 3, 4], 0), 0x0102_0304);
        assert_eq!(le64(&[], usize::MAX), 0);
    }
}
