//! Sockets on which a guest asks for its addresses. The VM process answers on them; it could not open them.
//!
//! Each hears one link only, does not block and is closed by exec. They stay in the namespace they were opened in.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{
    BindToDevice, Broadcast, Ipv6MulticastHops, Ipv6RecvHopLimit, Ipv6Ttl, Ipv6V6Only,
};
use nix::sys::socket::{
    AddressFamily, SetSockOpt, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, bind,
    setsockopt, socket,
};

use crate::error::WiringError;
use crate::rtnl::Link;

/// Where DHCP servers listen (RFC 2131, 4.1).
const DHCP4: u16 = 67;
/// Where DHCPv6 servers listen, and the group they are in (RFC 9915, 7).
const DHCP6: u16 = 547;
const DHCP6_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// The group of all routers of a link.
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Neighbour discovery takes only what came from the link itself: no router has counted it down (RFC 4861, 6.1).
const HOP_LIMIT: libc::c_int = 255;
/// ICMPv6's type of a router solicitation.
const SOLICITATION: u32 = 133;
/// The option of that filter (linux/icmpv6.h).
const ICMP6_FILTER: libc::c_int = 1;

/// Where a guest asks for its IPv4 address.
pub(crate) fn dhcp4(link: &Link) -> Result<OwnedFd, WiringError> {
    let new = Opening { service: "DHCP", link };
    let socket = new.open(AddressFamily::Inet, SockType::Datagram, None)?;
    // The guest has no address yet to be answered at.
    new.set("allow broadcasts", &socket, Broadcast, &true)?;
    let address = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, DHCP4));
    bind(socket.as_raw_fd(), &address).map_err(new.failed("bind the port"))?;
    Ok(socket)
}

/// Where a guest asks for its IPv6 address.
pub(crate) fn dhcp6(link: &Link) -> Result<OwnedFd, WiringError> {
    let new = Opening { service: "DHCPv6", link };
    let socket = new.open(AddressFamily::Inet6, SockType::Datagram, None)?;
    new.set("leave IPv4 out", &socket, Ipv6V6Only, &true)?;
    let address = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, DHCP6, 0, 0));
    bind(socket.as_raw_fd(), &address).map_err(new.failed("bind the port"))?;
    new.join(socket, DHCP6_SERVERS)
}

/// Where a guest looks for routers, and hears of them.
pub(crate) fn router(link: &Link) -> Result<OwnedFd, WiringError> {
    let new = Opening { service: "router advertisement", link };
    let protocol = Some(SockProtocol::IcmpV6);
    let socket = new.open(AddressFamily::Inet6, SockType::Raw, protocol)?;
    only_solicitations(&socket).map_err(new.failed("set the filter"))?;
    new.set("set the hop limit", &socket, Ipv6Ttl, &HOP_LIMIT)?;
    new.set("set the hop limit of groups", &socket, Ipv6MulticastHops, &HOP_LIMIT)?;
    // So that whoever reads can refuse what came from further away.
    new.set("have it tell hop limits", &socket, Ipv6RecvHopLimit, &true)?;
    new.join(socket, ROUTERS)
}

struct Opening<'a> {
    service: &'static str,
    link: &'a Link,
}

impl Opening<'_> {
    fn open(
        &self,
        family: AddressFamily,
        kind: SockType,
        protocol: Option<SockProtocol>,
    ) -> Result<OwnedFd, WiringError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(family, kind, flags, protocol).map_err(self.failed("open it"))?;
        let name = OsString::from(&self.link.name);
        self.set("bind it to the link", &socket, BindToDevice, &name)?;
        Ok(socket)
    }

    fn set<O: SetSockOpt>(
        &self,
        step: &'static str,
        socket: &OwnedFd,
        option: O,
        value: &O::Val,
    ) -> Result<(), WiringError> {
        setsockopt(socket, option, value).map_err(self.failed(step))
    }

    /// Joins a group on the link, and gives the socket back.
    fn join(&self, socket: OwnedFd, group: Ipv6Addr) -> Result<OwnedFd, WiringError> {
        // For a raw socket as well: it is the same option, and std asks for nothing else.
        let socket = UdpSocket::from(socket);
        let joined = socket.join_multicast_v6(&group, self.link.index);
        let errno = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or_default());
        joined.map_err(errno).map_err(self.failed("join the group"))?;
        Ok(socket.into())
    }

    fn failed(&self, step: &'static str) -> impl Fn(Errno) -> WiringError {
        let (service, link) = (self.service, self.link.name.clone());
        move |source| WiringError::Socket { step, service, link: link.clone(), source }
    }
}

/// Has the kernel pass on router solicitations and nothing else (RFC 3542, 3.2).
fn only_solicitations(socket: &OwnedFd) -> Result<(), Errno> {
    // A bit for each type, set for those to be kept back.
    let mut kept_back = [u32::MAX; 8];
    kept_back[usize::try_from(SOLICITATION / 32).expect("a type is a byte")] &=
        !(1 << (SOLICITATION % 32));
    let size = libc::socklen_t::try_from(size_of_val(&kept_back)).expect("it has 32 bytes");
    // SAFETY: the descriptor is open, and the option's value (struct icmp6_filter: eight words) lives over the call and
    // has the size given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_ICMPV6,
            ICMP6_FILTER,
            kept_back.as_ptr().cast(),
            size,
        )
    };
    Errno::result(result).map(drop)
}
