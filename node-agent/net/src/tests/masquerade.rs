//! The masquerade binding: what comes in, what goes out, what does not.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use corten_link::Resolver;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};

use super::guest::Guest;
use super::{
    INSIDE, INSIDE_6, Lan, OUTSIDE, OUTSIDE_6, PATIENCE, ask, configure, ip, seen, udp, within,
};
use crate::namespace::Namespace;
use crate::nft::{self, Family};
use crate::{Binding, InterfacePlan, Masquerade, Port, Protocol, Wired, WiringError, sysctl, wire};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const GUEST: [(&str, u8); 2] = [("10.0.2.2", 24), ("fd10:0:2::2", 120)];
const GATEWAYS: [&str; 2] = ["10.0.2.1", "fd10:0:2::1"];

fn plan(ports: &[Port]) -> InterfacePlan {
    let masquerade = Masquerade { ports: ports.to_vec(), ..Masquerade::default() };
    InterfacePlan {
        name: "default".into(),
        binding: Binding::Masquerade(masquerade),
        mac: Some(MAC),
        pairs: 1,
        hostname: "guest".into(),
        resolver: Resolver::parse(
            "nameserver 192.0.2.53\nnameserver 2001:db8::53\nsearch a.example",
        ),
        ..InterfacePlan::default()
    }
}

fn wired(lan: &Lan, plan: &InterfacePlan) -> Wired {
    wire(lan.inside.as_fd(), "eth0", plan).unwrap()
}

fn guest(wired: &mut Wired) -> Guest {
    Guest::new(std::mem::take(&mut wired.queues), MAC, &GUEST, &GATEWAYS)
}

fn await_readable(socket: &OwnedFd) {
    let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    let patience = PollTimeout::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut ready, patience).unwrap(), 1, "nothing came");
}

#[test]
fn guest_is_told_its_addresses_and_those_of_its_host() {
    let lan = Lan::dual();
    let wired = wired(&lan, &plan(&[]));
    let four = wired.addressing.ipv4.as_ref().unwrap();
    assert_eq!((four.address.to_string(), four.prefix), ("10.0.2.2".into(), 24));
    assert_eq!((four.server, four.gateway), ("10.0.2.1".parse().unwrap(), Some(four.server)));
    assert_eq!(four.dns, ["192.0.2.53".parse::<std::net::Ipv4Addr>().unwrap()]);
    let six = wired.addressing.ipv6.as_ref().unwrap();
    assert_eq!((six.address.to_string(), six.prefix), ("fd10:0:2::2".into(), 120));
    assert_eq!((six.is_router, six.router_mac), (true, Some([2, 0, 0, 0, 0, 0])));
    assert_eq!(six.dns, ["2001:db8::53".parse::<std::net::Ipv6Addr>().unwrap()]);
    assert_eq!((wired.addressing.hostname.as_str(), wired.addressing.mtu), ("guest", Some(1400)));
    assert_eq!((wired.addressing.search.len(), wired.mtu, wired.mac), (1, 1400, Some(MAC)));

    let (grant, _) = wired.into_grant().unwrap();
    let roles: Vec<_> = grant.keys().map(|role| role.as_str()).collect();
    assert_eq!(roles, ["dhcp4/default", "dhcp6/default", "router/default", "tap/default/0"]);
}

#[test]
fn everything_that_comes_in_reaches_the_guest_with_its_source() {
    let lan = Lan::dual();
    let guest = guest(&mut wired(&lan, &plan(&[])));
    let (inside, outside) = (&guest.namespace, &lan.outside);
    assert_eq!(seen(inside, "0.0.0.0:80", outside, &format!("{INSIDE}:80")), OUTSIDE);
    assert_eq!(seen(inside, "[::]:80", outside, &format!("[{INSIDE_6}]:80")), OUTSIDE_6);

    for (at, to) in
        [("10.0.2.2:53", format!("{INSIDE}:53")), ("[::]:53", format!("[{INSIDE_6}]:53"))]
    {
        let (server, client) = (
            udp(inside, at),
            udp(outside, if at.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" }),
        );
        client.send_to(b"question", &to).unwrap();
        let (length, peer) = server.recv_from(&mut [0; 16]).unwrap();
        assert_eq!(length, 8);
        server.send_to(b"answer", peer).unwrap();
        let (_, from) = client.recv_from(&mut [0; 16]).unwrap();
        assert_eq!(from, to.parse::<SocketAddr>().unwrap());
    }
}

#[test]
fn guest_leaves_with_the_uplinks_address_whatever_its_own() {
    let lan = Lan::dual();
    let guest = guest(&mut wired(&lan, &plan(&[])));
    let (inside, outside) = (&guest.namespace, &lan.outside);
    assert_eq!(seen(outside, "0.0.0.0:90", inside, &format!("{OUTSIDE}:90")), INSIDE);
    assert_eq!(seen(outside, "[::]:90", inside, &format!("[{OUTSIDE_6}]:90")), INSIDE_6);

    // An address it made up.
    within(inside, || configure("eth0", &[("10.0.2.77", 24)], &[]));
    let (server, client) = (udp(outside, "0.0.0.0:91"), udp(inside, "10.0.2.77:0"));
    client.send_to(b"x", format!("{OUTSIDE}:91")).unwrap();
    assert_eq!(server.recv_from(&mut [0; 16]).unwrap().1.ip(), ip(INSIDE));
}

#[test]
fn loopback_of_the_namespace_leads_to_the_guest() {
    let lan = Lan::dual();
    let guest = guest(&mut wired(&lan, &plan(&[])));
    assert_eq!(seen(&guest.namespace, "0.0.0.0:80", &lan.inside, "127.0.0.1:80"), "10.0.2.1");
    assert_eq!(seen(&guest.namespace, "[::]:80", &lan.inside, "[::1]:80"), "fd10:0:2::1");
}

#[test]
fn only_listed_ports_reach_the_guest() {
    let lan = Lan::dual();
    let port = |protocol, number| Port { protocol, number };
    let ports = [port(Protocol::Tcp, 80), port(Protocol::Udp, 53)];
    let guest = guest(&mut wired(&lan, &plan(&ports)));
    let (inside, outside) = (&guest.namespace, &lan.outside);
    assert_eq!(seen(inside, "0.0.0.0:80", outside, &format!("{INSIDE}:80")), OUTSIDE);
    assert_eq!(seen(inside, "[::]:80", outside, &format!("[{INSIDE_6}]:80")), OUTSIDE_6);
    assert_eq!(seen(inside, "0.0.0.0:80", &lan.inside, "127.0.0.1:80"), "10.0.2.1");

    // The namespace itself answers for the others: nobody listens there.
    for to in [format!("{INSIDE}:81"), format!("[{INSIDE_6}]:81"), format!("{INSIDE}:53")] {
        assert_eq!(ask(outside, &to).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{to}");
    }
    assert_eq!(ask(&lan.inside, "127.0.0.1:81").unwrap_err().kind(), ErrorKind::ConnectionRefused);

    let (server, client) = (udp(inside, "10.0.2.2:53"), udp(outside, "0.0.0.0:0"));
    client.send_to(b"question", format!("{INSIDE}:53")).unwrap();
    assert_eq!(server.recv(&mut [0; 16]).unwrap(), 8);
}

#[test]
fn wiring_again_gives_the_same() {
    let lan = Lan::dual();
    let first = wired(&lan, &plan(&[]));
    let counts = || {
        within(&lan.inside, || {
            let count = |family| nft::rule_counts(family, "corten-eth0");
            (count(Family::Ipv4), count(Family::Ipv6))
        })
    };
    let rules = counts();
    let addressing = first.addressing.clone();
    drop(first);

    let mut second = wired(&lan, &plan(&[]));
    assert_eq!(counts(), rules);
    assert_eq!(rules.0.values().sum::<usize>(), 7);
    assert_eq!(second.addressing, addressing);
    let guest = guest(&mut second);
    assert_eq!(
        seen(&guest.namespace, "0.0.0.0:80", &lan.outside, &format!("{INSIDE}:80")),
        OUTSIDE
    );

    // Another plan takes the place of the first.
    drop((guest, second));
    let _third = wired(&lan, &plan(&[Port { protocol: Protocol::Tcp, number: 1 }; 1]));
    assert_eq!(counts(), rules);
}

#[test]
fn wiring_beside_a_guest_that_runs_is_refused() {
    let lan = Lan::dual();
    let _wired = wired(&lan, &plan(&[]));
    let error = wire(lan.inside.as_fd(), "eth0", &plan(&[])).unwrap_err();
    assert!(matches!(error, WiringError::Tap(crate::TapError::Exists(_))), "{error:?}");
}

#[test]
fn family_that_the_uplink_does_not_have_is_left_out() {
    let lan = Lan::new(&[(INSIDE, 24)], &[OUTSIDE]);
    let wired = wired(&lan, &plan(&[]));
    assert!(wired.addressing.ipv6.is_none() && wired.dhcp6.is_none() && wired.router.is_none());
    assert!(wired.addressing.ipv4.is_some() && wired.dhcp4.is_some());
    within(&lan.inside, || {
        assert_eq!(nft::table_names(Family::Ipv4), ["corten-eth0"]);
        assert!(nft::table_names(Family::Ipv6).is_empty());
        assert_eq!(sysctl::get("ipv6/conf/all/forwarding").as_deref(), Some("0"));
        assert_eq!(sysctl::get("ipv6/conf/tap0/disable_ipv6").as_deref(), Some("1"));
    });

    let lan = Lan::new(&[(INSIDE_6, 64)], &[OUTSIDE_6]);
    let mut wired = self::wired(&lan, &plan(&[]));
    assert!(wired.addressing.ipv4.is_none() && wired.dhcp4.is_none());
    let guest = guest(&mut wired);
    let to = format!("[{INSIDE_6}]:80");
    assert_eq!(seen(&guest.namespace, "[::]:80", &lan.outside, &to), OUTSIDE_6);
}

#[test]
fn questions_of_the_guest_arrive_at_the_sockets() {
    let lan = Lan::dual();
    let mut wired = wired(&lan, &plan(&[]));
    let guest = guest(&mut wired);

    let client = udp(&guest.namespace, "0.0.0.0:68");
    client.set_broadcast(true).unwrap();
    client.send_to(b"discover", "255.255.255.255:67").unwrap();
    let dhcp4 = UdpSocket::from(wired.dhcp4.unwrap());
    await_readable(&dhcp4.try_clone().unwrap().into());
    assert_eq!(dhcp4.recv(&mut [0; 16]).unwrap(), 8);
    dhcp4.send_to(b"offer", "255.255.255.255:68").unwrap();
    assert_eq!(client.recv(&mut [0; 16]).unwrap(), 5);

    let link = within(&guest.namespace, || nix::net::if_::if_nametoindex("eth0").unwrap());
    let client = udp(&guest.namespace, "[::]:546");
    let servers = std::net::SocketAddrV6::new("ff02::1:2".parse().unwrap(), 547, 0, link);
    client.send_to(b"solicit", servers).unwrap();
    let dhcp6 = UdpSocket::from(wired.dhcp6.unwrap());
    await_readable(&dhcp6.try_clone().unwrap().into());
    let (_, peer) = dhcp6.recv_from(&mut [0; 16]).unwrap();
    dhcp6.send_to(b"reply", peer).unwrap();
    assert_eq!(client.recv(&mut [0; 16]).unwrap(), 5);

    // The guest's kernel looks for routers by itself.
    let router = wired.router.unwrap();
    await_readable(&router);
    let mut packet = [0; 64];
    recv(router.as_raw_fd(), &mut packet, MsgFlags::empty()).unwrap();
    assert_eq!(packet[0], 133);
}

#[test]
fn guest_does_not_reach_the_namespaces_loopback() {
    let lan = Lan::dual();
    let wired = wired(&lan, &plan(&[]));
    let hidden = within(&lan.inside, || UdpSocket::bind("127.0.0.1:4000").unwrap());
    let open = udp(&lan.inside, "10.0.2.1:4000");
    let mut queue = File::from(wired.queues.into_iter().next().unwrap());
    for (from, to) in [
        ([10, 0, 2, 2], [127, 0, 0, 1]),
        ([127, 0, 0, 1], [10, 0, 2, 1]),
        ([10, 0, 2, 2], [10, 0, 2, 1]),
    ] {
        queue.write_all(&datagram(from, to)).unwrap();
    }
    // The last one arrives, and it is the first that does.
    let (_, peer) = open.recv_from(&mut [0; 16]).unwrap();
    assert_eq!(peer.ip(), ip("10.0.2.2"));
    hidden.set_nonblocking(true).unwrap();
    assert_eq!(hidden.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// A frame with a UDP datagram to port 4000, behind a virtio-net header.
fn datagram(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
    ip.extend(from);
    ip.extend(to);
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![0; 10];
    frame.extend([2, 0, 0, 0, 0, 0]);
    frame.extend(MAC);
    frame.extend([8, 0]);
    frame.extend(ip);
    frame.extend([0x0f, 0xa0, 0x0f, 0xa0, 0, 12, 0, 0]);
    frame.extend(b"abcd");
    frame
}

#[test]
fn several_queues_carry_what_one_does() {
    let lan = Lan::dual();
    let mut wired = wired(&lan, &InterfacePlan { pairs: 3, mtu: Some(1300), ..plan(&[]) });
    assert_eq!((wired.queues.len(), wired.mtu), (3, 1300));
    let guest = guest(&mut wired);
    assert_eq!(
        seen(&guest.namespace, "0.0.0.0:80", &lan.outside, &format!("{INSIDE}:80")),
        OUTSIDE
    );
}

#[test]
fn what_cannot_be_wired_is_refused_by_name() {
    let lan = Lan::new(&[], &[]);
    let try_with = |uplink: &str, name: &str| {
        let plan = InterfacePlan { name: name.into(), ..plan(&[]) };
        wire(lan.inside.as_fd(), uplink, &plan).unwrap_err().to_string()
    };
    assert_eq!(try_with("eth1", "default"), "there is no network interface eth1");
    let wanted = "network interface eth0 has no global address, neither IPv4 nor IPv6";
    assert_eq!(try_with("eth0", "default"), wanted);
    assert_eq!(try_with("eth0", "a/b/c"), r#""a/b/c" cannot be the name of a network interface"#);

    let own = Namespace::current().unwrap();
    let error = wire(own.as_fd(), "eth0", &plan(&[])).unwrap_err();
    assert!(matches!(error, WiringError::OwnNamespace));
}
