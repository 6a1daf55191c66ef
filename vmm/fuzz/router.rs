//! Any bytes of a guest that looks for routers, from any address: they are survived, and an answer goes to the link only.
#![no_main]

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use corten_link::{Addressing, Ipv6Addressing};
use corten_vmm::addresses::Router;
use libfuzzer_sys::fuzz_target;

static ROUTERS: LazyLock<[Router; 2]> = LazyLock::new(|| {
    [true, false].map(|is_router| {
        let ipv6 = Ipv6Addressing {
            address: Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 2),
            prefix: 120,
            is_router,
            router_mac: None,
            dns: Vec::new(),
        };
        Router::new([2, 0xc0, 0x47, 0xe4, 0, 0], &Addressing::default(), &ipv6)
            .expect("it can be told")
    })
});

fn check(packet: &[u8], from: Ipv6Addr) {
    for router in ROUTERS.iter() {
        if let Ok((_, to)) = router.answer(packet, from) {
            assert!(to.is_unicast_link_local() || to.is_multicast());
        }
    }
}

fuzz_target!(|input: ([u8; 16], &[u8])| {
    let (from, bytes) = input;
    let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xc0, 0x47ff, 0xfee4, 0);
    let solicitation = [&[133, 0, 0, 0, 0, 0, 0, 0][..], bytes].concat();
    for from in [Ipv6Addr::from(from), local, Ipv6Addr::UNSPECIFIED] {
        check(bytes, from);
        check(&solicitation, from);
    }
});
