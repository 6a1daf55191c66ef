//! DHCP (RFC 2131): the one address of the guest, whenever it asks.

use std::net::{Ipv4Addr, SocketAddrV4};

use corten_link::{Addressing, DhcpOptions, Ipv4Addressing, PrivateOption};

use super::names::{self, Domains};
use super::{
    AddressingError, LEASE, MAX_PACKET, MAX_ROUTES, MAX_SERVERS, Mac, Silence, domains_of, limited,
};

/// The port of clients.
const CLIENT: u16 = 68;

/// Up to the options: fields of BOOTP (RFC 951), and the cookie.
const HEADER: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const ETHERNET: [u8; 2] = [1, 6];

/// The least that a reply has: some clients drop what is shorter than a BOOTP message.
const SHORTEST: usize = 300;
/// Headers of IPv4 and UDP, which a client counts when it says what it takes.
const HEADERS: usize = 28;
/// What every client takes (RFC 2131, section 2), with those headers.
const SMALLEST_LIMIT: usize = 576;

/// Options (RFC 2132).
mod option {
    pub(super) const PAD: u8 = 0;
    pub(super) const MASK: u8 = 1;
    pub(super) const ROUTER: u8 = 3;
    pub(super) const NAME_SERVERS: u8 = 6;
    pub(super) const HOST_NAME: u8 = 12;
    pub(super) const DOMAIN: u8 = 15;
    pub(super) const MTU: u8 = 26;
    pub(super) const TIME_SERVERS: u8 = 42;
    pub(super) const REQUESTED_ADDRESS: u8 = 50;
    pub(super) const LEASE: u8 = 51;
    pub(super) const KIND: u8 = 53;
    pub(super) const SERVER: u8 = 54;
    pub(super) const WANTED: u8 = 55;
    pub(super) const LARGEST: u8 = 57;
    pub(super) const CLIENT: u8 = 61;
    pub(super) const TFTP_SERVER: u8 = 66;
    pub(super) const BOOT_FILE: u8 = 67;
    /// Domain search (RFC 3397).
    pub(super) const SEARCH: u8 = 119;
    /// Classless static routes (RFC 3442).
    pub(super) const ROUTES: u8 = 121;
    /// Those of a site's own (RFC 3942).
    pub(super) const PRIVATE: std::ops::RangeInclusive<u8> = 224..=254;
    pub(super) const END: u8 = 255;
}

/// Kinds of messages (RFC 2132, section 9.6).
mod kind {
    pub(super) const DISCOVER: u8 = 1;
    pub(super) const OFFER: u8 = 2;
    pub(super) const REQUEST: u8 = 3;
    pub(super) const ACK: u8 = 5;
    pub(super) const NAK: u8 = 6;
    pub(super) const INFORM: u8 = 8;
}

/// A DHCP server for one client.
#[derive(Clone, Debug)]
pub struct Dhcp4 {
    mac: Mac,
    address: Ipv4Addr,
    server: Ipv4Addr,
    mask: Ipv4Addr,
    gateway: Option<Ipv4Addr>,
    /// As in the option; empty if the way out says it all.
    routes: Vec<u8>,
    name_servers: Vec<u8>,
    host_name: String,
    domains: Domains,
    mtu: Option<u16>,
    /// What the interface's user wants told besides, by code.
    extra: Vec<(u8, Vec<u8>)>,
}

/// What a client says, as far as it counts.
struct Question<'a> {
    transaction: [u8; 4],
    flags: [u8; 2],
    /// The address that it has and uses; unspecified for none.
    current: Ipv4Addr,
    kind: Option<u8>,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    /// The options it asks for.
    wanted: &'a [u8],
    client: &'a [u8],
    largest: Option<u16>,
}

impl Dhcp4 {
    /// One for the guest with this Ethernet address.
    pub fn new(
        mac: Mac,
        addressing: &Addressing,
        ipv4: &Ipv4Addressing,
    ) -> Result<Self, AddressingError> {
        limited("name servers", &ipv4.dns, MAX_SERVERS)?;
        limited("routes", &ipv4.routes, MAX_ROUTES)?;
        if !addressing.hostname.is_empty() {
            names::encode(&addressing.hostname)?;
        }
        Ok(Self {
            mac,
            address: ipv4.address,
            server: ipv4.server,
            mask: mask(ipv4.prefix)?,
            gateway: ipv4.gateway,
            routes: routes(ipv4)?,
            name_servers: ipv4.dns.iter().flat_map(Ipv4Addr::octets).collect(),
            host_name: addressing.hostname.clone(),
            domains: domains_of(addressing)?,
            mtu: addressing.mtu,
            extra: extra(&addressing.options)?,
        })
    }

    /// The answer to a packet that came from `from`, and where it goes.
    pub fn answer(
        &self,
        packet: &[u8],
        from: Ipv4Addr,
    ) -> Result<(Vec<u8>, SocketAddrV4), Silence> {
        let question = Question::read(packet, self.mac)?;
        let kind = match question.kind {
            Some(kind::DISCOVER) => kind::OFFER,
            Some(kind::REQUEST) if self.grants(&question)? => kind::ACK,
            Some(kind::REQUEST) => kind::NAK,
            Some(kind::INFORM) => kind::ACK,
            // The address stays the guest's, whether it is given back or said to be somebody else's.
            Some(_) => return Err(Silence::Ignored),
            None => return Err(Silence::Malformed),
        };
        // A client without an address cannot be sent to by one, as it does not answer ARP yet; and on this link a broadcast
        // bothers nobody else. One that uses its address may listen to that alone.
        let has_address = question.current == self.address && from == self.address;
        let to = if has_address && kind != kind::NAK { from } else { Ipv4Addr::BROADCAST };
        Ok((self.reply(kind, &question), SocketAddrV4::new(to, CLIENT)))
    }

    /// Whether a request is for the guest's address (RFC 2131, section 4.3.2).
    fn grants(&self, question: &Question<'_>) -> Result<bool, Silence> {
        // It has chosen another server.
        if question.server.is_some_and(|server| server != self.server) {
            return Err(Silence::Ignored);
        }
        let current = Some(question.current).filter(|current| !current.is_unspecified());
        let wanted = question.requested.or(current).ok_or(Silence::Malformed)?;
        Ok(wanted == self.address)
    }

    fn reply(&self, kind: u8, question: &Question<'_>) -> Vec<u8> {
        let is_told = question.kind == Some(kind::INFORM);
        // In one piece, if the client takes it.
        let link = self.mtu.map_or(MAX_PACKET, usize::from).clamp(SMALLEST_LIMIT, MAX_PACKET);
        let limit = usize::from(question.largest.unwrap_or(0));
        let limit = limit.clamp(SMALLEST_LIMIT, link) - HEADERS;
        let mut reply = Vec::with_capacity(limit);
        reply.extend([REPLY, ETHERNET[0], ETHERNET[1], 0]);
        reply.extend(question.transaction);
        reply.extend([0; 2]);
        reply.extend(question.flags);
        let unspecified = Ipv4Addr::UNSPECIFIED;
        let current = if kind == kind::ACK { question.current } else { unspecified };
        let given = if kind == kind::NAK || is_told { unspecified } else { self.address };
        // Next server and relay: none.
        for address in [current, given, unspecified, unspecified] {
            reply.extend(address.octets());
        }
        reply.extend(self.mac);
        reply.resize(HEADER - COOKIE.len(), 0);
        reply.extend(COOKIE);
        // The end takes one byte.
        let mut options = Options { bytes: reply, limit: limit - 1 };
        options.put(option::KIND, &[kind]);
        options.put(option::SERVER, &self.server.octets());
        options.put(option::CLIENT, question.client);
        if kind != kind::NAK {
            if !is_told {
                options.put(option::LEASE, &LEASE.to_be_bytes());
            }
            self.configure(question.wanted, &mut options);
        }
        let mut reply = options.bytes;
        reply.push(option::END);
        reply.resize(reply.len().max(SHORTEST), option::PAD);
        reply
    }

    /// What a client needs, then what it asks for, as far as there is room: the most important first.
    fn configure(&self, wanted: &[u8], options: &mut Options) {
        let wants = |code| wanted.contains(&code);
        options.put(option::MASK, &self.mask.octets());
        // Who gets routes must not be told the way out twice (RFC 3442): it is one of them.
        let is_routed = wants(option::ROUTES) && options.put(option::ROUTES, &self.routes);
        if let Some(gateway) = self.gateway.filter(|_| !is_routed) {
            options.put(option::ROUTER, &gateway.octets());
        }
        if wants(option::NAME_SERVERS) {
            options.put(option::NAME_SERVERS, &self.name_servers);
        }
        if let Some(mtu) = self.mtu.filter(|_| wants(option::MTU)) {
            options.put(option::MTU, &mtu.to_be_bytes());
        }
        if wants(option::HOST_NAME) {
            options.put(option::HOST_NAME, self.host_name.as_bytes());
        }
        if wants(option::DOMAIN) {
            options.put(option::DOMAIN, self.domains.first().as_bytes());
        }
        if wants(option::SEARCH) {
            let room = options.room();
            options.put(option::SEARCH, self.domains.compressed(room));
        }
        // A client that has no list of wishes takes whatever there is (RFC 2131, section 4.3.1).
        for (code, value) in self.extra.iter().filter(|(code, _)| wants(*code) || wanted.is_empty())
        {
            options.put(*code, value);
        }
    }
}

impl<'a> Question<'a> {
    /// A client's message, if it is that of the client with this Ethernet address.
    fn read(packet: &'a [u8], mac: Mac) -> Result<Self, Silence> {
        let (header, mut options) =
            packet.split_first_chunk::<HEADER>().ok_or(Silence::Malformed)?;
        let address =
            |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let relay = address(24);
        let is_ours = header[0] == REQUEST
            && header[1..3] == ETHERNET
            && header[28..34] == mac
            && header[HEADER - COOKIE.len()..] == COOKIE
            && relay.is_unspecified();
        if !is_ours {
            return Err(Silence::Ignored);
        }
        let mut question = Self {
            transaction: [header[4], header[5], header[6], header[7]],
            flags: [header[10], header[11]],
            current: address(12),
            kind: None,
            requested: None,
            server: None,
            wanted: &[],
            client: &[],
            largest: None,
        };
        loop {
            match *options {
                // A message that ends without saying so is common enough.
                [] | [option::END, ..] => return Ok(question),
                [option::PAD, ref rest @ ..] => options = rest,
                [code, length, ref rest @ ..] => {
                    let parts = rest.split_at_checked(length.into());
                    let (value, rest) = parts.ok_or(Silence::Malformed)?;
                    question.take(code, value)?;
                    options = rest;
                }
                [_] => return Err(Silence::Malformed),
            }
        }
    }

    fn take(&mut self, code: u8, value: &'a [u8]) -> Result<(), Silence> {
        let address = || -> Result<Option<Ipv4Addr>, Silence> {
            let octets: [u8; 4] = value.try_into().map_err(|_| Silence::Malformed)?;
            Ok(Some(octets.into()))
        };
        match code {
            option::KIND => {
                let &[kind] = value else { return Err(Silence::Malformed) };
                self.kind = Some(kind);
            }
            option::REQUESTED_ADDRESS => self.requested = address()?,
            option::SERVER => self.server = address()?,
            option::LARGEST => {
                let bytes = value.try_into().map_err(|_| Silence::Malformed)?;
                self.largest = Some(u16::from_be_bytes(bytes));
            }
            option::WANTED => self.wanted = value,
            option::CLIENT => self.client = value,
            _ => {}
        }
        Ok(())
    }
}

/// A message with options at its end.
struct Options {
    bytes: Vec<u8>,
    limit: usize,
}

impl Options {
    /// Adds an option, in several pieces if it is long (RFC 3396). Not one without content, nor one that does not fit.
    fn put(&mut self, code: u8, value: &[u8]) -> bool {
        let fits = !value.is_empty() && value.len() <= self.room();
        for piece in value.chunks(u8::MAX.into()).filter(|_| fits) {
            self.bytes.push(code);
            self.bytes.push(u8::try_from(piece.len()).unwrap_or(u8::MAX));
            self.bytes.extend(piece);
        }
        fits
    }

    /// How long the content of one more option may be.
    fn room(&self) -> usize {
        let left = self.limit.saturating_sub(self.bytes.len());
        left.saturating_sub(2 * left.div_ceil(usize::from(u8::MAX) + 2))
    }
}

/// What the interface's user wants told, as it stands in packets.
fn extra(options: &DhcpOptions) -> Result<Vec<(u8, Vec<u8>)>, AddressingError> {
    limited("time servers", &options.ntp, MAX_SERVERS)?;
    let is_private = |option: &&PrivateOption| option::PRIVATE.contains(&option.code);
    if let Some(odd) = options.private.iter().find(|option| !is_private(option)) {
        return Err(AddressingError::Option(odd.code));
    }
    let known = [
        (option::TIME_SERVERS, options.ntp.iter().flat_map(Ipv4Addr::octets).collect()),
        (option::TFTP_SERVER, options.tftp_server.clone().into_bytes()),
        (option::BOOT_FILE, options.boot_file.clone().into_bytes()),
    ];
    let private = options.private.iter().map(|one| (one.code, one.value.clone().into_bytes()));
    Ok(known.into_iter().chain(private).collect())
}

fn mask(prefix: u8) -> Result<Ipv4Addr, AddressingError> {
    let free = 32_u32.checked_sub(prefix.into()).ok_or(AddressingError::Prefix(prefix))?;
    Ok(u32::MAX.checked_shl(free).unwrap_or(0).into())
}

/// All routes, if there are more than the way out, or if that is not on the guest's network: then a route to it is needed.
fn routes(ipv4: &Ipv4Addressing) -> Result<Vec<u8>, AddressingError> {
    let network = mask(ipv4.prefix)?;
    let mut bytes = Vec::new();
    let is_near = |gateway: Ipv4Addr| gateway & network == ipv4.address & network;
    let far = ipv4.gateway.filter(|gateway| !is_near(*gateway));
    if let Some(gateway) = far {
        put_route(&mut bytes, gateway, 32, Ipv4Addr::UNSPECIFIED)?;
    }
    for route in &ipv4.routes {
        put_route(&mut bytes, route.destination, route.prefix, route.gateway)?;
    }
    if let Some(gateway) = ipv4.gateway.filter(|_| !bytes.is_empty()) {
        put_route(&mut bytes, Ipv4Addr::UNSPECIFIED, 0, gateway)?;
    }
    Ok(bytes)
}

/// As many bytes of the destination as its prefix has (RFC 3442).
fn put_route(
    bytes: &mut Vec<u8>,
    destination: Ipv4Addr,
    prefix: u8,
    gateway: Ipv4Addr,
) -> Result<(), AddressingError> {
    let network = destination & mask(prefix)?;
    bytes.push(prefix);
    bytes.extend(&network.octets()[..usize::from(prefix).div_ceil(8)]);
    bytes.extend(gateway.octets());
    Ok(())
}

#[cfg(test)]
mod tests;
