//! A disk's present content, read by the machine's owner while no queue of it is served: to find what to boot.

use std::io;
use std::sync::Arc;

use libc::{EINTR, iovec};

use super::backend::{AlignedBuffer, Alignment, Medium, Step};
use super::disk::Disk;

/// What is read at once where the disk does not take any buffer.
const BOUNCE: usize = 256 << 10;

/// Reads a disk as its guest would: what is in its overlay from there, the rest from its images or its file.
///
/// Waits for the disk, in the calling thread: by preadv, and pread64 for tables of images. What other processes write
/// meanwhile may be seen or not.
pub struct DiskReader {
    medium: Arc<dyn Medium>,
    alignment: Alignment,
    size: u64,
    block_size: u32,
}

impl DiskReader {
    /// A reader of `disk`, which its guest finds with blocks of `block_size` bytes.
    pub(super) fn new(disk: &Disk, block_size: u32) -> Self {
        let (medium, alignment) = (disk.medium(), disk.alignment());
        Self { medium, alignment, size: disk.size(), block_size }
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What the guest finds its sectors to be.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Fills `bytes` from `offset` on. An error if the disk ends before.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.size);
        if end.is_none() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.alignment == Alignment::NONE {
            return self.fill(bytes, offset);
        }
        self.bounce(bytes, offset)
    }

    /// By memory, offsets and lengths that go past the page cache. The last block of a file may be cut: what is read of
    /// it is all that is wanted.
    fn bounce(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let block = self.alignment.length;
        let most = BOUNCE.max(block);
        let mut buffer = AlignedBuffer::new(most, self.alignment.memory.max(block));
        let (mut rest, mut offset) = (bytes, offset);
        while !rest.is_empty() {
            let start = offset - offset % block as u64;
            // Less than a block, which a buffer has.
            let skipped = usize::try_from(offset - start).unwrap_or(usize::MAX);
            let wanted = skipped.saturating_add(rest.len()).min(most);
            let whole = wanted.next_multiple_of(block).min(most);
            let got = self.read(&[buffer.vector(whole)], start)?;
            let part = got.min(wanted).checked_sub(skipped).filter(|part| *part > 0);
            let part = part.ok_or(io::ErrorKind::UnexpectedEof)?;
            let (filled, behind) = rest.split_at_mut(part);
            filled.copy_from_slice(&buffer.bytes()[skipped..skipped + part]);
            offset += part as u64;
            rest = behind;
        }
        Ok(())
    }

    fn fill(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let (mut rest, mut offset) = (bytes, offset);
        while !rest.is_empty() {
            let vector = iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
            let read = self.read(&[vector], offset)?;
            let behind = rest.get_mut(read..).filter(|_| read > 0);
            rest = behind.ok_or(io::ErrorKind::UnexpectedEof)?;
            offset += read as u64;
        }
        Ok(())
    }

    /// As much as there is at once.
    fn read(&self, vectors: &[iovec], offset: u64) -> io::Result<usize> {
        loop {
            match self.medium.call(&Step::Read { vectors, offset }) {
                Err(EINTR) => {}
                answer => return answer.map_err(io::Error::from_raw_os_error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;

    use super::super::images::{ImageDisk, ImageFile, ImageFormat};
    use super::super::{Disk, DiskFile};
    use super::*;

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
    }

    fn file(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    fn reader(disk: impl Into<Disk>) -> DiskReader {
        DiskReader::new(&disk.into(), 512)
    }

    fn read(reader: &DiskReader, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        reader.read_exact_at(&mut bytes, offset as u64).unwrap();
        bytes
    }

    #[test]
    fn file_is_read_at_any_offset_and_not_past_its_end() {
        let bytes = pattern(4096);
        let reader = reader(DiskFile::new(OwnedFd::from(file(&bytes)), false).unwrap());
        assert_eq!(reader.size(), 4096);
        assert_eq!(read(&reader, 1, 4095), bytes[1..]);
        for (offset, length) in [(4095, 2), (4096, 1), (u64::MAX, 1)] {
            let error = reader.read_exact_at(&mut vec![0; length], offset).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        reader.read_exact_at(&mut [], 4096).unwrap();
    }

    #[test]
    fn aligned_reads_give_what_was_asked_for() {
        let bytes = pattern(700_000 / 512 * 512);
        let mut reader = reader(DiskFile::new(OwnedFd::from(file(&bytes)), false).unwrap());
        reader.alignment = Alignment { memory: 512, length: 4096 };
        for (offset, length) in [(0, 1), (4095, 2), (1, bytes.len() - 1), (bytes.len() - 5, 5)] {
            assert_eq!(read(&reader, offset, length), bytes[offset..offset + length]);
        }
    }

    #[test]
    fn images_are_read_with_their_overlay_on_top() {
        let bytes = pattern(256 << 10);
        let image = ImageFile { fd: file(&bytes).into(), format: ImageFormat::Raw };
        let disk =
            ImageDisk::open(vec![image], Some(tempfile::tempfile().unwrap().into())).unwrap();
        let mut written = *b"written by the guest";
        let vector = iovec { iov_base: written.as_mut_ptr().cast(), iov_len: written.len() };
        let step = Step::Write { vectors: &[vector], offset: 70_000 };
        assert_eq!(disk.medium().call(&step), Ok(written.len()));
        let mut expected = bytes;
        expected[70_000..70_000 + written.len()].copy_from_slice(&written);
        assert_eq!(read(&reader(disk), 3, expected.len() - 3), expected[3..]);
    }
}
