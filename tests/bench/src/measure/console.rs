//! A guest's console, read as it is written.

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How much of a console an error shows.
const SHOWN: usize = 1500;

/// What was read of one console.
#[derive(Debug)]
pub(crate) struct Console<'a> {
    pipe: &'a PipeReader,
    bytes: Vec<u8>,
    first_byte: Option<Instant>,
}

/// When things were on the console.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Anything at all.
    pub(crate) first_byte: Instant,
    /// The whole of the text that was waited for.
    pub(crate) mark: Instant,
}

impl<'a> Console<'a> {
    pub(crate) fn new(pipe: &'a PipeReader) -> Self {
        Self { pipe, bytes: Vec::new(), first_byte: None }
    }

    /// Waits for `mark`. None: the console was closed before, or time is up.
    pub(crate) fn wait_for(&mut self, mark: &str, deadline: Instant) -> Result<Option<Seen>> {
        let mut piece = [0; 4096];
        while self.readable(deadline)? {
            let length = self.pipe.read(&mut piece)?;
            let now = Instant::now();
            if length == 0 {
                return Ok(None);
            }
            let first_byte = *self.first_byte.get_or_insert(now);
            // The mark may have begun in what came before.
            let from = self.bytes.len().saturating_sub(mark.len());
            self.bytes.extend_from_slice(&piece[..length]);
            let found = self.bytes[from..].windows(mark.len()).any(|text| text == mark.as_bytes());
            if found {
                return Ok(Some(Seen { first_byte, mark: now }));
            }
        }
        Ok(None)
    }

    fn readable(&self, deadline: Instant) -> Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.min(Duration::from_secs(3600)) + Duration::from_millis(1);
            let timeout = PollTimeout::try_from(left)?;
            let mut polled = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, timeout) {
                Err(Errno::EINTR) => {}
                outcome => return Ok(outcome? > 0),
            }
        }
    }

    /// Takes in what comes next. False: the console was closed, or time is up.
    pub(crate) fn read_more(&mut self, deadline: Instant) -> Result<bool> {
        let mut piece = [0; 4096];
        let length = if self.readable(deadline)? { self.pipe.read(&mut piece)? } else { 0 };
        self.bytes.extend_from_slice(&piece[..length]);
        Ok(length > 0)
    }

    /// All of it so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Its last lines, for an error.
    pub(crate) fn end(&self) -> String {
        let start = self.bytes.len().saturating_sub(SHOWN);
        format!("{:?}", String::from_utf8_lossy(&self.bytes[start..]))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn mark_in_two_pieces_is_found() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut console = Console::new(&reader);
        writer.write_all(b"noise GUEST").unwrap();
        assert!(console.wait_for("GUEST-UP", Instant::now()).unwrap().is_none());
        writer.write_all(b"-UP 1").unwrap();
        let seen = console.wait_for("GUEST-UP", soon()).unwrap().unwrap();
        assert!(seen.first_byte < seen.mark);
        assert_eq!(console.text(), "noise GUEST-UP 1");
    }

    #[test]
    fn console_that_is_closed_ends_the_wait() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"panic").unwrap();
        drop(writer);
        let mut console = Console::new(&reader);
        assert!(console.wait_for("GUEST-UP", soon()).unwrap().is_none());
        assert_eq!(console.end(), "\"panic\"");
    }
}
