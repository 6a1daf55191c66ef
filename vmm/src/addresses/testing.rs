//! What tests of all protocols share.

use corten_link::{Addressing, Ipv4Addressing, Ipv6Addressing};

use super::Mac;

/// The guest's.
pub(super) const MAC: Mac = [0x02, 0xc0, 0x47, 0xe4, 0, 0];
/// Somebody else's.
pub(super) const OTHER: Mac = [0x02, 0xc0, 0x47, 0xe4, 0, 1];

/// Of a guest behind a host that translates its addresses.
pub(super) fn addressing() -> Addressing {
    Addressing {
        ipv4: Some(ipv4()),
        ipv6: Some(ipv6()),
        hostname: "vm".into(),
        search: vec!["default.svc.cluster.local".into(), "cluster.local".into()],
        mtu: Some(1450),
        ..Addressing::default()
    }
}

pub(super) fn ipv4() -> Ipv4Addressing {
    Ipv4Addressing {
        address: [10, 0, 2, 2].into(),
        prefix: 24,
        server: [10, 0, 2, 1].into(),
        gateway: Some([10, 0, 2, 1].into()),
        routes: Vec::new(),
        dns: vec![[10, 96, 0, 10].into(), [10, 96, 0, 11].into()],
    }
}

pub(super) fn ipv6() -> Ipv6Addressing {
    Ipv6Addressing {
        address: "fd10:0:2::2".parse().unwrap(),
        prefix: 120,
        is_router: true,
        router_mac: Some([2, 0, 0, 0, 0, 0]),
        dns: vec!["fd10:96::a".parse().unwrap()],
    }
}

pub(super) fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<char> = hexadecimal.chars().filter(|digit| !digit.is_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| pair.iter().collect::<String>());
    pairs.map(|pair| u8::from_str_radix(&pair, 16).unwrap()).collect()
}
