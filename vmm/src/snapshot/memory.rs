//! The memory file: guest memory as it was, with a checksum of each chunk.
//!
//! | from | what |
//! |---|---|
//! | 0 | header: magic, version, size of a chunk, id of the snapshot, size of guest memory, checksum |
//! | 64 KiB | guest memory, page for page as in the memfd; a page of zeros is a hole |
//! | behind it | index: for each chunk its checksum and which of its pages are not zero, in pages of 508 chunks |
//!
//! Every page of the index has the snapshot's id, its own number and its own checksum, so that each can be read, and
//! trusted, alone: a machine begins to run before most of the file was looked at. Numbers are little endian.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use thiserror::Error;

use super::SnapshotId;
use super::checksum::checksum;
use crate::ram::{CHUNK, CHUNK_BYTES, PageSource, Present, SourceError, next_data};

const MAGIC: [u8; 8] = *b"CRTNMEM\n";
const VERSION: u32 = 1;
const PAGE: usize = 4096;
/// Where guest memory begins in the file.
const DATA: u64 = CHUNK;
/// What of the first page is checked.
const HEADER: usize = 40;
/// Where entries begin in a page of the index.
const FIRST_ENTRY: usize = 24;
const ENTRY: usize = 8;
/// Chunks in a page of the index.
const ENTRIES: u64 = 508;
/// Where the checksum is in a page of the index.
const PAGE_CHECKSUM: usize = PAGE - 4;

/// Why a memory file cannot be written or used.
#[derive(Debug, Error)]
pub enum MemoryFileError {
    /// A system call failed.
    #[error("cannot {what} the memory file")]
    Io {
        /// Which one.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Guest memory cannot be read.
    #[error("cannot read guest memory")]
    Memory(#[source] io::Error),
    /// Something else.
    #[error("it is no memory file of a snapshot: its first bytes are {0:02x?}")]
    Magic([u8; 8]),
    /// Made by another release.
    #[error("the memory file has version {0}, this build reads {VERSION}: a newer build made it")]
    Version(u32),
    /// The header is not as it was written.
    #[error("the header of the memory file is damaged")]
    Header,
    /// That of another snapshot.
    #[error("the memory file belongs to the snapshot {found}, the records to {expected}")]
    Foreign {
        /// Its snapshot.
        found: SnapshotId,
        /// That of the records.
        expected: SnapshotId,
    },
    /// For a machine of another size.
    #[error("the memory file is of {found} bytes of guest memory, the machine has {expected}")]
    Size {
        /// Its size.
        found: u64,
        /// The machine's.
        expected: u64,
    },
    /// Cut off, or something was added.
    #[error("the memory file has {found} bytes, it must have {expected}")]
    Length {
        /// How many it has.
        found: u64,
        /// How many it had.
        expected: u64,
    },
    /// A page of the index is not as it was written.
    #[error("page {0} of the index of the memory file is damaged")]
    Index(u64),
    /// Guest memory is not as it was written.
    #[error(
        "guest memory from byte {offset:#x} on is damaged: checksum {found:#010x}, not {expected:#010x}"
    )]
    Chunk {
        /// Where the chunk begins in guest memory.
        offset: u64,
        /// Checksum of what is there.
        found: u32,
        /// Checksum of what was there.
        expected: u32,
    },
}

fn io(what: &'static str) -> impl Fn(io::Error) -> MemoryFileError {
    move |source| MemoryFileError::Io { what, source }
}

/// How the parts of a file follow from the size of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    size: u64,
}

impl Layout {
    fn chunks(self) -> u64 {
        self.size.div_ceil(CHUNK)
    }

    /// Bytes of chunk `number`: the last may be shorter.
    fn chunk_length(self, number: u64) -> usize {
        let left = self.size.saturating_sub(number.saturating_mul(CHUNK));
        usize::try_from(left.min(CHUNK)).unwrap_or_default()
    }

    fn index_page(self, number: u64) -> u64 {
        DATA + self.chunks() * CHUNK + number * PAGE as u64
    }

    fn length(self) -> u64 {
        self.index_page(self.chunks().div_ceil(ENTRIES))
    }
}

fn header(id: SnapshotId, size: u64) -> [u8; HEADER + 4] {
    let mut bytes = [0; HEADER + 4];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&u32::try_from(CHUNK).unwrap_or_default().to_le_bytes());
    bytes[16..32].copy_from_slice(&id.0);
    bytes[32..40].copy_from_slice(&size.to_le_bytes());
    let sum = checksum(&bytes[..HEADER]);
    bytes[HEADER..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}

/// A page of the index while it is made.
struct IndexPage {
    bytes: [u8; PAGE],
    number: u64,
    entries: u64,
}

impl IndexPage {
    fn new(id: SnapshotId, number: u64) -> Self {
        let mut bytes = [0; PAGE];
        bytes[..16].copy_from_slice(&id.0);
        bytes[16..24].copy_from_slice(&number.to_le_bytes());
        Self { bytes, number, entries: 0 }
    }

    fn push(&mut self, sum: u32, present: Present) {
        let at = FIRST_ENTRY + usize::try_from(self.entries).unwrap_or_default() * ENTRY;
        self.bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        self.bytes[at + 4..at + 6].copy_from_slice(&present.0.to_le_bytes());
        self.entries += 1;
    }

    fn write(mut self, file: &File, layout: Layout) -> Result<(), MemoryFileError> {
        let sum = checksum(&self.bytes[..PAGE_CHECKSUM]);
        self.bytes[PAGE_CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&self.bytes, layout.index_page(self.number)).map_err(io("write"))
    }
}

/// Writes `size` bytes of guest memory from its memfd to the empty `file`, and has them on the disk when it returns.
///
/// What is a hole in the memfd is looked for there, and is never read. Nothing of the machine may run.
pub fn write_memory(
    file: &File,
    id: SnapshotId,
    memory: &File,
    size: u64,
) -> Result<(), MemoryFileError> {
    let layout = Layout { size };
    file.set_len(layout.length()).map_err(io("size"))?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut index = IndexPage::new(id, 0);
    let mut data = next_data(memory, 0).map_err(MemoryFileError::Memory)?;
    for number in 0..layout.chunks() {
        let (start, length) = (number * CHUNK, layout.chunk_length(number));
        if data.is_some_and(|data| data < start) {
            data = next_data(memory, start).map_err(MemoryFileError::Memory)?;
        }
        if data.is_some_and(|data| data < start + CHUNK) {
            let bytes = &mut buffer[..length];
            memory.read_exact_at(bytes, start).map_err(MemoryFileError::Memory)?;
            let present = Present::of(bytes);
            for run in present.runs() {
                let at = DATA + start + run.start as u64;
                file.write_all_at(&bytes[run], at).map_err(io("write"))?;
            }
            index.push(checksum(bytes), present);
        } else {
            index.push(0, Present(0));
        }
        if index.entries == ENTRIES {
            let next = IndexPage::new(id, index.number + 1);
            std::mem::replace(&mut index, next).write(file, layout)?;
        }
    }
    if index.entries > 0 {
        index.write(file, layout)?;
    }
    file.write_all_at(&header(id, size), 0).map_err(io("write"))?;
    file.sync_all().map_err(io("sync"))
}

/// A memory file to be read.
#[derive(Debug)]
pub struct MemoryFile {
    file: File,
    id: SnapshotId,
    layout: Layout,
    /// The page of the index that was used last.
    index: Option<(u64, Box<[u8; PAGE]>)>,
    bytes_read: u64,
}

impl MemoryFile {
    /// The memory of this size of this snapshot. No more than the header is read.
    pub fn open(file: File, id: SnapshotId, size: u64) -> Result<Self, MemoryFileError> {
        let metadata = file.metadata().map_err(io("look at"))?;
        let mut bytes = [0; HEADER + 4];
        let read = file.read_exact_at(&mut bytes, 0);
        if metadata.len() >= bytes.len() as u64 {
            read.map_err(io("read"))?;
        }
        let mut magic = [0; 8];
        magic.copy_from_slice(&bytes[..8]);
        if magic != MAGIC {
            return Err(MemoryFileError::Magic(magic));
        }
        let version = u32_at(&bytes, 8);
        if version > VERSION {
            return Err(MemoryFileError::Version(version));
        }
        if checksum(&bytes[..HEADER]) != u32_at(&bytes, HEADER) {
            return Err(MemoryFileError::Header);
        }
        let mut found = SnapshotId([0; 16]);
        found.0.copy_from_slice(&bytes[16..32]);
        if found != id {
            return Err(MemoryFileError::Foreign { found, expected: id });
        }
        let layout = Layout { size };
        if bytes != header(id, size) {
            return Err(MemoryFileError::Size { found: u64_at(&bytes, 32), expected: size });
        }
        let (found, expected) = (metadata.len(), layout.length());
        if found != expected {
            return Err(MemoryFileError::Length { found, expected });
        }
        Ok(Self { file, id, layout, index: None, bytes_read: bytes.len() as u64 })
    }

    fn entry(&mut self, number: u64) -> Result<(u32, Present), MemoryFileError> {
        let page = number / ENTRIES;
        let kept = self.index.take().filter(|(kept, _)| *kept == page);
        let (_, bytes) = match kept {
            Some(kept) => self.index.insert(kept),
            None => {
                let bytes = self.read_index(page)?;
                self.index.insert((page, bytes))
            }
        };
        let at = FIRST_ENTRY + usize::try_from(number % ENTRIES).unwrap_or_default() * ENTRY;
        let present = u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]);
        Ok((u32_at(&bytes[..], at), Present(present)))
    }

    fn read_index(&mut self, page: u64) -> Result<Box<[u8; PAGE]>, MemoryFileError> {
        let mut bytes = Box::new([0; PAGE]);
        let at = self.layout.index_page(page);
        self.file.read_exact_at(&mut bytes[..], at).map_err(io("read"))?;
        self.bytes_read += PAGE as u64;
        let good = checksum(&bytes[..PAGE_CHECKSUM]) == u32_at(&bytes[..], PAGE_CHECKSUM)
            && bytes[..16] == self.id.0
            && u64_at(&bytes[..], 16) == page;
        if good { Ok(bytes) } else { Err(MemoryFileError::Index(page)) }
    }

    fn read(&mut self, number: u64, buffer: &mut [u8]) -> Result<Present, MemoryFileError> {
        let (expected, present) = self.entry(number)?;
        if present == Present(0) {
            return Ok(present);
        }
        let offset = number * CHUNK;
        self.file.read_exact_at(buffer, DATA + offset).map_err(io("read"))?;
        self.bytes_read += buffer.len() as u64;
        let found = checksum(buffer);
        if found == expected && Present::of(buffer) == present {
            Ok(present)
        } else {
            Err(MemoryFileError::Chunk { offset, found, expected })
        }
    }
}

impl PageSource for MemoryFile {
    fn chunk(&mut self, number: u64, buffer: &mut [u8]) -> Result<Present, SourceError> {
        Ok(self.read(number, buffer)?)
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const ID: SnapshotId = SnapshotId([7; 16]);
    /// Not a whole number of chunks.
    const SIZE: u64 = 40 << 20 | 0x3000;

    /// Memory with something in its first page, across two chunks, in the second page of the index, and in its last page.
    fn memory() -> File {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(SIZE).unwrap();
        for (at, length) in [(5, 1), (0x1_f000, 0x2000), (35 << 20, 0x1_0000), (SIZE - 3, 3)] {
            file.write_all_at(&vec![9; length], at).unwrap();
        }
        // Allocated, and all zero.
        file.write_all_at(&[0; 0x1000], 0x50_0000).unwrap();
        file
    }

    fn written() -> File {
        let file = tempfile::tempfile().unwrap();
        write_memory(&file, ID, &memory(), SIZE).unwrap();
        file
    }

    fn read_all(file: &mut MemoryFile) -> Result<Vec<u8>, MemoryFileError> {
        let mut all = vec![0; usize::try_from(SIZE).unwrap()];
        for (number, bytes) in (0..).zip(all.chunks_mut(0x1_0000)) {
            let mut buffer = vec![1; bytes.len()];
            for run in file.read(number, &mut buffer)?.runs() {
                bytes[run.clone()].copy_from_slice(&buffer[run]);
            }
        }
        Ok(all)
    }

    fn refused(file: &File) -> String {
        let file = file.try_clone().unwrap();
        MemoryFile::open(file, ID, SIZE).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let memory = memory();
        let before = memory.metadata().unwrap().blocks();
        let mut expected = vec![0; usize::try_from(SIZE).unwrap()];
        memory.read_exact_at(&mut expected, 0).unwrap();
        let mut file = MemoryFile::open(written(), ID, SIZE).unwrap();
        assert!(file.bytes_read() < 100);
        assert!(read_all(&mut file).unwrap() == expected);
        assert_eq!(memory.metadata().unwrap().blocks(), before, "holes were filled");
    }

    #[test]
    fn holes_take_no_room_and_are_not_read() {
        let file = written();
        // Header, two pages of the index, and the 20 pages that are not zero.
        assert!(file.metadata().unwrap().blocks() * 512 <= 23 * 0x1000 + 0x8000);
        let mut file = MemoryFile::open(file, ID, SIZE).unwrap();
        read_all(&mut file).unwrap();
        let (chunks, tail) = (4 * CHUNK, 0x3000);
        assert_eq!(file.bytes_read(), 44 + 2 * 0x1000 + chunks + tail);
    }

    #[test]
    fn foreign_and_damaged_headers_are_refused_by_what_is_wrong() {
        let file = tempfile::tempfile().unwrap();
        assert!(refused(&file).contains("no memory file of a snapshot"), "{}", refused(&file));
        let file = written();
        file.write_all_at(b"ELF", 1).unwrap();
        assert!(refused(&file).contains("no memory file of a snapshot"));
        let file = written();
        file.write_all_at(&2_u32.to_le_bytes(), 8).unwrap();
        assert!(refused(&file).contains("version 2, this build reads 1"));
        let file = written();
        file.write_all_at(&[8], 20).unwrap();
        assert_eq!(refused(&file), "the header of the memory file is damaged");
        let other = SnapshotId([8; 16]);
        let error = MemoryFile::open(written(), other, SIZE).unwrap_err().to_string();
        assert!(error.contains("belongs to the snapshot 0707"), "{error}");
        let error = MemoryFile::open(written(), ID, SIZE + 4096).unwrap_err();
        assert!(matches!(error, MemoryFileError::Size { found: SIZE, .. }), "{error}");
    }

    #[test]
    fn truncated_and_longer_files_are_refused() {
        for change in [-1, 1] {
            let file = written();
            let length = file.metadata().unwrap().len();
            file.set_len(length.checked_add_signed(change).unwrap()).unwrap();
            let text = refused(&file);
            assert!(text.contains(&format!("it must have {length}")), "{text}");
        }
    }

    #[test]
    fn damage_anywhere_is_found_when_it_is_read() {
        let length = written().metadata().unwrap().len();
        let index = Layout { size: SIZE }.index_page(0);
        for (at, wrong) in [
            (DATA + 5, "guest memory from byte 0x0 on is damaged"),
            // In what was a hole of a chunk that has something.
            (DATA + 0x8000, "guest memory from byte 0x0 on is damaged"),
            (DATA + SIZE - 1, "guest memory from byte 0x2800000 on is damaged"),
            (index + 30, "page 0 of the index of the memory file is damaged"),
            (length - 2000, "page 1 of the index of the memory file is damaged"),
        ] {
            let file = written();
            file.write_all_at(&[0x55], at).unwrap();
            let mut file = MemoryFile::open(file, ID, SIZE).unwrap();
            let text = read_all(&mut file).unwrap_err().to_string();
            assert!(text.starts_with(wrong), "{text}");
        }
    }

    #[test]
    fn pages_of_the_index_cannot_change_places() {
        let file = written();
        let layout = Layout { size: SIZE };
        let mut page = [0; PAGE];
        file.read_exact_at(&mut page, layout.index_page(1)).unwrap();
        file.write_all_at(&page, layout.index_page(0)).unwrap();
        let mut file = MemoryFile::open(file, ID, SIZE).unwrap();
        assert!(matches!(read_all(&mut file), Err(MemoryFileError::Index(0))));
    }
}
