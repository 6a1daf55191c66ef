//! Any bytes of a guest that asks for its IPv4 address: they are survived, and the answer is bounded. So are any options behind a
//! good header, which no random bytes would have.
#![no_main]

use std::sync::LazyLock;

use corten_link::{Addressing, DhcpOptions, Ipv4Addressing, Ipv4Route, PrivateOption};
use corten_vmm::addresses::{Dhcp4, MAX_PACKET};
use libfuzzer_sys::fuzz_target;

const MAC: [u8; 6] = [2, 0xc0, 0x47, 0xe4, 0, 0];

static SERVER: LazyLock<Dhcp4> = LazyLock::new(|| {
    let route = Ipv4Route {
        destination: [192, 168, 0, 0].into(),
        prefix: 20,
        gateway: [10, 0, 2, 5].into(),
    };
    let ipv4 = Ipv4Addressing {
        address: [10, 0, 2, 2].into(),
        prefix: 24,
        server: [10, 0, 2, 1].into(),
        gateway: Some([10, 0, 2, 1].into()),
        routes: vec![route; 8],
        dns: vec![[10, 96, 0, 10].into(); 3],
    };
    let addressing = Addressing {
        hostname: "vm".into(),
        search: (0..32).map(|number| format!("domain{number}.svc.cluster.local")).collect(),
        options: DhcpOptions {
            boot_file: "x".repeat(255),
            tftp_server: "y".repeat(255),
            ntp: vec![[10, 0, 2, 1].into(); 4],
            private: vec![PrivateOption { code: 240, value: "z".repeat(255) }],
        },
        ..Addressing::default()
    };
    Dhcp4::new(MAC, &addressing, &ipv4).expect("it can be told")
});

fn check(packet: &[u8], from: [u8; 4]) {
    if let Ok((reply, to)) = SERVER.answer(packet, from.into()) {
        assert!((300..=MAX_PACKET - 28).contains(&reply.len()));
        assert_eq!(to.port(), 68);
        assert!(to.ip().is_broadcast() || to.ip().octets() == [10, 0, 2, 2]);
        assert_eq!(reply[28..34], MAC);
    }
}

fuzz_target!(|input: ([u8; 4], [u8; 12], &[u8])| {
    let (from, fields, bytes) = input;
    check(bytes, from);
    let mut packet = vec![1, 1, 6, 0];
    packet.extend(fields);
    packet.extend([0; 12]);
    packet.extend(MAC);
    packet.resize(236, 0);
    packet.extend([99, 130, 83, 99]);
    packet.extend(bytes);
    check(&packet, from);
});
