//! The host's side of a TAP, in a network namespace that ends with its test.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::resume_unwind;
use std::thread;

use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use super::super::mac::MacAddress;

nix::ioctl_write_ptr_bad!(set_address, libc::SIOCSIFADDR, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_neighbour, libc::SIOCSARP, libc::arpreq);
nix::ioctl_write_ptr_bad!(set_flags, libc::SIOCSIFFLAGS, libc::ifreq);

/// What frames of these tests say they are: IEEE 802's number for local experiments.
const EXPERIMENT: u16 = 0x88b5;

/// Runs `test` on a thread with a network of its own, without IPv6, which would send frames nobody asked for.
pub(super) fn in_new_network(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("tests that make TAPs are run by root");
        let ipv6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        std::fs::write(ipv6, "1").or_else(no_such_file).unwrap();
        test();
    });
    thread.join().unwrap_or_else(|panic| resume_unwind(panic));
}

/// A kernel without IPv6.
fn no_such_file(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Sends and receives frames at the host's side of tap0.
pub(super) struct Wire(OwnedFd);

impl Wire {
    pub(super) fn new() -> Self {
        Self::of(EXPERIMENT.into())
    }

    /// For frames of this type.
    fn of(ethernet_type: libc::c_int) -> Self {
        let protocol = u16::try_from(ethernet_type).unwrap().to_be();
        let kind = (libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol));
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind.0, kind.1) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: it was just opened, and nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let address = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).unwrap(),
            sll_protocol: protocol,
            sll_ifindex: if_nametoindex("tap0").unwrap().cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = u32::try_from(size_of_val(&address)).unwrap();
        let pointer = (&raw const address).cast();
        // SAFETY: the address is valid for reads of its length.
        let result = unsafe { libc::bind(socket.as_raw_fd(), pointer, length) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        Self(socket)
    }

    pub(super) fn send(&self, frame: &[u8]) {
        assert_eq!(send(self.0.as_raw_fd(), frame, MsgFlags::empty()), Ok(frame.len()));
    }

    /// The frame that is there: a TAP hands it on while it is written to.
    pub(super) fn receive(&self) -> Vec<u8> {
        self.try_receive().expect("a frame was sent")
    }

    pub(super) fn try_receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 0x1_0000];
        let length = recv(self.0.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT).ok()?;
        frame.truncate(length);
        Some(frame)
    }
}

fn request() -> libc::ifreq {
    let mut ifr_name = [0; libc::IFNAMSIZ];
    for (place, byte) in ifr_name.iter_mut().zip(*b"tap0") {
        *place = byte.cast_signed();
    }
    libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_ifindex: 0 } }
}

fn control_socket() -> OwnedFd {
    socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).unwrap()
}

fn internet(address: Ipv4Addr) -> libc::sockaddr {
    let [a, b, c, d] = address.octets().map(u8::cast_signed);
    let mut sa_data = [0; 14];
    sa_data[2..6].copy_from_slice(&[a, b, c, d]);
    libc::sockaddr { sa_family: u16::try_from(libc::AF_INET).unwrap(), sa_data }
}

/// Gives tap0 the address 10.0.0.1, and tells it where 10.0.0.2 is.
pub(super) fn give_addresses(guest: MacAddress) {
    let socket = control_socket();
    let mut address = request();
    address.ifr_ifru.ifru_addr = internet(Ipv4Addr::new(10, 0, 0, 1));
    // SAFETY: the request is valid for reads and names its interface with a final NUL.
    unsafe { set_address(socket.as_raw_fd(), &raw const address) }.unwrap();
    let mut hardware = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
    for (place, byte) in hardware.sa_data.iter_mut().zip(guest.0) {
        *place = byte.cast_signed();
    }
    let neighbour = libc::arpreq {
        arp_pa: internet(Ipv4Addr::new(10, 0, 0, 2)),
        arp_ha: hardware,
        // ATF_COM and ATF_PERM, of linux/if_arp.h.
        arp_flags: 2 | 4,
        arp_netmask: internet(Ipv4Addr::UNSPECIFIED),
        arp_dev: address.ifr_name,
    };
    // SAFETY: the request is valid for reads and names its interface with a final NUL.
    unsafe { set_neighbour(socket.as_raw_fd(), &raw const neighbour) }.unwrap();
}

/// Takes tap0 up or down.
pub(super) fn set_up(up: bool) {
    let mut request = request();
    request.ifr_ifru.ifru_flags = if up { 1 } else { 0 };
    // SAFETY: the request is valid for reads and names its interface with a final NUL.
    unsafe { set_flags(control_socket().as_raw_fd(), &raw const request) }.unwrap();
}

/// Deletes tap0, whoever has its queues.
pub(super) fn delete() {
    let protocol = SockProtocol::NetlinkRoute;
    let socket =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).unwrap();
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes());
    message.extend(libc::RTM_DELLINK.to_ne_bytes());
    // A request whose result is told.
    message.extend(u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_ACK).unwrap().to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 4]);
    message.extend(if_nametoindex("tap0").unwrap().to_ne_bytes());
    message.extend([0; 8]);
    assert_eq!(send(socket.as_raw_fd(), &message, MsgFlags::empty()), Ok(32));
    let mut answer = [0; 256];
    recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).unwrap();
    assert!(if_nametoindex("tap0").is_err());
}

/// Sends a frame behind the 10 bytes of a header that say how it is to be segmented.
pub(super) fn send_segmented(header: &[u8], frame: &[u8]) {
    let wire = Wire::of(libc::ETH_P_IP);
    let on: libc::c_int = 1;
    let (pointer, length) = ((&raw const on).cast(), u32::try_from(size_of_val(&on)).unwrap());
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_VNET_HDR);
    // SAFETY: the option is an int, valid for reads.
    let result = unsafe { libc::setsockopt(wire.0.as_raw_fd(), level, option, pointer, length) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    wire.send(&[header, frame].concat());
}
