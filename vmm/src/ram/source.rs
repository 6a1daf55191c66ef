//! Where memory that is filled in comes from, and where in a memfd there is any.

use std::error::Error;
use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

/// What is read, checked and put in place at once. A fault waits for one: large enough to read ahead, small enough to wait for.
pub const CHUNK: u64 = CHUNK_BYTES as u64;
/// The same, for buffers.
pub const CHUNK_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;

/// Why there is no chunk.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// Gives chunks of guest memory, by their number in the memfd.
pub trait PageSource: Send {
    /// Puts chunk `number` into `buffer`, which is as long as the chunk, and says which of its pages have something in them.
    /// What `buffer` has of the others does not matter.
    fn chunk(&mut self, number: u64, buffer: &mut [u8]) -> Result<Present, SourceError>;

    /// Bytes read so far, whatever for.
    fn bytes_read(&self) -> u64;
}

/// Which pages of a chunk have something in them, the first in the lowest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present(pub u16);

impl Present {
    /// The pages of `bytes` that are not all zero.
    pub fn of(bytes: &[u8]) -> Self {
        let pages = bytes.chunks(PAGE_BYTES).enumerate();
        let present = pages.filter(|(_, page)| !is_zero(page));
        Self(present.fold(0, |bits, (number, _)| bits | 1 << number))
    }

    /// Whether page `number` of the chunk is one of them.
    pub fn has(self, number: u64) -> bool {
        number < u16::BITS.into() && self.0 >> number & 1 == 1
    }

    /// How many there are.
    pub fn count(self) -> u64 {
        self.0.count_ones().into()
    }

    /// The bytes of the chunk that they are, in as few pieces as can be.
    pub fn runs(self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let mut from = 0_usize;
        std::iter::from_fn(move || {
            let rest = u32::from(self.0).checked_shr(u32::try_from(from).unwrap_or(u32::MAX))?;
            if rest == 0 {
                return None;
            }
            let first = from + rest.trailing_zeros() as usize;
            let count = (rest >> rest.trailing_zeros()).trailing_ones() as usize;
            from = first + count;
            Some(first * PAGE_BYTES..from * PAGE_BYTES)
        })
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// The first place at or behind `from` where the file has something; none if only a hole follows.
///
/// Asked of the file: reading a hole through a mapping would allocate it.
pub fn next_data(file: &File, from: u64) -> io::Result<Option<u64>> {
    seek(file, from, Whence::SeekData)
}

/// The first place at or behind `from` where the file has a hole, its end being one.
pub fn next_hole(file: &File, from: u64) -> io::Result<Option<u64>> {
    seek(file, from, Whence::SeekHole)
}

fn seek(file: &File, from: u64, what: Whence) -> io::Result<Option<u64>> {
    let from = i64::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
    match lseek(file, from, what) {
        Ok(found) => Ok(u64::try_from(found).ok()),
        Err(Errno::ENXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn data_and_holes_are_found_without_allocating_anything() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(next_data(&file, 0).unwrap(), None);
        file.write_all_at(&[7], 0x2_3456).unwrap();
        assert_eq!(next_data(&file, 0).unwrap(), Some(0x2_3000));
        assert_eq!(next_hole(&file, 0x2_3000).unwrap(), Some(0x2_4000));
        assert_eq!(next_data(&file, 0x2_4000).unwrap(), None);
        assert_eq!(next_data(&file, 1 << 20).unwrap(), None);
        assert_eq!(file.metadata().unwrap().blocks() * 512, 0x1000);
    }

    #[test]
    fn pages_with_anything_in_them_are_present() {
        let mut bytes = vec![0; 0x5000];
        assert_eq!(Present::of(&bytes), Present(0));
        bytes[0x1fff] = 1;
        bytes[0x4000] = 1;
        assert_eq!(Present::of(&bytes), Present(0b10010));
    }

    proptest! {
        #[test]
        fn runs_are_the_pages_that_are_present(bits: u16) {
            let present = Present(bits);
            let mut again = 0_u16;
            let mut end = None;
            for run in present.runs() {
                prop_assert!(!run.is_empty() && Some(run.start) != end);
                end = Some(run.end);
                for page in run.step_by(0x1000) {
                    again |= 1 << (page / 0x1000);
                }
            }
            prop_assert_eq!(again, bits);
            prop_assert_eq!(present.count(), u64::from(bits.count_ones()));
        }
    }
}
