//! The guest's own exit status, which it writes as a number into a stream of its console device.
//!
//! `echo 3 > /dev/virtio-ports/org.corten.exit` in the guest: one mechanism, with a driver that every distribution's kernel
//! has and with no other program. Not a line on the console: the kernel's own messages come in the middle of others'.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// What the guest finds it by.
pub(super) const NAME: &str = "org.corten.exit";
/// More than any number that counts.
const MAX_LINE: usize = 16;

/// The host's end.
#[derive(Debug)]
pub(super) struct ExitStream {
    socket: UnixStream,
    line: Vec<u8>,
    /// Of the last line that was a number.
    status: Option<u8>,
    is_open: bool,
}

impl ExitStream {
    /// Takes the host's end of the stream, which does not block. `told` is what the guest told before it was saved.
    pub(super) fn new(socket: UnixStream, told: Option<u8>) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, line: Vec::new(), status: told, is_open: true })
    }

    /// To wait for it, as long as something can come.
    pub(super) fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.is_open.then(|| self.socket.as_fd())
    }

    /// Reads what is there.
    pub(super) fn read(&mut self) {
        let mut bytes = [0; 256];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => {
                    self.is_open = false;
                    return;
                }
                Ok(count) => self.take(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_open = error.kind() == ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                self.end_line();
            } else if self.line.len() <= MAX_LINE {
                self.line.push(*byte);
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.status = number(&line).or(self.status);
    }

    /// What the guest told last: a number from 0 to 255, with or without an end of line.
    pub(super) fn status(&mut self) -> Option<u8> {
        self.read();
        self.end_line();
        self.status
    }
}

fn number(line: &[u8]) -> Option<u8> {
    // One byte more than that was kept of a line that is too long.
    let text = std::str::from_utf8(line).ok().filter(|line| line.len() <= MAX_LINE)?.trim();
    // A sign is no part of a status.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn told(bytes: &[u8]) -> Option<u8> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut stream = ExitStream::new(ours, None).unwrap();
        theirs.write_all(bytes).unwrap();
        stream.read();
        stream.status()
    }

    #[test]
    fn last_number_counts() {
        let cases: [(&[u8], Option<u8>); 12] = [
            (b"", None),
            (b"3\n", Some(3)),
            (b"3", Some(3)),
            (b" 12 \r\n", Some(12)),
            (b"1\n255\n", Some(255)),
            (b"1\nnothing\n", Some(1)),
            (b"256\n", None),
            (b"-1\n", None),
            (b"+1\n", None),
            (b"\n\n", None),
            (b"00000000000000000000000007", None),
            (b"\xff\n4\n", Some(4)),
        ];
        for (bytes, status) in cases {
            assert_eq!(told(bytes), status, "{bytes:?}");
        }
    }

    #[test]
    fn status_that_was_told_before_a_save_counts_until_there_is_another() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut stream = ExitStream::new(ours, Some(3)).unwrap();
        assert_eq!(stream.status(), Some(3));
        theirs.write_all(b"5\n").unwrap();
        assert_eq!(stream.status(), Some(5));
    }

    #[test]
    fn closed_stream_is_not_waited_for() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut stream = ExitStream::new(ours, None).unwrap();
        assert!(stream.ready().is_some());
        drop(theirs);
        stream.read();
        assert!(stream.ready().is_none());
    }
}
