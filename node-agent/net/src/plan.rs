//! What is wanted of an interface, and what comes of it.

use std::fmt;
use std::os::fd::OwnedFd;

use corten_link::{Addressing, DhcpOptions, Grant, Resolver, Role, RoleError};

use crate::cidr::{Ipv4Cidr, Ipv6Cidr};

/// One network interface of a guest's, as it is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfacePlan {
    /// What the interface is called; its descriptors' roles have it.
    pub name: String,
    /// How it is connected.
    pub binding: Binding,
    /// The guest's Ethernet address; none for one that follows from the binding, or any.
    pub mac: Option<[u8; 6]>,
    /// Pairs of queues, 1 to 256.
    pub pairs: u16,
    /// The largest packet; none for that of the uplink.
    pub mtu: Option<u16>,
    /// The guest's name, which DHCP tells; empty for none.
    pub hostname: String,
    /// Name servers and search domains, which DHCP and advertisements tell.
    pub resolver: Resolver,
    /// What DHCP tells besides.
    pub options: DhcpOptions,
}

/// How an interface is connected to its uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The guest has a network of its own behind the uplink's addresses.
    Masquerade(Masquerade),
    /// The guest takes the uplink's place, with its addresses.
    Bridge,
}

/// A guest's network of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masquerade {
    /// Its IPv4 network (`vmNetworkCIDR`).
    pub ipv4: Ipv4Cidr,
    /// Its IPv6 network (`vmIPv6NetworkCIDR`).
    pub ipv6: Ipv6Cidr,
    /// What is passed on to the guest; empty for everything.
    pub ports: Vec<Port>,
}

/// A port that is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Of which protocol.
    pub protocol: Protocol,
    /// Its number, the same on both sides.
    pub number: u16,
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// The default.
    #[default]
    Tcp,
    /// The other one.
    Udp,
}

/// An interface that is connected: what a VM process needs of it.
#[derive(Debug)]
pub struct Wired {
    /// What the interface is called.
    pub name: String,
    /// What its TAP is called.
    pub tap: String,
    /// Queues of its TAP. The TAP goes with the last of them.
    pub queues: Vec<OwnedFd>,
    /// Where the guest asks for its IPv4 address, if it is told one.
    pub dhcp4: Option<OwnedFd>,
    /// Where the guest asks for its IPv6 address, if it is told one.
    pub dhcp6: Option<OwnedFd>,
    /// Where the guest looks for routers, if it is told one.
    pub router: Option<OwnedFd>,
    /// What the guest is told; both families may be absent.
    pub addressing: Addressing,
    /// The Ethernet address that the guest must have; none for any.
    pub mac: Option<[u8; 6]>,
    /// The largest packet that its TAP takes.
    pub mtu: u16,
}

impl Wired {
    /// Its descriptors under their roles, and what is left to say: address, packets, addressing.
    pub fn into_grant(self) -> Result<(Grant, Addressing), RoleError> {
        let mut grant = Grant::new();
        for (number, queue) in (0_u16..).zip(self.queues) {
            grant.insert(Role::tap(&self.name, number)?, queue);
        }
        let sockets = [
            (Role::dhcp4(&self.name)?, self.dhcp4),
            (Role::dhcp6(&self.name)?, self.dhcp6),
            (Role::router(&self.name)?, self.router),
        ];
        grant.extend(sockets.into_iter().filter_map(|(role, socket)| Some((role, socket?))));
        Ok((grant, self.addressing))
    }
}

impl Default for Binding {
    fn default() -> Self {
        Self::Masquerade(Masquerade::default())
    }
}

impl Protocol {
    /// Its number in a packet (IPPROTO_TCP, IPPROTO_UDP).
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.number, self.protocol)
    }
}
