//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{CREATE, REPLACE, Rtnl, address, family};
use crate::cidr::Network;
use crate::netlink::{Message, NetlinkError, attributes, word};

/// Length of `struct rtmsg`.
const FIXED: usize = 12;
/// The table that is looked into by default.
pub(crate) const MAIN_TABLE: u32 = 254;
/// The table of the namespace's own addresses.
const LOCAL_TABLE: u32 = 255;
/// The kernel's own: an address brings it along.
const KERNEL: u8 = 2;
/// Made by hand, which is what a program's is as well.
const STATIC: u8 = 4;
/// RTN_UNICAST and RTN_LOCAL.
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
/// The gateway is on the link, whatever its address says.
const ON_LINK: u32 = 4;
/// RTM_F_CLONED: a destination the kernel has looked up, no route.
const CLONED: u32 = 0x200;
/// RT_SCOPE_LINK, for IPv4 routes without a gateway.
const LINK: u8 = 253;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) table: u32,
    pub(crate) destination: Network,
    pub(crate) gateway: Option<IpAddr>,
    /// The link it goes out by; none where it has several or none.
    pub(crate) link: Option<u32>,
    /// Whether an address brought it along.
    pub(crate) is_kernels: bool,
    pub(crate) kind: Kind,
}

/// What a route does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They are passed on.
    Unicast,
    /// They have arrived.
    Local,
    /// They are refused, or go to several.
    Other,
}

impl Route {
    /// Whether it is taken where no other fits.
    pub(crate) fn is_default(&self) -> bool {
        self.destination.prefix == 0 && self.kind == Kind::Unicast
    }

    /// The way out of the namespace, over `gateway` on `link`.
    pub(crate) fn way_out(gateway: IpAddr, link: u32) -> Self {
        Self {
            table: MAIN_TABLE,
            destination: Network::new(gateway, 0),
            gateway: Some(gateway),
            link: Some(link),
            is_kernels: false,
            kind: Kind::Unicast,
        }
    }

    /// Has the namespace take packets to IPv6's loopback address for its own, also when they come in by `link`.
    ///
    /// The kernel looks for that address among the routes of the link that a packet came in by (rt6_need_strict), so the
    /// route over `lo` does not count there. For IPv4 a setting, route_localnet, does the same.
    pub(crate) fn loopback(link: u32) -> Self {
        Self {
            table: LOCAL_TABLE,
            destination: Network::new(Ipv6Addr::LOCALHOST.into(), 128),
            gateway: None,
            link: Some(link),
            is_kernels: false,
            kind: Kind::Local,
        }
    }
}

impl Rtnl {
    /// All routes of both families, in all tables.
    pub(crate) fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let replies = self.socket.dump(&Message::new(libc::RTM_GETROUTE, 0, &[0; FIXED]))?;
        Ok(replies.iter().filter_map(|reply| parse(&reply.body)).collect())
    }

    /// Makes a route over `link`; its gateway need not be in any network of the link's.
    pub(crate) fn add_route(&mut self, route: Route) -> Result<(), NetlinkError> {
        self.socket.acknowledged(message(libc::RTM_NEWROUTE, CREATE | REPLACE, &route))
    }

    pub(crate) fn delete_route(&mut self, route: Route) -> Result<(), NetlinkError> {
        self.socket.acknowledged(message(libc::RTM_DELROUTE, 0, &route))
    }
}

fn message(kind: u16, flags: u16, route: &Route) -> Message {
    let destination = route.destination;
    let mut fixed = [0; FIXED];
    fixed[0] = family(destination.address);
    fixed[1] = destination.prefix;
    fixed[5] = STATIC;
    fixed[7] = if route.kind == Kind::Local { LOCAL } else { UNICAST };
    if route.gateway.is_some() {
        fixed[8..12].copy_from_slice(&ON_LINK.to_ne_bytes());
    } else if destination.address.is_ipv4() {
        fixed[6] = LINK;
    }
    let mut message = Message::new(kind, flags, &fixed)
        .word(libc::RTA_TABLE, route.table)
        .address(libc::RTA_DST, destination.address);
    if let Some(gateway) = route.gateway {
        message = message.address(libc::RTA_GATEWAY, gateway);
    }
    if let Some(link) = route.link {
        message = message.word(libc::RTA_OIF, link);
    }
    message
}

fn parse(body: &[u8]) -> Option<Route> {
    let fixed = body.get(..FIXED)?;
    if word(&fixed[8..])? & CLONED != 0 {
        return None;
    }
    let anywhere: IpAddr = match fixed[0] {
        2 => Ipv4Addr::UNSPECIFIED.into(),
        10 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut route = Route {
        table: fixed[4].into(),
        destination: Network { address: anywhere, prefix: fixed[1] },
        gateway: None,
        link: None,
        is_kernels: fixed[5] == KERNEL,
        kind: match fixed[7] {
            UNICAST => Kind::Unicast,
            LOCAL => Kind::Local,
            _ => Kind::Other,
        },
    };
    for (kind, value) in attributes(&body[FIXED..]) {
        match kind {
            libc::RTA_TABLE => route.table = word(value)?,
            libc::RTA_DST => route.destination.address = address(value)?,
            libc::RTA_GATEWAY => route.gateway = address(value),
            libc::RTA_OIF => route.link = word(value),
            _ => {}
        }
    }
    Some(route)
}
