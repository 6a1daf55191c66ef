//! Addresses of links.

use std::net::IpAddr;

use nix::errno::Errno;

use super::{CREATE, REPLACE, Rtnl, address, family};
use crate::netlink::{Message, NetlinkError, first, word};

/// Length of `struct ifaddrmsg`.
const FIXED: usize = 8;
/// Reachable from everywhere, as far as the kernel is told.
const GLOBAL: u8 = 0;
/// Only on its link.
const LINK: u8 = 253;
/// IFA_F_DADFAILED.
const DUPLICATE: u32 = 0x08;

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) link: u32,
    pub(crate) ip: IpAddr,
    pub(crate) prefix: u8,
    pub(crate) is_global: bool,
}

impl Rtnl {
    /// All addresses of the namespace that work.
    pub(crate) fn addresses(&mut self) -> Result<Vec<Address>, NetlinkError> {
        let replies = self.socket.dump(&Message::new(libc::RTM_GETADDR, 0, &[0; FIXED]))?;
        Ok(replies.iter().filter_map(|reply| parse(&reply.body)).collect())
    }

    /// Gives a link an address. Nobody is asked whether it is taken: IPv6 would wait for a second.
    pub(crate) fn add_address(
        &mut self,
        link: u32,
        ip: IpAddr,
        prefix: u8,
    ) -> Result<(), NetlinkError> {
        let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let scope = if is_link_local { LINK } else { GLOBAL };
        let message =
            Message::new(libc::RTM_NEWADDR, CREATE | REPLACE, &fixed(link, ip, prefix, scope))
                .address(libc::IFA_LOCAL, ip)
                .address(libc::IFA_ADDRESS, ip)
                .word(libc::IFA_FLAGS, libc::IFA_F_NODAD);
        self.socket.acknowledged(message)
    }

    /// Takes an address from its link; one that is gone is no error.
    pub(crate) fn delete_address(&mut self, address: Address) -> Result<(), NetlinkError> {
        let fixed = fixed(address.link, address.ip, address.prefix, GLOBAL);
        let message =
            Message::new(libc::RTM_DELADDR, 0, &fixed).address(libc::IFA_LOCAL, address.ip);
        match self.socket.acknowledged(message) {
            Err(error) if error.is(Errno::EADDRNOTAVAIL) => Ok(()),
            outcome => outcome,
        }
    }
}

/// `struct ifaddrmsg`.
fn fixed(link: u32, ip: IpAddr, prefix: u8, scope: u8) -> [u8; FIXED] {
    let [a, b, c, d] = link.to_ne_bytes();
    [family(ip), prefix, 0, scope, a, b, c, d]
}

fn parse(body: &[u8]) -> Option<Address> {
    let rest = body.get(FIXED..)?;
    // IFA_ADDRESS is the other end's where the link has one; IPv6 has no IFA_LOCAL without it.
    let ip = first(rest, libc::IFA_LOCAL).or_else(|| first(rest, libc::IFA_ADDRESS))?;
    let flags = first(rest, libc::IFA_FLAGS).and_then(word).unwrap_or_default();
    let address = Address {
        link: word(&body[4..8])?,
        ip: address(ip)?,
        prefix: body[1],
        is_global: body[3] == GLOBAL,
    };
    (flags & DUPLICATE == 0).then_some(address)
}
