//! The sockets on which the guest of a network asks for its addresses, as the node agent opens them for a launcher.

use std::ffi::OsString;
use std::net::{Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use corten_link::Role;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::sockopt::{BindToDevice, Broadcast, Ipv6MulticastHops, Ipv6Ttl, Ipv6V6Only};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, bind, setsockopt,
    socket,
};

/// Servers and relays of DHCPv6, and routers, on a link.
const DHCP6_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const HOP_LIMIT: i32 = 255;
/// ICMP6_FILTER, and all types but router solicitations (133) in it.
const FILTER: libc::c_int = 1;
const NOT_SOLICITATIONS: [u32; 8] =
    [u32::MAX, u32::MAX, u32::MAX, u32::MAX, !(1 << 5), u32::MAX, u32::MAX, u32::MAX];

/// Opens those of `network` on `interface`, in the network namespace of the calling thread. Takes CAP_NET_RAW and
/// CAP_NET_BIND_SERVICE there.
pub fn address_sockets(network: &str, interface: &str) -> Result<Vec<(Role, OwnedFd)>> {
    let index = if_nametoindex(interface).with_context(|| format!("no interface {interface}"))?;
    let open = |family, kind, protocol| -> Result<OwnedFd> {
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol)?;
        setsockopt(&socket, BindToDevice, &OsString::from(interface))?;
        Ok(socket)
    };
    let dhcp4 = open(AddressFamily::Inet, SockType::Datagram, None)?;
    setsockopt(&dhcp4, Broadcast, &true)?;
    bind(dhcp4.as_raw_fd(), &SockaddrIn::new(0, 0, 0, 0, 67)).context("cannot bind port 67")?;
    let dhcp6 = open(AddressFamily::Inet6, SockType::Datagram, None)?;
    setsockopt(&dhcp6, Ipv6V6Only, &true)?;
    let any = std::net::SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 547, 0, 0);
    bind(dhcp6.as_raw_fd(), &SockaddrIn6::from(any)).context("cannot bind port 547")?;
    let router = open(AddressFamily::Inet6, SockType::Raw, Some(SockProtocol::IcmpV6))?;
    let (value, size) = (NOT_SOLICITATIONS.as_ptr(), size_of_val(&NOT_SOLICITATIONS));
    let size = libc::socklen_t::try_from(size)?;
    // SAFETY: the value is valid for reads of its size.
    let filtered = unsafe {
        libc::setsockopt(router.as_raw_fd(), libc::IPPROTO_ICMPV6, FILTER, value.cast(), size)
    };
    Errno::result(filtered).context("cannot set the filter")?;
    setsockopt(&router, Ipv6Ttl, &HOP_LIMIT)?;
    setsockopt(&router, Ipv6MulticastHops, &HOP_LIMIT)?;
    let joined = |socket: OwnedFd, group: Ipv6Addr| -> Result<OwnedFd> {
        // Raw sockets as well: joining is the same for them.
        let socket = UdpSocket::from(socket);
        socket.join_multicast_v6(&group, index).with_context(|| format!("cannot join {group}"))?;
        Ok(socket.into())
    };
    Ok(vec![
        (Role::dhcp4(network)?, dhcp4),
        (Role::dhcp6(network)?, joined(dhcp6, DHCP6_SERVERS)?),
        (Role::router(network)?, joined(router, ROUTERS)?),
    ])
}
