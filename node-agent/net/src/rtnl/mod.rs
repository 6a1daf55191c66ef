//! Links, addresses and routes of a network namespace, over netlink (rtnetlink(7)).
//!
//! What is made is made so that making it again changes nothing.

mod address;
mod link;
mod route;

pub(crate) use address::Address;
pub use link::Traffic;
pub(crate) use link::{Change, Link};
pub(crate) use route::{Kind, MAIN_TABLE, Route};

use std::net::IpAddr;

use crate::netlink::{NetlinkError, Protocol, Socket};

/// Make it, unless it is there.
const CREATE: u16 = 0x400;
/// Make it, or fail.
const EXCLUSIVE: u16 = 0x200;
/// Make it in the place of one that is there.
const REPLACE: u16 = 0x100;

/// The namespace's links, addresses and routes: those of the thread that opened it, wherever it is used.
#[derive(Debug)]
pub(crate) struct Rtnl {
    socket: Socket,
}

impl Rtnl {
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        Ok(Self { socket: Socket::open(Protocol::Route)? })
    }
}

/// The family of an address, as messages have it.
fn family(address: IpAddr) -> u8 {
    // AF_INET and AF_INET6.
    if address.is_ipv4() { 2 } else { 10 }
}

/// An address of either family by its length.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}
