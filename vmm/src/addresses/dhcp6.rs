//! DHCPv6 (RFC 8415): the one address of the guest, whenever it asks.

use std::net::Ipv6Addr;

use corten_link::{Addressing, Ipv6Addressing};

use super::names::Domains;
use super::{AddressingError, IPV6_PAYLOAD, LEASE, MAX_SERVERS, Mac, Silence, domains_of, limited};

/// The port of clients, to which every answer goes.
pub(super) const CLIENT: u16 = 546;

/// Kinds of messages (section 7.3).
mod kind {
    pub(super) const SOLICIT: u8 = 1;
    pub(super) const ADVERTISE: u8 = 2;
    pub(super) const REQUEST: u8 = 3;
    pub(super) const CONFIRM: u8 = 4;
    pub(super) const RENEW: u8 = 5;
    pub(super) const REBIND: u8 = 6;
    pub(super) const REPLY: u8 = 7;
    pub(super) const RELEASE: u8 = 8;
    pub(super) const DECLINE: u8 = 9;
    pub(super) const INFORMATION_REQUEST: u8 = 11;
}

/// Options (section 21).
mod option {
    pub(super) const CLIENT: u16 = 1;
    pub(super) const SERVER: u16 = 2;
    pub(super) const ADDRESSES: u16 = 3;
    pub(super) const TEMPORARY_ADDRESSES: u16 = 4;
    pub(super) const ADDRESS: u16 = 5;
    pub(super) const WANTED: u16 = 6;
    pub(super) const PREFERENCE: u16 = 7;
    pub(super) const STATUS: u16 = 13;
    pub(super) const RAPID_COMMIT: u16 = 14;
    /// RFC 3646.
    pub(super) const NAME_SERVERS: u16 = 23;
    pub(super) const DOMAINS: u16 = 24;
    pub(super) const PREFIXES: u16 = 25;
}

/// Status codes (section 21.13).
mod status {
    pub(super) const SUCCESS: u16 = 0;
    pub(super) const NO_ADDRESS: u16 = 2;
    pub(super) const NOT_ON_LINK: u16 = 4;
    pub(super) const NO_PREFIX: u16 = 6;
}

/// The longest DUID (section 11.1).
const MAX_DUID: usize = 130;
/// How many associations a client may ask for in one message, and how many addresses it may name in one: more than any
/// client does, and the answer to all of them fits.
const MAX_ASSOCIATIONS: usize = 8;
const MAX_ADDRESSES: usize = 8;

/// A DHCPv6 server for one client.
#[derive(Clone, Debug)]
pub struct Dhcp6 {
    mac: Mac,
    /// Whether nobody but the guest is on the link.
    is_alone: bool,
    duid: [u8; 18],
    address: Ipv6Addr,
    name_servers: Vec<u8>,
    domains: Domains,
}

/// What a client wants an address or a prefix for.
struct Association<'a> {
    code: u16,
    identifier: [u8; 4],
    /// Its options.
    content: &'a [u8],
}

/// What a client says, as far as it counts.
#[derive(Default)]
struct Question<'a> {
    client: Option<&'a [u8]>,
    server: Option<&'a [u8]>,
    associations: Vec<Association<'a>>,
    /// The options it asks for, two bytes each; none if it does not say.
    wanted: Option<&'a [u8]>,
    is_rapid: bool,
}

impl Dhcp6 {
    /// One for the guest with this Ethernet address.
    pub fn new(
        mac: Mac,
        addressing: &Addressing,
        ipv6: &Ipv6Addressing,
    ) -> Result<Self, AddressingError> {
        limited("name servers", &ipv6.dns, MAX_SERVERS)?;
        Ok(Self {
            mac,
            is_alone: ipv6.is_router,
            duid: server_duid(mac),
            address: ipv6.address,
            name_servers: ipv6.dns.iter().flat_map(Ipv6Addr::octets).collect(),
            domains: domains_of(addressing)?,
        })
    }

    /// The answer to a packet that came from `from`, to which it goes.
    pub fn answer(&self, packet: &[u8], from: Ipv6Addr) -> Result<Vec<u8>, Silence> {
        let (&[kind, a, b, c], options) =
            packet.split_first_chunk::<4>().ok_or(Silence::Malformed)?;
        // Others are servers' and relays' messages; there is no relay on the link.
        if !is_asked(kind) || !from.is_unicast_link_local() {
            return Err(Silence::Ignored);
        }
        let question = Question::read(options)?;
        self.check(kind, &question, from)?;
        let is_done = kind != kind::SOLICIT || question.is_rapid;
        let mut reply =
            Message::new(if is_done { kind::REPLY } else { kind::ADVERTISE }, [a, b, c]);
        reply.put(option::SERVER, &self.duid);
        if let Some(client) = question.client {
            reply.put(option::CLIENT, client);
        }
        match kind {
            kind::SOLICIT | kind::REQUEST | kind::RENEW | kind::REBIND => {
                self.assign(&question, &mut reply);
                if kind == kind::SOLICIT && question.is_rapid {
                    reply.put(option::RAPID_COMMIT, &[]);
                } else if kind == kind::SOLICIT {
                    // The highest: nobody else is to be waited for.
                    reply.put(option::PREFERENCE, &[u8::MAX]);
                }
            }
            kind::CONFIRM => {
                let is_here = self.confirms(&question)?;
                reply.put_status(if is_here { status::SUCCESS } else { status::NOT_ON_LINK });
                return Ok(reply.0);
            }
            // The address stays the guest's, but a client that hears nothing asks again and again.
            kind::RELEASE | kind::DECLINE => {
                reply.put_status(status::SUCCESS);
                return Ok(reply.0);
            }
            _ => {}
        }
        self.configure(&question, &mut reply);
        Ok(reply.0)
    }

    /// What each kind of message has to have and must not have (section 16), and whose it is.
    fn check(&self, kind: u8, question: &Question<'_>, from: Ipv6Addr) -> Result<(), Silence> {
        let names_server = question.server.is_some();
        let (needs_client, needs_server, may_name_server) = match kind {
            kind::INFORMATION_REQUEST => (false, false, true),
            kind::SOLICIT | kind::CONFIRM | kind::REBIND => (true, false, false),
            _ => (true, true, true),
        };
        let is_wrong = (needs_client && question.client.is_none())
            || (needs_server && !names_server)
            || (names_server && !may_name_server)
            || (kind == kind::INFORMATION_REQUEST && !question.associations.is_empty());
        if is_wrong {
            return Err(Silence::Malformed);
        }
        let is_for_us = question.server.is_none_or(|server| server == self.duid);
        if is_for_us && (self.is_alone || self.is_guest(question, from)) {
            Ok(())
        } else {
            Err(Silence::Ignored)
        }
    }

    /// Whether the guest's Ethernet address is in what the client calls itself or in the address that it sends from.
    fn is_guest(&self, question: &Question<'_>, from: Ipv6Addr) -> bool {
        let duid = match question.client {
            // Made of a link-layer address, with a time and without (sections 11.2 and 11.4).
            Some([0, 1, 0, 1, _, _, _, _, mac @ ..] | [0, 3, 0, 1, mac @ ..]) => mac,
            _ => &[],
        };
        duid == self.mac || from == link_local(self.mac)
    }

    /// The address for the first association that wants one; the others get none.
    fn assign(&self, question: &Question<'_>, reply: &mut Message) {
        let mut is_given = false;
        for association in &question.associations {
            let gets_address = association.code == option::ADDRESSES && !is_given;
            let mut content = Message(association.identifier.to_vec());
            if association.code != option::TEMPORARY_ADDRESSES {
                let (renew, rebind) =
                    if gets_address { (LEASE / 2, LEASE / 5 * 4) } else { (0, 0) };
                content.0.extend(renew.to_be_bytes());
                content.0.extend(rebind.to_be_bytes());
            }
            match association.code {
                _ if gets_address => {
                    is_given = true;
                    content.put_address(self.address, LEASE);
                    // What it had of somebody else is not to be used any more.
                    let others = association.addresses().filter(|other| *other != self.address);
                    others.take(MAX_ADDRESSES).for_each(|other| content.put_address(other, 0));
                }
                option::PREFIXES => content.put_status(status::NO_PREFIX),
                _ => content.put_status(status::NO_ADDRESS),
            }
            reply.put(association.code, &content.0);
        }
    }

    /// Whether all addresses that a client has are the guest's (section 18.3.3).
    fn confirms(&self, question: &Question<'_>) -> Result<bool, Silence> {
        let mut addresses =
            question.associations.iter().flat_map(Association::addresses).peekable();
        // There is nothing to say then, and nothing is to be said.
        addresses.peek().ok_or(Silence::Ignored)?;
        Ok(addresses.all(|address| address == self.address))
    }

    fn configure(&self, question: &Question<'_>, reply: &mut Message) {
        let wants = |code: u16| {
            let lists = |wanted: &[u8]| wanted.chunks(2).any(|other| other == code.to_be_bytes());
            question.wanted.is_none_or(lists)
        };
        if wants(option::NAME_SERVERS) && !self.name_servers.is_empty() {
            reply.put(option::NAME_SERVERS, &self.name_servers);
        }
        let room = IPV6_PAYLOAD.saturating_sub(reply.0.len() + 4);
        let domains = self.domains.plain(room);
        if wants(option::DOMAINS) && !domains.is_empty() {
            reply.put(option::DOMAINS, domains);
        }
    }
}

fn is_asked(kind: u8) -> bool {
    matches!(kind, kind::SOLICIT | kind::REQUEST..=kind::REBIND | kind::RELEASE | kind::DECLINE)
        || kind == kind::INFORMATION_REQUEST
}

impl<'a> Question<'a> {
    fn read(mut options: &'a [u8]) -> Result<Self, Silence> {
        let mut question = Self::default();
        while let Some((code, value, rest)) = next_option(options)? {
            match code {
                option::CLIENT => question.client = Some(duid(value)?),
                option::SERVER => question.server = Some(duid(value)?),
                option::WANTED => question.wanted = Some(value),
                option::RAPID_COMMIT => question.is_rapid = true,
                option::ADDRESSES | option::TEMPORARY_ADDRESSES | option::PREFIXES => {
                    if question.associations.len() == MAX_ASSOCIATIONS {
                        return Err(Silence::Malformed);
                    }
                    question.associations.push(Association::read(code, value)?);
                }
                _ => {}
            }
            options = rest;
        }
        Ok(question)
    }
}

impl<'a> Association<'a> {
    fn read(code: u16, value: &'a [u8]) -> Result<Self, Silence> {
        // Identifier and, but for temporary addresses, two times.
        let (identifier, rest) = value.split_first_chunk::<4>().ok_or(Silence::Malformed)?;
        let times = if code == option::TEMPORARY_ADDRESSES { 0 } else { 8 };
        let content = rest.get(times..).ok_or(Silence::Malformed)?;
        let mut options = content;
        while let Some((_, _, rest)) = next_option(options)? {
            options = rest;
        }
        Ok(Self { code, identifier: *identifier, content })
    }

    /// The addresses that the client has for it, or would like.
    fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> {
        let mut options = self.content;
        std::iter::from_fn(move || {
            while let Ok(Some((code, value, rest))) = next_option(options) {
                options = rest;
                if let (option::ADDRESS, Some(octets)) = (code, value.first_chunk::<16>()) {
                    return Some(Ipv6Addr::from(*octets));
                }
            }
            None
        })
    }
}

/// The code of an option, its content, and what is behind it.
type Parts<'a> = (u16, &'a [u8], &'a [u8]);

/// The first option; none at the end.
fn next_option(options: &[u8]) -> Result<Option<Parts<'_>>, Silence> {
    if options.is_empty() {
        return Ok(None);
    }
    let (&[a, b, c, d], rest) = options.split_first_chunk::<4>().ok_or(Silence::Malformed)?;
    let length = u16::from_be_bytes([c, d]);
    let (value, rest) = rest.split_at_checked(length.into()).ok_or(Silence::Malformed)?;
    Ok(Some((u16::from_be_bytes([a, b]), value, rest)))
}

fn duid(value: &[u8]) -> Result<&[u8], Silence> {
    if (3..=MAX_DUID).contains(&value.len()) { Ok(value) } else { Err(Silence::Malformed) }
}

/// A UUID (RFC 6355) of the form that is for the maker to fill in (version 8, RFC 9562), with the guest's Ethernet address in
/// it: the same on every host that the guest ever runs on, and not what the guest would call itself.
fn server_duid(mac: Mac) -> [u8; 18] {
    let mut duid = *b"\0\x04corten\x80\0\x80\0\0\0\0\0\0\0";
    duid[12..].copy_from_slice(&mac);
    duid
}

/// The address that an interface gives itself by default (RFC 4291, appendix A).
pub(super) fn link_local([a, b, c, d, e, f]: Mac) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// A message, or the content of an option, with options at its end. What goes into it is bounded: by what a question may
/// have, and by what a guest may be told.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u8, [a, b, c]: [u8; 3]) -> Self {
        Self(vec![kind, a, b, c])
    }

    fn put(&mut self, code: u16, value: &[u8]) {
        // No option of ours is longer than a packet.
        let length = u16::try_from(value.len()).unwrap_or(0);
        self.0.extend(code.to_be_bytes());
        self.0.extend(length.to_be_bytes());
        self.0.extend(&value[..length.into()]);
    }

    fn put_status(&mut self, code: u16) {
        self.put(option::STATUS, &code.to_be_bytes());
    }

    /// An address that holds for this many seconds.
    fn put_address(&mut self, address: Ipv6Addr, lease: u32) {
        let mut value = address.octets().to_vec();
        // How long it is preferred, how long it is valid.
        value.extend(lease.to_be_bytes());
        value.extend(lease.to_be_bytes());
        self.put(option::ADDRESS, &value);
    }
}

#[cfg(test)]
mod tests;
