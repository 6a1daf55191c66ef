//! Addresses between host and namespace, chosen so that the host uses none of them.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::cidr::Network;

/// Where IPv4 networks are looked for: seldom used parts of the private ranges (RFC 1918).
const POOLS: [(Ipv4Addr, u8); 3] = [
    (Ipv4Addr::new(10, 213, 0, 0), 16),
    (Ipv4Addr::new(172, 29, 0, 0), 16),
    (Ipv4Addr::new(192, 168, 213, 0), 24),
];
/// A unique local network (RFC 4193), in which a pair of links has the number of its IPv4 network.
const POOL6: Ipv6Addr = Ipv6Addr::new(0xfd63, 0x6f72, 0x7465, 0x6e00, 0, 0, 0, 0);

/// The part of IPv4 networks between two links: room for two addresses.
pub(super) const PREFIX: u8 = 30;
/// The same of IPv6.
pub(super) const PREFIX6: u8 = 126;

/// Shorter prefixes are ways out, however they are written (some VPNs halve the default route).
const WAY_OUT: u8 = 8;
/// Shorter prefixes say where a part of the world is, longer ones which networks there are.
const REGION: u8 = 17;

/// The addresses of a pair of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// Which of all networks it is; no two pairs have the same.
    pub(super) number: u32,
    pub(super) host: Ipv4Addr,
    pub(super) inside: Ipv4Addr,
    pub(super) host6: Ipv6Addr,
    pub(super) inside6: Ipv6Addr,
}

impl Pair {
    /// The link on the host.
    pub(super) fn link(&self) -> String {
        format!("corten{:x}", self.number)
    }
}

/// A pair that overlaps with none of `taken`, from number `start` on. If whole private ranges are routed somewhere, as in
/// many companies, networks within them have to do: then only those count that somebody has for sure.
pub(super) fn choose(taken: &[Network], start: u32) -> Option<Pair> {
    [WAY_OUT, REGION].into_iter().find_map(|shortest| {
        let counts: Vec<_> =
            taken.iter().copied().filter(|network| network.prefix >= shortest).collect();
        let total: u32 = POOLS.iter().map(|(_, prefix)| size(*prefix)).sum();
        let mut numbers = (0..total).map(|step| (start % total + step) % total);
        numbers.find_map(|number| pair(number).filter(|pair| is_free(pair, &counts)))
    })
}

fn is_free(pair: &Pair, taken: &[Network]) -> bool {
    let four = Network::new(pair.host.into(), PREFIX);
    let six = Network::new(pair.host6.into(), PREFIX6);
    !taken.iter().any(|network| network.overlaps(four) || network.overlaps(six))
}

fn pair(number: u32) -> Option<Pair> {
    let mut within = number;
    let base = POOLS.iter().find_map(|(base, prefix)| {
        let size = size(*prefix);
        let found = (within < size).then(|| base.to_bits() + within * 4);
        within = within.saturating_sub(size);
        found
    })?;
    let base6 = POOL6.to_bits() + u128::from(number) * 4;
    Some(Pair {
        number,
        host: Ipv4Addr::from_bits(base + 1),
        inside: Ipv4Addr::from_bits(base + 2),
        host6: Ipv6Addr::from_bits(base6 + 1),
        inside6: Ipv6Addr::from_bits(base6 + 2),
    })
}

/// How many networks there are in a pool.
fn size(prefix: u8) -> u32 {
    1 << (PREFIX - prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        let (address, prefix) = text.split_once('/').unwrap();
        Network::new(address.parse().unwrap(), prefix.parse().unwrap())
    }

    #[test]
    fn first_pair_follows_from_where_the_search_begins() {
        let pair = choose(&[], 0x2f).unwrap();
        assert_eq!(pair.link(), "corten2f");
        assert_eq!(pair.host, Ipv4Addr::new(10, 213, 0, 189));
        assert_eq!(pair.inside, Ipv4Addr::new(10, 213, 0, 190));
        assert_eq!(pair.inside6.to_string(), "fd63:6f72:7465:6e00::be");
    }

    #[test]
    fn networks_of_the_host_are_passed_over() {
        let taken = [network("10.213.0.0/24"), network("0.0.0.0/0"), network("0.0.0.0/1")];
        assert_eq!(choose(&taken, 0).unwrap().host, Ipv4Addr::new(10, 213, 1, 1));
        let taken = [network("10.213.0.2/32"), network("fd63:6f72:7465:6e00::5/128")];
        assert_eq!(choose(&taken, 0).unwrap().number, 2);
        // The search goes around.
        let taken = [network("172.29.0.0/16"), network("192.168.213.0/24")];
        assert_eq!(choose(&taken, 16384).unwrap().host, Ipv4Addr::new(10, 213, 0, 1));
    }

    #[test]
    fn routed_range_leaves_room_within_it_where_nothing_else_is_free() {
        let ranges = [network("10.0.0.0/8"), network("172.16.0.0/12"), network("192.168.0.0/16")];
        assert_eq!(choose(&ranges[..1], 0).unwrap().host, Ipv4Addr::new(172, 29, 0, 1));
        let all = [ranges[0], ranges[1], ranges[2], network("10.213.0.0/24")];
        assert_eq!(choose(&all, 0).unwrap().host, Ipv4Addr::new(10, 213, 1, 1));
    }

    #[test]
    fn last_pair_is_in_the_last_pool_and_none_is_behind() {
        assert_eq!(pair(2 * 16384 + 63).unwrap().host, Ipv4Addr::new(192, 168, 213, 253));
        assert!(pair(2 * 16384 + 64).is_none());
        let taken = [
            network("10.213.0.0/17"),
            network("10.213.128.0/17"),
            network("172.29.0.0/17"),
            network("172.29.128.0/17"),
            network("192.168.213.0/24"),
        ];
        assert_eq!(choose(&taken, 5), None);
    }
}
