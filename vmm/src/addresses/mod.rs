//! What a guest asks about its addresses, answered by the VM process itself: DHCP, DHCPv6 and router solicitations.
//!
//! ```text
//!   guest ── virtio-net ── TAP ══ the host's device ── dhcp4/NAME, dhcp6/NAME, router/NAME ── thread `addresses`
//! ```
//!
//! There is one guest on a link, and one address of each family for it, so there is nothing to lease, to remember or to run
//! out of: an answer follows from the question and from [`Addressing`] alone. [`Dhcp4`], [`Dhcp6`] and [`Router`] are pure
//! functions from a packet to the answer; the thread ([`Addresses`]) only moves bytes between them and the sockets.
//!
//! **What is said.** DHCP: RFC 2131 and 2132, classless routes (RFC 3442), domain search (RFC 3397), the client's
//! identifier (RFC 6842), and what else the interface's user wants told (time servers, boot file, a site's own options);
//! leases of 999 days. DHCPv6: RFC 8415 with one address (IA_NA), rapid commit, name servers and
//! domains (RFC 3646). Router advertisements: RFC 4861 with name servers and domains (RFC 8106). Advertisements leave
//! addresses to DHCPv6 (M and O set, no prefix for autoconfiguration): the guest has the one address that the host
//! translates or routes, and any other would lead nowhere.
//!
//! **Who is answered.** DHCP: the guest's Ethernet address only, as others may ask on a bridge. DHCPv6 and solicitations:
//! whoever asks, if the host's side is the link's router, as there the guest is alone. Otherwise only who shows the guest's
//! Ethernet address in its DUID, in its link-local address or in its solicitation; and then nothing is said to all.
//!
//! **Hostile guests.** Nothing is made from a length in a packet; a packet is at most [`MAX_PACKET`] bytes and so is an
//! answer. A socket is read at a limited rate (`worker`): a guest that floods it has its packets dropped by the kernel. An
//! answer goes to a client's port on the link of the socket, wherever the guest says it comes from.
//!
//! **Sockets** are granted, each for one device. The thread receives and sends on them; its sandbox lets it make, bind or
//! connect none.
//!
//! **State.** All of it is the host's: none is in the blueprint or in records, and whoever loads or restores a machine says
//! anew what its guest is to be told. A reset changes nothing here; a machine that was stopped and runs again has routers
//! advertised to it.

mod dhcp4;
mod dhcp6;
mod names;
mod router;
#[cfg(test)]
mod testing;
mod worker;

use std::io;

use corten_link::{Addressing, Role, RoleError};
use thiserror::Error;

pub use dhcp4::Dhcp4;
pub use dhcp6::Dhcp6;
pub use router::Router;
pub use worker::{Addresses, Interface};

/// More than any packet of these protocols that fits a link without jumbo frames.
pub const MAX_PACKET: usize = 1500;

/// How long what a guest is told holds, where it is not for ever: 999 days, as KubeVirt's leases.
const LEASE: u32 = 999 * 24 * 60 * 60;
/// What every link of IPv6 takes in one piece (RFC 8200, section 5), without the headers of IPv6 and UDP.
const IPV6_PAYLOAD: usize = 1280 - 40 - 8;

/// Lists are to be this long at most: what is told has to fit into a packet.
const MAX_SERVERS: usize = 16;
const MAX_DOMAINS: usize = 32;
const MAX_ROUTES: usize = 64;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Why a packet is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It is somebody else's, or wants no answer.
    Ignored,
    /// It is against the protocol.
    Malformed,
}

/// Why a guest cannot be told its addresses.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AddressingError {
    /// A prefix that is longer than an address.
    #[error("there is no prefix of {0} bits")]
    Prefix(u8),
    /// No domain name.
    #[error("{0:?} is not a domain name")]
    Name(String),
    /// An option that is no site's own.
    #[error("the DHCP option {0} is none of those from 224 to 254")]
    Option(u8),
    /// A list that does not fit into packets.
    #[error("{count} {what} are more than {limit}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
}

/// Why the questions of a guest cannot be answered.
#[derive(Debug, Error)]
pub enum AddressesError {
    /// The name of an interface.
    #[error("a network cannot be named {0:?}")]
    Name(String, #[source] RoleError),
    /// A socket was not granted.
    #[error("the descriptor {0} was not granted, and the guest is to be told addresses on it")]
    NotGranted(Role),
    /// A socket was granted for nothing.
    #[error("the descriptor {0} was granted, and there are no addresses to tell on it")]
    NoAddresses(Role),
    /// A descriptor is no such socket.
    #[error("the descriptor {role} cannot be used")]
    Socket {
        /// Which one.
        role: Role,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What the guest is to be told cannot be told.
    #[error("the guest cannot be told its addresses on the network {network:?}")]
    Addressing {
        /// Which one.
        network: String,
        /// Why.
        #[source]
        source: AddressingError,
    },
    /// No thread.
    #[error("cannot start the thread that tells addresses")]
    Thread(#[source] io::Error),
}

fn limited<T>(what: &'static str, list: &[T], limit: usize) -> Result<(), AddressingError> {
    let count = list.len();
    if count > limit { Err(AddressingError::TooMany { what, count, limit }) } else { Ok(()) }
}

/// What all protocols have in common.
fn domains_of(addressing: &Addressing) -> Result<names::Domains, AddressingError> {
    limited("search domains", &addressing.search, MAX_DOMAINS)?;
    names::Domains::new(&addressing.search)
}
