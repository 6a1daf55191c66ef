//! What is typed at the serial console, on its way from a socket of the host's into the port.
//!
//! A task for an I/O worker, as the queues of virtio devices have them. It reads as much as the port has room for and no
//! more: what the guest has not asked for yet stays in the socket, whose writer is told to wait by that. So a pause leaves
//! nothing behind here, and a machine that goes on elsewhere goes on with the same socket.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use vmm_sys_util::epoll::{Epoll, EpollEvent};

use super::serial::Serial;
use super::uart::INPUT_SIZE;
use crate::host_end::{HostEnd, Received};
use crate::virtio::{DrainError, QueueTask, Wakeup};

const HOST: u32 = 0;
const ROOM: u32 = 1;

/// How often the port is filled before the worker looks at what else it has to do.
const ROUNDS: usize = 64;

/// The task.
pub struct SerialInput {
    serial: Arc<Serial>,
    epoll: Arc<Epoll>,
    /// None once nothing more can come.
    end: Option<HostEnd>,
    /// Was read but not taken: the guest turned to loopback in between.
    left: Vec<u8>,
}

impl SerialInput {
    /// Brings to `serial` what comes from `socket`.
    pub fn new(serial: Arc<Serial>, socket: OwnedFd) -> io::Result<Self> {
        let epoll = Arc::new(Epoll::new()?);
        let end = HostEnd::new(socket, &epoll, 0)?;
        Ok(Self { serial, epoll, end: Some(end), left: Vec::with_capacity(INPUT_SIZE) })
    }

    fn feed(&mut self) {
        for _ in 0..ROUNDS {
            if !self.feed_once() {
                return;
            }
        }
        // There may be more, for which nobody else wakes it.
        let _ = self.serial.room().write(1);
    }

    /// Fills the port; whether there may be more to do at once.
    fn feed_once(&mut self) -> bool {
        let taken = self.serial.push_input(&self.left);
        self.left.drain(..taken);
        let wanted = if self.left.is_empty() { self.serial.input_wanted() } else { 0 };
        let Some(end) = self.end.as_ref().filter(|_| wanted > 0) else { return false };
        let mut bytes = [0; INPUT_SIZE];
        match end.receive(&mut bytes[..wanted]) {
            Received::Bytes(count) => {
                let taken = self.serial.push_input(&bytes[..count]);
                self.left.extend(&bytes[taken..count]);
                true
            }
            Received::Nothing => false,
            Received::End | Received::Broken => {
                self.end = None;
                false
            }
        }
    }
}

impl QueueTask for SerialInput {
    fn wakeups(&self) -> Vec<Wakeup> {
        vec![
            Wakeup::while_readable(self.epoll.as_raw_fd(), HOST),
            Wakeup::while_readable(self.serial.room().as_raw_fd(), ROOM),
        ]
    }

    fn on_event(&mut self, token: u32) {
        if token == HOST {
            let _ = self.epoll.wait(0, &mut [EpollEvent::default(); 2]);
        } else {
            let _ = self.serial.room().read();
        }
        self.feed();
    }

    fn drain(&mut self) -> Result<usize, DrainError> {
        Ok(0)
    }

    fn rearm(&mut self) {
        self.feed();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::super::testing::read_byte;
    use super::*;
    use crate::{Interrupt, Registers};

    fn rig() -> (SerialInput, Arc<Serial>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serial = Serial::new(Interrupt::new().unwrap(), Box::new(io::sink())).unwrap();
        let serial = Arc::new(serial);
        (SerialInput::new(Arc::clone(&serial), ours.into()).unwrap(), serial, theirs)
    }

    fn guest_reads(serial: &Serial) -> Vec<u8> {
        let mut bytes = Vec::new();
        while read_byte(serial, 5) & 1 != 0 {
            bytes.push(read_byte(serial, 0));
        }
        bytes
    }

    /// What a worker does as long as there is something to do.
    fn work(input: &mut SerialInput) {
        loop {
            let mut fds: Vec<nix::libc::pollfd> = input
                .wakeups()
                .iter()
                .map(|wakeup| nix::libc::pollfd {
                    fd: wakeup.fd,
                    events: nix::libc::POLLIN,
                    revents: 0,
                })
                .collect();
            let count = nix::libc::nfds_t::try_from(fds.len()).unwrap();
            // SAFETY: the array is as long as it says.
            let ready = unsafe { nix::libc::poll(fds.as_mut_ptr(), count, 0) };
            if ready == 0 {
                return;
            }
            for wakeup in input.wakeups() {
                if fds.iter().any(|fd| fd.fd == wakeup.fd && fd.revents != 0) {
                    input.on_event(wakeup.token);
                }
            }
        }
    }

    #[test]
    fn everything_reaches_the_guest_in_order_as_fast_as_it_reads() {
        let (mut input, serial, mut host) = rig();
        let sent: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        host.write_all(&sent).unwrap();
        let mut read = Vec::new();
        while read.len() < sent.len() {
            work(&mut input);
            let bytes = guest_reads(&serial);
            assert!((1..=INPUT_SIZE).contains(&bytes.len()), "{}", bytes.len());
            read.extend(bytes);
        }
        assert_eq!(read, sent);
    }

    #[test]
    fn what_the_guest_does_not_want_stays_in_the_socket() {
        let (mut input, serial, mut host) = rig();
        host.write_all(&[7; 3 * INPUT_SIZE]).unwrap();
        work(&mut input);
        let Some(end) = input.end.take() else { panic!("it is open") };
        assert_eq!(end.receive(&mut [0; 1000]), Received::Bytes(2 * INPUT_SIZE));
        assert_eq!(guest_reads(&serial).len(), INPUT_SIZE);
        assert!(input.left.is_empty());
    }

    #[test]
    fn input_of_a_guest_in_loopback_waits() {
        let (mut input, serial, mut host) = rig();
        let _ = serial.write(4, &[0x10]);
        host.write_all(b"ls\n").unwrap();
        work(&mut input);
        let _ = serial.write(4, &[0]);
        work(&mut input);
        assert_eq!(guest_reads(&serial), b"ls\n");
    }

    #[test]
    fn end_of_the_host_is_no_work_without_end() {
        let (mut input, serial, mut host) = rig();
        host.write_all(b"bye").unwrap();
        drop(host);
        work(&mut input);
        assert_eq!(guest_reads(&serial), b"bye");
        work(&mut input);
        assert!(input.end.is_none());
    }

    #[test]
    fn host_is_never_written_to() {
        let (mut input, _serial, mut host) = rig();
        work(&mut input);
        host.set_nonblocking(true).unwrap();
        assert_eq!(host.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
