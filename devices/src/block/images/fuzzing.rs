//! What the fuzz target calls.

use std::io;

use super::chain::{Chain, Content};
use super::read_at::ReadAt;
use super::{ImageFormat, MAX_SIZE};

/// Bytes that must not be read past their end.
struct Bytes<'a>(&'a [u8]);

impl ReadAt for Bytes<'_> {
    fn fill(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).expect("an offset in memory");
        let part = self.0.get(start..start + bytes.len());
        bytes.copy_from_slice(part.expect("nothing behind the end is read"));
        Ok(())
    }
}

/// Reads the first and the last 4 MiB of the disk that `images` are a chain of, all as qcow2 but for the last, which is
/// raw if `raw_base` says so. Everything that is found must lie in its image.
pub fn read_any_images(images: &[&[u8]], raw_base: bool) {
    const PART: u64 = 4 << 20;
    let count = images.len();
    let open = |(number, bytes): (usize, _)| {
        let is_raw = raw_base && number + 1 == count;
        let format = if is_raw { ImageFormat::Raw } else { ImageFormat::Qcow2 };
        let bytes = Bytes(bytes);
        let length = bytes.0.len() as u64;
        (bytes, length, format)
    };
    let images = images.iter().copied().enumerate().map(open).collect();
    let Ok(chain) = Chain::open(images) else { return };
    let size = chain.size();
    assert!(size <= MAX_SIZE, "larger disks are refused");
    for start in [0, size.saturating_sub(PART)] {
        let end = size.min(start + PART);
        let mut at = start;
        while at < end {
            let found = chain.locate(at, end - at, |content, length| {
                assert!(length > 0 && length <= end - at, "something, and not more than asked for");
                match content {
                    Content::Zeroes => {}
                    Content::File(bytes, offset) => {
                        assert!(offset + length <= bytes.0.len() as u64, "in the file");
                    }
                    Content::Memory(bytes) => {
                        assert!(length <= bytes.len() as u64, "in the cluster");
                    }
                }
                length
            });
            // Not each sector of a cluster that cannot be decompressed.
            at += found.unwrap_or(PART / 64);
        }
    }
}
