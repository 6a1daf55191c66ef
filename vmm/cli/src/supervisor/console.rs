//! What the guest said: the last of it in memory for those who attach, more of it in a file.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How much is kept for viewers that are slow, before they miss something.
const KEPT: usize = 256 << 10;
/// How much of it a viewer is shown that comes later.
const REPLAYED: u64 = 64 << 10;
/// How large the file becomes before it is put aside, of which there is one at a time.
const MAX_FILE: u64 = 4 << 20;

/// The last bytes, at places counted from the first byte ever.
#[derive(Debug, Default)]
pub(super) struct History {
    bytes: VecDeque<u8>,
    /// Place behind the last one.
    end: u64,
}

impl History {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.end += bytes.len() as u64;
        let excess = self.bytes.len().saturating_sub(KEPT);
        self.bytes.drain(..excess);
    }

    /// Place behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// Where a viewer begins that has just come: at the begin of a line, if there is one.
    pub(super) fn beginning(&self) -> u64 {
        let from = self.end.saturating_sub(REPLAYED).max(self.start());
        if from == 0 {
            return from;
        }
        let skipped = usize::try_from(from - self.start()).unwrap_or(usize::MAX);
        let line = self.bytes.iter().skip(skipped).position(|byte| *byte == b'\n');
        line.map_or(from, |at| from + at as u64 + 1)
    }

    /// Bytes from `place` on that lie in one piece, and how many were missed before them. None are there at the end.
    pub(super) fn from(&self, place: u64) -> (u64, &[u8]) {
        let missed = self.start().saturating_sub(place);
        let at = usize::try_from(place + missed - self.start()).unwrap_or(usize::MAX);
        let (first, second) = self.bytes.as_slices();
        let piece = match at.checked_sub(first.len()) {
            None => &first[at..],
            Some(at) => second.get(at..).unwrap_or_default(),
        };
        (missed, piece)
    }
}

/// The file in the run directory, if it is wanted, and perhaps another one that stays.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: Option<File>,
    length: u64,
    copy: Option<File>,
}

/// The file that was put aside.
pub(crate) fn aside(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

impl Log {
    /// The file at `path`, if the object does not say that its console is not to be logged, and one that is open already: a
    /// copy that the command line asks for is made all the same.
    pub(super) fn open(path: PathBuf, is_wanted: bool, copy: Option<File>) -> io::Result<Self> {
        let file = is_wanted.then(|| File::create(&path)).transpose()?;
        Ok(Self { path, file, length: 0, copy })
    }

    /// Writes it down. A full disk must not end a VM: what cannot be written is lost. That the copy cannot be is told once,
    /// and it ends there: one with holes would be taken for all that was said.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let copied = self.copy.as_mut().map_or(Ok(()), |copy| copy.write_all(bytes));
        if copied.is_err() {
            self.copy = None;
        }
        self.write_own(bytes);
        copied
    }

    fn write_own(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else { return };
        if self.length > MAX_FILE
            && fs::rename(&self.path, aside(&self.path)).is_ok()
            && let Ok(next) = File::create(&self.path)
        {
            *file = next;
            self.length = 0;
        }
        if file.write_all(bytes).is_ok() {
            self.length += bytes.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_from(history: &History, mut place: u64) -> (u64, Vec<u8>) {
        let (mut missed, mut bytes) = (0, Vec::new());
        while place < history.end() {
            let (skipped, piece) = history.from(place);
            missed += skipped;
            bytes.extend(piece);
            place += skipped + piece.len() as u64;
        }
        (missed, bytes)
    }

    #[test]
    fn everything_is_there_until_it_is_too_old() {
        let mut history = History::default();
        assert_eq!(history.from(0), (0, &[][..]));
        history.push(b"abc");
        history.push(b"def");
        assert_eq!(all_from(&history, 2), (0, b"cdef".to_vec()));
        for number in 0..100_u8 {
            history.push(&[number; 10_000]);
        }
        assert_eq!(history.end(), 1_000_006);
        let (missed, bytes) = all_from(&history, 6);
        assert_eq!((missed, bytes.len()), (1_000_000 - KEPT as u64, KEPT));
        assert_eq!(bytes.last(), Some(&99));
        assert!(history.from(history.end()).1.is_empty());
    }

    #[test]
    fn late_viewer_begins_with_a_line() {
        let mut history = History::default();
        assert_eq!(history.beginning(), 0);
        history.push(b"first\nsecond");
        assert_eq!(history.beginning(), 0);
        for _ in 0..20_000 {
            history.push(b"another\n");
        }
        let place = history.beginning();
        assert!(history.end() - place <= REPLAYED);
        assert!(history.from(place).1.starts_with(b"another\n"));
    }

    #[test]
    fn long_output_is_put_aside_once_and_the_copy_has_all_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console.log");
        let copy = directory.path().join("copy");
        let copied = File::create(&copy).unwrap();
        let mut log = Log::open(path.clone(), true, Some(copied)).unwrap();
        for _ in 0..100 {
            log.write(&[b'x'; 100_000]).unwrap();
        }
        let length = |path: &Path| fs::metadata(path).unwrap().len();
        assert!(length(&path) <= MAX_FILE + 100_000);
        assert!(length(&aside(&path)) > MAX_FILE);
        assert_eq!(length(&copy), 10_000_000);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn console_that_is_not_to_be_logged_is_only_copied() {
        let directory = tempfile::tempdir().unwrap();
        let (path, copy) = (directory.path().join("console.log"), directory.path().join("copy"));
        let mut log = Log::open(path.clone(), false, Some(File::create(&copy).unwrap())).unwrap();
        log.write(b"words").unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read(&copy).unwrap(), b"words");
    }

    #[test]
    fn copy_that_cannot_be_written_is_told_once_and_the_rest_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console.log");
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut log = Log::open(path.clone(), true, Some(full)).unwrap();
        assert_eq!(log.write(b"one ").unwrap_err().kind(), io::ErrorKind::StorageFull);
        log.write(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one two");
    }
}
