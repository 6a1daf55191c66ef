//! Where a port's bytes come from and, if it is a socket, where they go to.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use crate::host_end::{HostEnd, Received, Sent};
use crate::legacy::nonblocking;

/// A host's end that is listened to. It is told of once for each change, as a [`HostEnd`] is: one that is readable while
/// the guest takes nothing, or that has hung up, wakes nobody a second time.
pub(super) struct Channel {
    end: End,
    /// There may be something to read.
    is_readable: bool,
    /// Everything was read that will ever come.
    has_ended: bool,
    /// Nobody is there any more, though what they wrote may still be.
    is_hung_up: bool,
}

enum End {
    Socket(HostEnd),
    Input(Input),
}

impl Channel {
    /// A connected stream socket, whose events carry `number`.
    pub(super) fn socket(socket: OwnedFd, epoll: &Arc<Epoll>, number: u64) -> io::Result<Self> {
        Ok(Self::new(End::Socket(HostEnd::new(socket, epoll, number)?)))
    }

    /// Something that can only be read.
    pub(super) fn input(input: OwnedFd, epoll: &Arc<Epoll>, number: u64) -> io::Result<Self> {
        Ok(Self::new(End::Input(Input::new(input, epoll, number)?)))
    }

    fn new(end: End) -> Self {
        // It tells what it has as soon as it is listened to.
        Self { end, is_readable: false, has_ended: false, is_hung_up: false }
    }

    /// What it tells.
    pub(super) fn on_event(&mut self, events: EventSet) {
        self.is_readable |=
            !self.has_ended && events.difference(EventSet::OUT) != EventSet::empty();
        self.is_hung_up |= events.intersects(EventSet::HANG_UP | EventSet::ERROR);
    }

    pub(super) fn is_readable(&self) -> bool {
        self.is_readable
    }

    /// Whether it may take bytes.
    pub(super) fn is_writable(&self) -> bool {
        matches!(self.end, End::Socket(_)) && !self.is_hung_up
    }

    /// Whether it is of no use any more. What a socket's other end left is for whoever has the port open in the guest, or
    /// for nobody; other input is kept until it is read.
    pub(super) fn is_over(&self, has_reader: bool) -> bool {
        match self.end {
            End::Socket(_) => self.is_hung_up && (self.has_ended || !has_reader),
            End::Input(_) => self.has_ended,
        }
    }

    /// How many bytes were read, if any.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let received = match &self.end {
            End::Socket(end) => end.receive(buffer),
            End::Input(input) => input.receive(buffer),
        };
        match received {
            Received::Bytes(count) => return Some(count),
            Received::Nothing => {}
            Received::End => self.has_ended = true,
            Received::Broken => (self.has_ended, self.is_hung_up) = (true, true),
        }
        self.is_readable = false;
        None
    }

    /// How many bytes were taken; none if nobody will take any.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Option<usize> {
        let End::Socket(end) = &self.end else { return None };
        match end.send(bytes) {
            Sent::Bytes(count) => Some(count),
            Sent::Nothing => Some(0),
            Sent::Deaf => {
                self.is_hung_up = true;
                // There may be an end to be read, which nothing else tells of.
                self.is_readable = !self.has_ended;
                None
            }
        }
    }
}

/// A descriptor that is read.
struct Input {
    file: File,
    epoll: Arc<Epoll>,
}

impl Input {
    fn new(input: OwnedFd, epoll: &Arc<Epoll>, number: u64) -> io::Result<Self> {
        let file = nonblocking(input)?;
        let events = EventSet::IN | EventSet::READ_HANG_UP | EventSet::EDGE_TRIGGERED;
        epoll.ctl(ControlOperation::Add, file.as_raw_fd(), EpollEvent::new(events, number))?;
        Ok(Self { file, epoll: Arc::clone(epoll) })
    }

    fn receive(&self, buffer: &mut [u8]) -> Received {
        loop {
            return match (&self.file).read(buffer) {
                Ok(0) => Received::End,
                Ok(count) => Received::Bytes(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Nothing,
                Err(_) => Received::Broken,
            };
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // Closing is not enough: whoever handed it in may hold the same open file, which then stays listened to.
        let _ =
            self.epoll.ctl(ControlOperation::Delete, self.file.as_raw_fd(), EpollEvent::default());
    }
}

/// Where a console's output goes. Written to on vCPU threads too, so it does not block, and what it does not take is lost.
/// A reader that is gone is an error of the write: Rust's programs ignore SIGPIPE.
#[derive(Debug)]
pub(super) struct Output(File);

impl Output {
    pub(super) fn new(output: OwnedFd) -> io::Result<Self> {
        Ok(Self(nonblocking(output)?))
    }

    /// How many bytes were taken.
    pub(super) fn offer(&self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            match (&self.0).write(&bytes[taken..]) {
                Ok(count) if count > 0 => taken += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::io::pipe;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn turn(epoll: &Epoll, channel: &mut Channel) -> usize {
        let mut events = [EpollEvent::default(); 8];
        let count = epoll.wait(0, &mut events).unwrap();
        events[..count].iter().for_each(|event| channel.on_event(event.event_set()));
        count
    }

    fn socket() -> (Arc<Epoll>, Channel, UnixStream) {
        let epoll = Arc::new(Epoll::new().unwrap());
        let (ours, theirs) = UnixStream::pair().unwrap();
        let channel = Channel::socket(ours.into(), &epoll, 0).unwrap();
        (epoll, channel, theirs)
    }

    #[test]
    fn other_end_that_left_is_over_when_all_was_read() {
        let (epoll, mut channel, mut theirs) = socket();
        turn(&epoll, &mut channel);
        assert!(channel.is_writable() && !channel.is_readable());
        theirs.write_all(b"ab").unwrap();
        drop(theirs);
        turn(&epoll, &mut channel);
        assert!(!channel.is_writable() && channel.is_readable());
        assert!(channel.is_over(false) && !channel.is_over(true));
        assert_eq!(channel.receive(&mut [0; 4]), Some(2));
        assert_eq!(channel.receive(&mut [0; 4]), None);
        assert!(channel.is_over(true) && !channel.is_readable());
        assert_eq!(turn(&epoll, &mut channel), 0);
    }

    #[test]
    fn other_end_that_only_sends_no_more_still_receives() {
        let (epoll, mut channel, theirs) = socket();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        turn(&epoll, &mut channel);
        assert_eq!(channel.receive(&mut [0; 4]), None);
        assert!(channel.is_writable() && !channel.is_over(false));
        assert_eq!(channel.send(b"ab"), Some(2));
        drop(theirs);
        assert_eq!(channel.send(b"ab"), None);
        assert!(channel.is_over(true));
    }

    #[test]
    fn input_is_kept_until_it_is_read() {
        let epoll = Arc::new(Epoll::new().unwrap());
        let (reader, mut writer) = pipe().unwrap();
        let mut channel = Channel::input(reader.into(), &epoll, 0).unwrap();
        writer.write_all(b"ab").unwrap();
        drop(writer);
        turn(&epoll, &mut channel);
        assert!(!channel.is_over(false) && !channel.is_writable());
        assert_eq!(channel.send(b"x"), None);
        assert_eq!(channel.receive(&mut [0; 4]), Some(2));
        assert_eq!(channel.receive(&mut [0; 4]), None);
        assert!(channel.is_over(false));
    }

    #[test]
    fn file_cannot_be_listened_to() {
        let epoll = Arc::new(Epoll::new().unwrap());
        let file = || tempfile::tempfile().unwrap().into();
        assert!(Channel::input(file(), &epoll, 0).is_err());
        assert!(Channel::socket(file(), &epoll, 0).is_err());
    }

    #[test]
    fn output_takes_what_it_can() {
        let (reader, writer) = pipe().unwrap();
        let output = Output::new(writer.into()).unwrap();
        assert_eq!(output.offer(b"abc"), 3);
        let taken = output.offer(&vec![0; 1 << 20]);
        assert!(0 < taken && taken < 1 << 20);
        assert_eq!(output.offer(b"abc"), 0);
        drop(reader);
        assert_eq!(output.offer(b"abc"), 0);
    }
}
