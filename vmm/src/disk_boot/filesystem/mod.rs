//! File systems that boot files are read from: ext2, ext3, ext4 and FAT; the others are only recognised (`identify`).
//!
//! Both readers turn a file into [`Run`]s of its volume, and what those say is read here, in one place. They are our own:
//! each is a few hundred lines, takes nothing the disk says for granted, allocates by limits of ours, and reads what
//! libraries do not (ARCHITECTURE.md has the reasons).

mod ext4;
mod fat;
mod identify;

use std::cell::RefCell;
use std::io;

use thiserror::Error;

use super::entry::shown;
use super::source::Window;
use ext4::Ext4;
use fat::Fat;
pub(super) use identify::identify;

/// What is read of a file at once.
const CHUNK: usize = 1 << 20;
/// A directory with more names is not taken for one with boot entries.
const MAX_NAMES: usize = 16384;
/// Bytes of a directory.
const MAX_DIRECTORY: u64 = 4 << 20;
/// Reasons of a file system that are told.
const MAX_TROUBLES: usize = 4;
/// Parts of a file: a 256 MiB file of which no two blocks lie together.
const MAX_RUNS: usize = 65536;

/// Why a file or directory cannot be read.
#[derive(Debug, Error)]
pub(super) enum ReadError {
    /// The disk.
    #[error("the disk cannot be read")]
    Disk(#[from] io::Error),
    /// It is not there.
    #[error("there is no such file")]
    NotFound,
    /// A file instead of a directory, or the other way round.
    #[error("it is not a {0}")]
    NotA(&'static str),
    /// Larger than it may be.
    #[error("it has {size} bytes, and there is room for {limit}")]
    TooLarge {
        /// Its size.
        size: u64,
        /// What it may have.
        limit: u64,
    },
    /// What the disk says cannot be.
    #[error("the file system is damaged: {0}")]
    Damaged(&'static str),
    /// What the disk says is not understood here.
    #[error("the file system has {0}, which is not read here")]
    Unsupported(&'static str),
}

/// Where a part of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nowhere: zeroes.
    Hole,
    /// From this byte of the volume on.
    At(u64),
    /// There, but for its first four bytes, which are these: a block of a journal that would look like one of its own.
    Escaped(u64, [u8; 4]),
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    place: Place,
    length: u64,
}

/// Where all of a file is.
#[derive(Debug)]
struct FileMap {
    size: u64,
    runs: Vec<Run>,
}

impl FileMap {
    /// One without content.
    fn new(size: u64) -> Self {
        Self { size, runs: Vec::new() }
    }

    /// Adds what comes next, to the last run if it goes on there.
    fn push(&mut self, next: Run) -> Result<(), ReadError> {
        if let Some(last) = self.runs.last_mut() {
            let goes_on = match (last.place, next.place) {
                (Place::Hole, Place::Hole) => true,
                (Place::At(start), Place::At(at)) => start.checked_add(last.length) == Some(at),
                _ => false,
            };
            if goes_on {
                last.length = last.length.saturating_add(next.length);
                return Ok(());
            }
        }
        if self.runs.len() >= MAX_RUNS {
            return Err(ReadError::Damaged("a file is in too many pieces"));
        }
        self.runs.push(next);
        Ok(())
    }

    /// Hands the content out, a chunk at a time. What lies behind the last run is zeroes.
    fn copy(
        &self,
        volume: &Window<'_>,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), ReadError> {
        let mut left = self.size;
        let mut chunk = vec![0; CHUNK];
        let tail = Run { place: Place::Hole, length: u64::MAX };
        for run in self.runs.iter().chain([&tail]) {
            let (mut done, length) = (0, run.length.min(left));
            while done < length {
                let part = usize::try_from(length - done).unwrap_or(CHUNK).min(CHUNK);
                let bytes = &mut chunk[..part];
                match run.place {
                    Place::Hole => bytes.fill(0),
                    Place::At(at) => volume.read(at.saturating_add(done), bytes)?,
                    Place::Escaped(at, first) => {
                        volume.read(at.saturating_add(done), bytes)?;
                        if let (0, Some(place)) = (done, bytes.first_chunk_mut()) {
                            *place = first;
                        }
                    }
                }
                take(bytes)?;
                done += part as u64;
            }
            left -= length;
        }
        Ok(())
    }

    /// All of it; an error if it is longer than `limit`.
    fn read(&self, volume: &Window<'_>, limit: u64) -> Result<Vec<u8>, ReadError> {
        check_size(self.size, limit)?;
        let mut bytes = Vec::new();
        self.copy(volume, &mut |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        })?;
        Ok(bytes)
    }
}

fn check_size(size: u64, limit: u64) -> Result<(), ReadError> {
    if size > limit { Err(ReadError::TooLarge { size, limit }) } else { Ok(()) }
}

/// A file system that can be read.
pub(super) struct FileSystem<'a> {
    reader: Reader<'a>,
    /// What is there and could not be read, for people.
    troubles: RefCell<Vec<String>>,
}

enum Reader<'a> {
    Ext4(Ext4<'a>),
    Fat(Fat<'a>),
}

impl<'a> FileSystem<'a> {
    /// That on `volume`; none if it is none that is read here.
    pub(super) fn open(volume: Window<'a>) -> Result<Option<Self>, ReadError> {
        if let Some(found) = Ext4::open(volume)? {
            return Ok(Some(Self::new(Reader::Ext4(found))));
        }
        Ok(Fat::open(volume)?.map(|found| Self::new(Reader::Fat(found))))
    }

    fn new(reader: Reader<'a>) -> Self {
        Self { reader, troubles: RefCell::default() }
    }

    /// Files and directories that are there and could not be read, with the reasons. A reason is told once.
    pub(super) fn troubles(&self) -> Vec<String> {
        self.troubles.borrow().clone()
    }

    /// Keeps in mind why something that is there cannot be read: who looks for it tries elsewhere.
    fn noted<T>(&self, path: &str, result: Result<T, ReadError>) -> Result<T, ReadError> {
        let why = match &result {
            Ok(_) | Err(ReadError::NotFound | ReadError::NotA(_)) => return result,
            Err(ReadError::Disk(cause)) => format!("the disk cannot be read: {cause}"),
            Err(error) => error.to_string(),
        };
        let mut troubles = self.troubles.borrow_mut();
        if troubles.len() < MAX_TROUBLES && !troubles.iter().any(|known| known.ends_with(&why)) {
            troubles.push(format!("{}: {why}", shown(path)));
        }
        result
    }

    /// For people.
    pub(super) fn kind(&self) -> &'static str {
        match &self.reader {
            Reader::Ext4(found) => found.kind(),
            Reader::Fat(found) => found.kind(),
        }
    }

    /// As it is written in `root=UUID=` and looked for by boot loaders.
    pub(super) fn uuid(&self) -> String {
        match &self.reader {
            Reader::Ext4(found) => found.uuid(),
            Reader::Fat(found) => found.serial(),
        }
    }

    /// What its user calls it.
    pub(super) fn label(&self) -> &str {
        match &self.reader {
            Reader::Ext4(found) => found.label(),
            Reader::Fat(found) => found.label(),
        }
    }

    /// The file at `path`, counted from the root of the file system, if it has at most `limit` bytes.
    pub(super) fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadError> {
        let content = self.map(path, limit).and_then(|map| map.read(self.volume(), limit));
        self.noted(path, content)
    }

    /// Hands out the file at `path`, if it has at most `limit` bytes. Returns how many it has.
    pub(super) fn copy(
        &self,
        path: &str,
        limit: u64,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, ReadError> {
        let map = self.map(path, limit)?;
        // A search has its budget; a file that was found is read whatever is left of it.
        self.volume().budget().add(map.size.saturating_mul(2).saturating_add(64 << 20));
        map.copy(self.volume(), take)?;
        Ok(map.size)
    }

    /// The size of the file at `path`.
    pub(super) fn size(&self, path: &str) -> Result<u64, ReadError> {
        let size = match &self.reader {
            Reader::Ext4(found) => found.file_size(path),
            Reader::Fat(found) => found.file_size(path),
        };
        self.noted(path, size)
    }

    /// Whether there is a file at `path`.
    pub(super) fn is_file(&self, path: &str) -> bool {
        self.size(path).is_ok()
    }

    /// Whether there is a directory at `path`.
    pub(super) fn is_directory(&self, path: &str) -> bool {
        self.list(path).is_ok()
    }

    /// The names in the directory at `path`; none of them is `.` or `..`.
    pub(super) fn list(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let names = match &self.reader {
            Reader::Ext4(found) => found.list(path),
            Reader::Fat(found) => found.list(path),
        };
        self.noted(path, names)
    }

    fn map(&self, path: &str, limit: u64) -> Result<FileMap, ReadError> {
        match &self.reader {
            Reader::Ext4(found) => found.map(path, limit),
            Reader::Fat(found) => found.map(path, limit),
        }
    }

    fn volume(&self) -> &Window<'a> {
        match &self.reader {
            Reader::Ext4(found) => found.volume(),
            Reader::Fat(found) => found.volume(),
        }
    }
}

#[cfg(any(test, feature = "fuzz"))]
pub(super) fn read_any(bytes: &Vec<u8>) {
    use super::source::Budget;
    let budget = Budget::new(64 << 20);
    let volume = Window::whole(bytes, &budget);
    let _ = identify(&volume);
    let Ok(Some(found)) = FileSystem::open(volume) else { return };
    let _ = (found.kind(), found.uuid(), found.label().len());
    for directory in ["/", "/boot", "/loader/entries"] {
        let Ok(names) = found.list(directory) else { continue };
        for name in names.iter().take(64) {
            let path = format!("{directory}/{name}");
            let _ = (found.size(&path), found.is_directory(&path));
            if let Ok(content) = found.read(&path, 1 << 20) {
                assert!(content.len() <= 1 << 20);
            }
        }
    }
}
