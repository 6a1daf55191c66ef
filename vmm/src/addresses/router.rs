//! Router advertisements (RFC 4861): the way out, the link's prefix and size, name servers; addresses come by DHCPv6.
//!
//! Whether a solicitation has passed a router on its way (its hop limit, section 6.1.1) is not looked at: the socket hears one
//! link only, and an advertisement goes to a link-local address of that link or to all on it, whoever asked.

use std::net::Ipv6Addr;

use corten_link::{Addressing, Ipv6Addressing};

use super::dhcp6::link_local;
use super::names::Domains;
use super::{AddressingError, IPV6_PAYLOAD, MAX_SERVERS, Mac, Silence, domains_of, limited};

const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;

/// All nodes of the link (RFC 4291, section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What a packet of the guest may pass before it is dropped: the value that all use.
const HOP_LIMIT: u8 = 64;
/// Addresses by DHCPv6 (M), and the rest as well (O).
const MANAGED: u8 = 0xc0;
/// Seconds for which an advertisement holds: the protocol's own default (section 6.2.1), and six times the
/// pause between two of them, so that a guest may miss five.
const LIFETIME: u16 = 1800;
const FOR_EVER: u32 = u32::MAX;
/// The prefix is on the link (L); not for autoconfiguration (A).
const ON_LINK: u8 = 0x80;

/// Options (section 4.6, and RFC 8106).
mod option {
    pub(super) const SOURCE: u8 = 1;
    pub(super) const PREFIX: u8 = 3;
    pub(super) const MTU: u8 = 5;
    pub(super) const NAME_SERVERS: u8 = 25;
    pub(super) const DOMAINS: u8 = 31;
}

/// The router of one guest's link, or who stands in for it.
#[derive(Clone, Debug)]
pub struct Router {
    mac: Mac,
    /// Whether it is the way out, and nobody but the guest is on the link.
    is_router: bool,
    advertisement: Vec<u8>,
}

impl Router {
    /// One for the guest with this Ethernet address.
    pub fn new(
        mac: Mac,
        addressing: &Addressing,
        ipv6: &Ipv6Addressing,
    ) -> Result<Self, AddressingError> {
        limited("name servers", &ipv6.dns, MAX_SERVERS)?;
        let advertisement = advertisement(addressing, ipv6, &domains_of(addressing)?)?;
        Ok(Self { mac, is_router: ipv6.is_router, advertisement })
    }

    /// The advertisement for a solicitation that came from `from`, and where it goes. The kernel fills in its checksum.
    pub fn answer(&self, packet: &[u8], from: Ipv6Addr) -> Result<(&[u8], Ipv6Addr), Silence> {
        // Code, checksum and a reserved field, all of which are to be ignored but the code (section 6.1.1).
        let (&[kind, code, ..], options) =
            packet.split_first_chunk::<8>().ok_or(Silence::Malformed)?;
        if kind != SOLICITATION {
            return Err(Silence::Ignored);
        }
        let source = source_of(options)?;
        if code != 0 || (from.is_unspecified() && source.is_some()) {
            return Err(Silence::Malformed);
        }
        let is_guest = source == Some(&self.mac) || from == link_local(self.mac);
        if from.is_unicast_link_local() && (self.is_router || is_guest) {
            Ok((&self.advertisement, from))
        } else if from.is_unspecified() && self.is_router {
            // It has no address yet.
            Ok((&self.advertisement, ALL_NODES))
        } else {
            Err(Silence::Ignored)
        }
    }

    /// The advertisement for all on the link, and where it goes; none if there are others on it.
    pub fn unasked(&self) -> Option<(&[u8], Ipv6Addr)> {
        self.is_router.then_some((&self.advertisement, ALL_NODES))
    }
}

/// The Ethernet address that a solicitation names as its source.
fn source_of(mut options: &[u8]) -> Result<Option<&[u8]>, Silence> {
    let mut source = None;
    loop {
        match *options {
            [] => return Ok(source),
            // In units of 8 bytes; without any it would never end.
            [kind, length, ..] if length > 0 => {
                let parts = options.split_at_checked(8 * usize::from(length));
                let (option, rest) = parts.ok_or(Silence::Malformed)?;
                if (kind, length) == (option::SOURCE, 1) {
                    source = Some(&option[2..]);
                }
                options = rest;
            }
            _ => return Err(Silence::Malformed),
        }
    }
}

fn advertisement(
    addressing: &Addressing,
    ipv6: &Ipv6Addressing,
    domains: &Domains,
) -> Result<Vec<u8>, AddressingError> {
    let lifetime = if ipv6.is_router { LIFETIME } else { 0 };
    // The checksum is the kernel's.
    let mut bytes = vec![ADVERTISEMENT, 0, 0, 0, HOP_LIMIT, MANAGED];
    bytes.extend(lifetime.to_be_bytes());
    // Times of neighbour discovery: as the guest likes.
    bytes.extend([0; 8]);
    if let Some(mac) = ipv6.router_mac {
        put(&mut bytes, option::SOURCE, &[&mac]);
    }
    if let Some(mtu) = addressing.mtu {
        put(&mut bytes, option::MTU, &[&[0; 2], &u32::from(mtu).to_be_bytes()]);
    }
    let mask = mask(ipv6.prefix)?;
    let for_ever = FOR_EVER.to_be_bytes();
    let prefix = (ipv6.address & mask).octets();
    let fields: [&[u8]; 5] = [&[ipv6.prefix, ON_LINK], &for_ever, &for_ever, &[0; 4], &prefix];
    put(&mut bytes, option::PREFIX, &fields);
    let holds = u32::from(LIFETIME).to_be_bytes();
    if !ipv6.dns.is_empty() {
        let servers: Vec<u8> = ipv6.dns.iter().flat_map(Ipv6Addr::octets).collect();
        put(&mut bytes, option::NAME_SERVERS, &[&[0; 2], &holds, &servers]);
    }
    // Its header has 8 bytes, and it ends at a multiple of 8.
    let room = (IPV6_PAYLOAD - bytes.len()) / 8 * 8 - 8;
    let names = domains.plain(room);
    if !names.is_empty() {
        put(&mut bytes, option::DOMAINS, &[&[0; 2], &holds, names]);
    }
    Ok(bytes)
}

/// An option of these parts, padded to a multiple of 8 bytes.
fn put(bytes: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length = (2 + parts.iter().map(|part| part.len()).sum::<usize>()).next_multiple_of(8);
    let end = bytes.len() + length;
    // All of them fit into one packet.
    bytes.extend([kind, u8::try_from(length / 8).unwrap_or(u8::MAX)]);
    parts.iter().for_each(|part| bytes.extend(*part));
    bytes.resize(end, 0);
}

fn mask(prefix: u8) -> Result<Ipv6Addr, AddressingError> {
    let free = 128_u32.checked_sub(prefix.into()).ok_or(AddressingError::Prefix(prefix))?;
    Ok(u128::MAX.checked_shl(free).unwrap_or(0).into())
}

#[cfg(test)]
mod tests;
