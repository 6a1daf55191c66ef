//! Any bytes of a guest that asks for its IPv6 address: they are survived, and the answer is bounded, on a link of its own and
//! on one with others. So are any options of good lengths.
#![no_main]

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use corten_link::{Addressing, Ipv6Addressing};
use corten_vmm::addresses::Dhcp6;
use libfuzzer_sys::fuzz_target;

const MAC: [u8; 6] = [2, 0xc0, 0x47, 0xe4, 0, 0];
/// Made of that Ethernet address.
const FROM: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xc0, 0x47ff, 0xfee4, 0);
/// What fits into the smallest link.
const MAX_ANSWER: usize = 1280 - 48;

static SERVERS: LazyLock<[Dhcp6; 2]> = LazyLock::new(|| {
    [true, false].map(|is_router| {
        let ipv6 = Ipv6Addressing {
            address: Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 2),
            prefix: 120,
            is_router,
            router_mac: None,
            dns: vec![Ipv6Addr::LOCALHOST; 16],
        };
        let search = (0..32).map(|number| format!("domain{number}.svc.cluster.local")).collect();
        let addressing = Addressing { search, ..Addressing::default() };
        Dhcp6::new(MAC, &addressing, &ipv6).expect("it can be told")
    })
});

fn check(packet: &[u8]) {
    for server in SERVERS.iter() {
        if let Ok(reply) = server.answer(packet, FROM) {
            assert!((4..=MAX_ANSWER).contains(&reply.len()));
            assert_eq!(reply[1..4], packet[1..4], "another transaction");
        }
    }
}

/// A kind of message, options by code, and whatever.
type Input<'a> = (u8, Vec<(u16, &'a [u8])>, &'a [u8]);

fuzz_target!(|input: Input<'_>| {
    let (kind, options, bytes) = input;
    check(bytes);
    let mut packet = vec![kind % 14, 1, 2, 3];
    for (code, value) in options {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        packet.extend((code % 32).to_be_bytes());
        packet.extend(length.to_be_bytes());
        packet.extend(&value[..length.into()]);
    }
    check(&packet);
});
