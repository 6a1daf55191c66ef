//! Ports of the host that lead to a guest.
//!
//! A rule takes packets to a port away from whatever program listens there, silently. So each port is also taken as a program
//! takes it: one that is in use is refused, no other program and no other VM gets it meanwhile, and tools that list
//! listening programs show who has it. Nothing arrives at these sockets, as the rules come first.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{Ipv6V6Only, ReuseAddr};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
};

use super::StandaloneError;
use crate::plan::{Port, Protocol};

/// Takes `ports` at all addresses of the host, for as long as the sockets are open.
pub(super) fn take(ports: &[Port], has_ipv6: bool) -> Result<Vec<OwnedFd>, StandaloneError> {
    let mut sockets = Vec::new();
    for port in ports {
        let four = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port.number).into();
        sockets.push(take_one(*port, four)?);
        if has_ipv6 {
            let six = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port.number, 0, 0).into();
            sockets.push(take_one(*port, six)?);
        }
    }
    Ok(sockets)
}

fn take_one(port: Port, address: SocketAddr) -> Result<OwnedFd, StandaloneError> {
    bound(port.protocol, address).map_err(|errno| match errno {
        Errno::EADDRINUSE => StandaloneError::PortTaken(port),
        source => StandaloneError::Port { port, source },
    })
}

fn bound(protocol: Protocol, address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let kind = match protocol {
        Protocol::Tcp => SockType::Stream,
        Protocol::Udp => SockType::Datagram,
    };
    let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
    if address.is_ipv6() {
        setsockopt(&socket, Ipv6V6Only, &true)?;
    }
    if protocol == Protocol::Tcp {
        // What is left of ended connections is no reason to refuse; another listener still is.
        setsockopt(&socket, ReuseAddr, &true)?;
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    if protocol == Protocol::Tcp {
        listen(&socket, Backlog::new(1)?)?;
    }
    Ok(socket)
}
