//! What the machine's owner hands to the device while it works.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use thiserror::Error;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::config::TerminalSize;
use crate::pci::lock;

/// Why a socket is not taken. It is closed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AttachError {
    /// No port has this number.
    #[error("the console device has no port {0}")]
    NoPort(usize),
}

/// The owner's side of a console device: may be cloned, and used on any thread. No call waits.
#[derive(Clone)]
pub struct HostSide(Arc<Mailbox>);

impl fmt::Debug for HostSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostSide").field("guest_open", &self.0.guest_open).finish_non_exhaustive()
    }
}

impl HostSide {
    /// Makes a connected stream socket the host's end of a port, in place of whatever was there, which is closed.
    ///
    /// The socket belongs to the device from the call on. While the machine is paused or the guest has no driver it
    /// waits; of several that wait, the last one stays.
    pub fn attach(&self, port: usize, socket: OwnedFd) -> Result<(), AttachError> {
        // What was there is closed when the lock is free again.
        let _before = {
            let mut waiting = lock(&self.0.waiting);
            let place = waiting.sockets.get_mut(port).ok_or(AttachError::NoPort(port))?;
            place.replace(socket)
        };
        self.0.ring_bell();
        Ok(())
    }

    /// Whether a program of the guest has a port open, as the guest says. What is written to the socket of one that is not
    /// waits there.
    pub fn is_open(&self, port: usize) -> bool {
        self.0.guest_open.get(port).is_some_and(|is_open| is_open.load(Ordering::Acquire))
    }
}

/// What waits for the device.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By port.
    pub(super) sockets: Vec<Option<OwnedFd>>,
    pub(super) size: Option<TerminalSize>,
}

/// The device's end of it.
#[derive(Debug)]
pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    bell: EventFd,
    /// By port.
    guest_open: Vec<AtomicBool>,
}

impl Mailbox {
    pub(super) fn new(sockets: Vec<Option<OwnedFd>>) -> io::Result<Self> {
        let bell = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
        let guest_open = sockets.iter().map(|_| AtomicBool::new(false)).collect();
        let mailbox =
            Self { waiting: Mutex::new(Waiting { sockets, size: None }), bell, guest_open };
        mailbox.ring_bell();
        Ok(mailbox)
    }

    /// Readable when something waits.
    pub(super) fn bell(&self) -> &EventFd {
        &self.bell
    }

    fn ring_bell(&self) {
        // The only failure is a count of 2^64 - 1, at which it rings already.
        let _ = self.bell.write(1);
    }

    /// Has the task tell the guest a new size.
    pub(super) fn set_size(&self, size: TerminalSize) {
        lock(&self.waiting).size = Some(size);
        self.ring_bell();
    }

    /// Takes what waits, and makes the bell unreadable.
    pub(super) fn take(&self) -> Waiting {
        // It fails if nobody rang. Read before the rest is: what comes later rings anew.
        let _ = self.bell.read();
        let mut waiting = lock(&self.waiting);
        let sockets = waiting.sockets.iter_mut().map(Option::take).collect();
        Waiting { sockets, size: waiting.size.take() }
    }

    /// Takes a size that the task did not come to.
    pub(super) fn take_size(&self) -> Option<TerminalSize> {
        lock(&self.waiting).size.take()
    }

    pub(super) fn set_open(&self, port: usize, is_open: bool) {
        if let Some(place) = self.guest_open.get(port) {
            place.store(is_open, Ordering::Release);
        }
    }

    pub(super) fn side(self: &Arc<Self>) -> HostSide {
        HostSide(Arc::clone(self))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn mailbox() -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new(vec![None, None]).unwrap());
        mailbox.take();
        mailbox
    }

    #[test]
    fn last_socket_waits_and_those_before_it_are_closed() {
        let mailbox = mailbox();
        let side = mailbox.side();
        let (first, mut seen) = UnixStream::pair().unwrap();
        let (second, _kept) = UnixStream::pair().unwrap();
        side.attach(1, first.into()).unwrap();
        side.clone().attach(1, second.into()).unwrap();
        assert_eq!(seen.read(&mut [0; 1]).unwrap(), 0);
        assert!(mailbox.bell().read().is_ok());
        let waiting = mailbox.take();
        assert!(waiting.sockets[0].is_none() && waiting.sockets[1].is_some());
        assert!(mailbox.take().sockets[1].is_none());
    }

    #[test]
    fn socket_for_no_port_is_closed() {
        let mailbox = mailbox();
        let (socket, mut seen) = UnixStream::pair().unwrap();
        assert_eq!(mailbox.side().attach(2, socket.into()), Err(AttachError::NoPort(2)));
        assert_eq!(seen.read(&mut [0; 1]).unwrap(), 0);
        assert!(mailbox.bell().read().is_err());
    }

    #[test]
    fn owner_sees_who_is_open() {
        let mailbox = mailbox();
        let side = mailbox.side();
        mailbox.set_open(1, true);
        mailbox.set_open(2, true);
        assert_eq!([0, 1, 2].map(|port| side.is_open(port)), [false, true, false]);
    }
}
