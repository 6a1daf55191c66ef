//! The host's end of a stream of the guest's: a socket that was handed in.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// A socket, with its place among those that are listened to.
///
/// It is told of once for each change (edge-triggered): one that is readable while the guest takes nothing, or that has
/// hung up, would wake the worker without end otherwise. No call waits, whatever the other holders of the socket have
/// set: flags of an open file are shared with them.
pub(crate) struct HostEnd {
    socket: OwnedFd,
    epoll: Arc<Epoll>,
}

/// What became of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes, at least one.
    Bytes(usize),
    /// There is nothing now.
    Nothing,
    /// There will be nothing any more.
    End,
    /// The connection broke.
    Broken,
}

/// What became of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// So many bytes were taken, at least one.
    Bytes(usize),
    /// Nothing is taken now.
    Nothing,
    /// Nothing will be taken any more.
    Deaf,
}

impl HostEnd {
    /// Listens to a socket; `number` is what its events carry.
    pub(crate) fn new(socket: OwnedFd, epoll: &Arc<Epoll>, number: u64) -> io::Result<Self> {
        let events =
            EventSet::IN | EventSet::OUT | EventSet::READ_HANG_UP | EventSet::EDGE_TRIGGERED;
        let event = EpollEvent::new(events, number);
        epoll.ctl(ControlOperation::Add, socket.as_raw_fd(), event)?;
        Ok(Self { socket, epoll: Arc::clone(epoll) })
    }

    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        self.receive_with(buffer, MsgFlags::empty())
    }

    /// What [`Self::receive`] would find, without taking it: at most one byte.
    pub(crate) fn look(&self) -> Received {
        self.receive_with(&mut [0; 1], MsgFlags::MSG_PEEK)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: MsgFlags) -> Received {
        let flags = flags | MsgFlags::MSG_DONTWAIT;
        loop {
            return match recv(self.socket.as_raw_fd(), buffer, flags) {
                Ok(0) => Received::End,
                Ok(count) => Received::Bytes(count),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => Received::Nothing,
                Err(_) => Received::Broken,
            };
        }
    }

    /// An error means that nobody reads, not that nothing can be read: what the other end sent before is still there.
    pub(crate) fn send(&self, bytes: &[u8]) -> Sent {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        loop {
            return match send(self.socket.as_raw_fd(), bytes, flags) {
                Err(Errno::EINTR) => continue,
                Ok(0) | Err(Errno::EAGAIN) => Sent::Nothing,
                Ok(count) => Sent::Bytes(count),
                Err(_) => Sent::Deaf,
            };
        }
    }

    /// The other end reads to its end.
    pub(crate) fn end_sending(&self) {
        // A socket that is not connected any more has ended already.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Write);
    }

    /// The other end cannot write any more.
    pub(crate) fn end_receiving(&self) {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Read);
    }
}

impl Drop for HostEnd {
    fn drop(&mut self) {
        // Closing is not enough: whoever handed it in may hold the same open file, which then stays listened to.
        let _ = self.epoll.ctl(
            ControlOperation::Delete,
            self.socket.as_raw_fd(),
            EpollEvent::default(),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn ready(epoll: &Epoll) -> Vec<(u64, EventSet)> {
        let mut events = [EpollEvent::default(); 8];
        let count = epoll.wait(0, &mut events).unwrap();
        events[..count].iter().map(|event| (event.data(), event.event_set())).collect()
    }

    fn pair() -> (Arc<Epoll>, HostEnd, UnixStream) {
        let epoll = Arc::new(Epoll::new().unwrap());
        let (ours, theirs) = UnixStream::pair().unwrap();
        let end = HostEnd::new(ours.into(), &epoll, 7).unwrap();
        (epoll, end, theirs)
    }

    #[test]
    fn reading_goes_to_the_end_without_waiting() {
        let (_epoll, end, mut theirs) = pair();
        let mut buffer = [0; 4];
        assert_eq!(end.receive(&mut buffer), Received::Nothing);
        theirs.write_all(b"abcdef").unwrap();
        assert_eq!(end.look(), Received::Bytes(1));
        assert_eq!(end.receive(&mut buffer), Received::Bytes(4));
        drop(theirs);
        assert_eq!(end.receive(&mut buffer), Received::Bytes(2));
        assert_eq!(end.look(), Received::End);
        assert_eq!(end.receive(&mut buffer), Received::End);
    }

    #[test]
    fn writing_stops_where_nobody_takes_and_fails_where_nobody_is() {
        let (_epoll, end, theirs) = pair();
        let bytes = vec![0; 1 << 20];
        let mut outcome = end.send(&bytes);
        while let Sent::Bytes(_) = outcome {
            outcome = end.send(&bytes);
        }
        assert_eq!(outcome, Sent::Nothing);
        drop(theirs);
        assert_eq!(end.send(&bytes), Sent::Deaf);
    }

    #[test]
    fn other_end_sees_both_shutdowns() {
        let (_epoll, end, mut theirs) = pair();
        end.end_sending();
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
        end.end_receiving();
        assert_eq!(theirs.write(b"a").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn socket_that_stays_readable_wakes_once() {
        let (epoll, _end, mut theirs) = pair();
        theirs.write_all(b"a").unwrap();
        assert!(matches!(&*ready(&epoll), [(7, events)] if events.contains(EventSet::IN)));
        assert_eq!(ready(&epoll), []);
        drop(theirs);
        assert!(matches!(&*ready(&epoll), [(7, events)] if events.contains(EventSet::HANG_UP)));
        assert_eq!(ready(&epoll), []);
    }

    #[test]
    fn socket_that_another_still_holds_is_listened_to_no_more() {
        let epoll = Arc::new(Epoll::new().unwrap());
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let held = ours.try_clone().unwrap();
        drop(HostEnd::new(ours.into(), &epoll, 7).unwrap());
        theirs.write_all(b"a").unwrap();
        assert_eq!(ready(&epoll), []);
        drop(held);
    }

    #[test]
    fn what_is_no_socket_is_broken_or_refused() {
        let epoll = Arc::new(Epoll::new().unwrap());
        let file = tempfile::tempfile().unwrap();
        assert!(HostEnd::new(file.into(), &epoll, 7).is_err());
        let (pipe, _writer) = nix::unistd::pipe().unwrap();
        let end = HostEnd::new(pipe, &epoll, 7).unwrap();
        assert_eq!(end.receive(&mut [0; 4]), Received::Broken);
        assert_eq!(end.send(b"a"), Sent::Deaf);
    }
}
