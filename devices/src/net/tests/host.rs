//! What the host does to tap0, beside sending and receiving.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use super::super::mac::MacAddress;
use crate::testing::Wire;

nix::ioctl_write_ptr_bad!(set_address, libc::SIOCSIFADDR, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_neighbour, libc::SIOCSARP, libc::arpreq);
nix::ioctl_write_ptr_bad!(set_flags, libc::SIOCSIFFLAGS, libc::ifreq);

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
    let wire = Wire::of(u16::try_from(libc::ETH_P_IP).unwrap());
    let on: libc::c_int = 1;
    let (pointer, length) = ((&raw const on).cast(), u32::try_from(size_of_val(&on)).unwrap());
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_VNET_HDR);
    // SAFETY: the option is an int, valid for reads.
    let result = unsafe { libc::setsockopt(wire.as_raw_fd(), level, option, pointer, length) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    wire.send(&[header, frame].concat());
}
