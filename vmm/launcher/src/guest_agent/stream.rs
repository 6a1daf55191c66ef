//! The socket to the agent's port.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::protocol::{Command, Inbox};

/// What is read in one go, so that a guest with much to say does not hold up the loop.
const AT_ONCE: usize = 16 << 10;

/// A socket that never blocks, what waits to be written to it, and what was read from it.
#[derive(Debug)]
pub(super) struct Stream {
    socket: UnixStream,
    outgoing: Vec<u8>,
    pub(super) inbox: Inbox,
}

impl Stream {
    /// One, and its other end for the VM process.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        Ok((Self { socket, outgoing: Vec::new(), inbox: Inbox::default() }, theirs.into()))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether something waits to be written.
    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Writes a command, as far as that goes now.
    pub(super) fn send(&mut self, command: Command) -> io::Result<()> {
        self.outgoing.extend(command.encode());
        self.flush()
    }

    /// Writes what waits, as far as that goes now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.socket.write(&self.outgoing) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads some of what came. `false` at the end.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = [0; AT_ONCE];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.inbox.push(&bytes[..count]);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
