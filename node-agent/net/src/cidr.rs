//! Networks: an address and how much of it is the network's.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// Why a text is no network that a guest can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CidrError {
    /// It is not of the form ADDRESS/PREFIX.
    #[error("{0:?} is not an {1} network such as {2}")]
    Syntax(String, &'static str, &'static str),
    /// Too small or too large.
    #[error("network {0} has no room for a gateway and a guest: its prefix must be 8 to {1}")]
    Prefix(String, u8),
    /// Addresses that no interface can have.
    #[error("network {0} is not one of ordinary addresses")]
    Reserved(String),
}

/// The guest's IPv4 network: the gateway has its first address, the guest the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Cidr {
    base: Ipv4Addr,
    prefix: u8,
}

/// The guest's IPv6 network: the gateway has its first address, the guest the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Cidr {
    base: Ipv6Addr,
    prefix: u8,
}

impl Ipv4Cidr {
    /// The gateway's address.
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base.to_bits() + 1)
    }

    /// The guest's address.
    pub fn guest(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base.to_bits() + 2)
    }

    /// How much of an address is the network's.
    pub fn prefix(self) -> u8 {
        self.prefix
    }
}

impl Ipv6Cidr {
    /// The gateway's address.
    pub fn gateway(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.base.to_bits() + 1)
    }

    /// The guest's address.
    pub fn guest(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.base.to_bits() + 2)
    }

    /// How much of an address is the network's.
    pub fn prefix(self) -> u8 {
        self.prefix
    }
}

impl Default for Ipv4Cidr {
    /// 10.0.2.0/24, as KubeVirt has it.
    fn default() -> Self {
        Self { base: Ipv4Addr::new(10, 0, 2, 0), prefix: 24 }
    }
}

impl Default for Ipv6Cidr {
    /// fd10:0:2::/120, as KubeVirt has it.
    fn default() -> Self {
        Self { base: Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 0), prefix: 120 }
    }
}

impl FromStr for Ipv4Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, prefix) = split::<Ipv4Addr>(text)
            .ok_or_else(|| CidrError::Syntax(text.into(), "IPv4", "10.0.2.0/24"))?;
        if !(8..=30).contains(&prefix) {
            return Err(CidrError::Prefix(text.into(), 30));
        }
        let base = Network::new(address.into(), prefix);
        let reserved =
            address.is_loopback() || address.octets()[0] == 0 || address.octets()[0] >= 224;
        match base.address {
            IpAddr::V4(base) if !reserved => Ok(Self { base, prefix }),
            _ => Err(CidrError::Reserved(text.into())),
        }
    }
}

impl FromStr for Ipv6Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, prefix) = split::<Ipv6Addr>(text)
            .ok_or_else(|| CidrError::Syntax(text.into(), "IPv6", "fd10:0:2::/120"))?;
        if !(8..=126).contains(&prefix) {
            return Err(CidrError::Prefix(text.into(), 126));
        }
        // Ordinary ones are global (2000::/3) or unique local (fc00::/7).
        let first = address.segments()[0];
        let ordinary = first & 0xe000 == 0x2000 || first & 0xfe00 == 0xfc00;
        match Network::new(address.into(), prefix).address {
            IpAddr::V6(base) if ordinary => Ok(Self { base, prefix }),
            _ => Err(CidrError::Reserved(text.into())),
        }
    }
}

impl fmt::Display for Ipv4Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.base, self.prefix)
    }
}

impl fmt::Display for Ipv6Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.base, self.prefix)
    }
}

impl From<Ipv4Cidr> for Network {
    fn from(cidr: Ipv4Cidr) -> Self {
        Self { address: cidr.base.into(), prefix: cidr.prefix }
    }
}

impl From<Ipv6Cidr> for Network {
    fn from(cidr: Ipv6Cidr) -> Self {
        Self { address: cidr.base.into(), prefix: cidr.prefix }
    }
}

fn split<A: FromStr>(text: &str) -> Option<(A, u8)> {
    let (address, prefix) = text.split_once('/')?;
    Some((address.parse().ok()?, prefix.parse().ok()?))
}

/// A network of either family, as routes and rules have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Network {
    /// Its first address.
    pub(crate) address: IpAddr,
    /// How much of it is the network's.
    pub(crate) prefix: u8,
}

impl Network {
    /// The network that `address` is in.
    pub(crate) fn new(address: IpAddr, prefix: u8) -> Self {
        let address = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let mask =
                    u128::MAX.checked_shl(128_u32.saturating_sub(prefix.into())).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        };
        Self { address, prefix }
    }

    /// Whether the two have an address in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let prefix = self.prefix.min(other.prefix);
        self.address.is_ipv4() == other.address.is_ipv4()
            && Self::new(self.address, prefix) == Self::new(other.address, prefix)
    }

    /// Whether `address` is in it.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let whole = if address.is_ipv4() { 32 } else { 128 };
        self.overlaps(Self { address, prefix: whole })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        let (address, prefix) = split(text).unwrap();
        Network::new(address, prefix)
    }

    #[test]
    fn gateway_is_first_and_guest_second() {
        let cidr: Ipv4Cidr = "192.168.7.9/28".parse().unwrap();
        assert_eq!(cidr.to_string(), "192.168.7.0/28");
        assert_eq!(
            (cidr.gateway().to_string(), cidr.guest().to_string()),
            ("192.168.7.1".into(), "192.168.7.2".into())
        );
        assert_eq!(Ipv4Cidr::default(), "10.0.2.0/24".parse().unwrap());
        let cidr = Ipv6Cidr::default();
        assert_eq!(cidr, "fd10:0:2::/120".parse().unwrap());
        assert_eq!(
            (cidr.gateway().to_string(), cidr.guest().to_string()),
            ("fd10:0:2::1".into(), "fd10:0:2::2".into())
        );
    }

    #[test]
    fn networks_without_room_or_meaning_are_refused() {
        for text in
            ["10.0.2.0", "10.0.2.0/", "10.0.2/24", "fd10::/120", "10.0.2.0/-1", "10.0.2.0/256"]
        {
            assert!(matches!(text.parse::<Ipv4Cidr>(), Err(CidrError::Syntax(..))), "{text}");
        }
        for text in ["10.0.2.0/31", "10.0.2.0/32", "10.0.2.0/7"] {
            assert!(matches!(text.parse::<Ipv4Cidr>(), Err(CidrError::Prefix(..))), "{text}");
        }
        for text in ["127.0.0.0/24", "224.0.0.0/24", "0.0.0.0/8"] {
            assert!(matches!(text.parse::<Ipv4Cidr>(), Err(CidrError::Reserved(_))), "{text}");
        }
        assert!(matches!("fd10::/127".parse::<Ipv6Cidr>(), Err(CidrError::Prefix(..))));
        for text in ["fe80::/64", "ff00::/64", "::/64"] {
            assert!(matches!(text.parse::<Ipv6Cidr>(), Err(CidrError::Reserved(_))), "{text}");
        }
    }

    #[test]
    fn networks_overlap_where_one_holds_the_other() {
        assert!(network("10.0.0.0/8").overlaps(network("10.213.4.0/30")));
        assert!(network("10.213.4.2/32").overlaps(network("10.213.4.0/30")));
        assert!(!network("10.213.4.4/30").overlaps(network("10.213.4.0/30")));
        assert!(!network("0.0.0.0/0").overlaps(network("::/0")));
        assert!(network("fd00::/8").contains("fd10:0:2::2".parse().unwrap()));
        assert!(!network("10.0.2.0/24").contains("10.0.3.1".parse().unwrap()));
    }
}
