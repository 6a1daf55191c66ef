//! The host's side of a TAP, in a network namespace that ends with its test.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::resume_unwind;
use std::thread;

use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{MsgFlags, recv, send};

/// What frames of tests say they are: IEEE 802's number for local experiments.
pub const EXPERIMENT: u16 = 0x88b5;

/// Runs `test` on a thread with a network of its own, without IPv6, which would send frames nobody asked for.
pub fn in_new_network(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("tests that make TAPs are run by root");
        let ipv6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        std::fs::write(ipv6, "1").or_else(no_such_file).expect("IPv6 can be turned off");
        test();
    });
    thread.join().unwrap_or_else(|panic| resume_unwind(panic));
}

/// A kernel without IPv6.
fn no_such_file(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Sends and receives frames at the host's side of tap0. Readable when there is a frame.
pub struct Wire(OwnedFd);

impl Wire {
    /// For frames of tests.
    #[expect(clippy::new_without_default, reason = "it is about tap0, which has to be there")]
    pub fn new() -> Self {
        Self::of(EXPERIMENT)
    }

    /// For frames of this type.
    pub fn of(ethernet_type: u16) -> Self {
        let protocol = ethernet_type.to_be();
        let kind = (libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol));
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind.0, kind.1) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: it was just opened, and nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let address = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).expect("it is a small number"),
            sll_protocol: protocol,
            sll_ifindex: if_nametoindex("tap0").expect("tap0 is there").cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = u32::try_from(size_of_val(&address)).expect("it is short");
        let pointer = (&raw const address).cast();
        // SAFETY: the address is valid for reads of its length.
        let result = unsafe { libc::bind(socket.as_raw_fd(), pointer, length) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        Self(socket)
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) {
        assert_eq!(send(self.0.as_raw_fd(), frame, MsgFlags::empty()), Ok(frame.len()));
    }

    /// The frame that is there: a TAP hands it on while it is written to.
    pub fn receive(&self) -> Vec<u8> {
        self.try_receive().expect("a frame was sent")
    }

    /// The frame that is there, if one is.
    pub fn try_receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 0x1_0000];
        let length = recv(self.0.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT).ok()?;
        frame.truncate(length);
        Some(frame)
    }
}

impl AsRawFd for Wire {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
