use std::fs::File;
use std::os::fd::OwnedFd;

use corten_link::Ipv6Addressing;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::super::testing::{MAC, addressing, bytes, ipv6};
use super::*;

/// Four times what a quiet machine needs, and more.
const SOON: Duration = Duration::from_secs(20);

fn interface(addressing: Addressing) -> Interface {
    Interface { name: "net1".into(), mac: MAC, addressing }
}

fn only_ipv4() -> Interface {
    interface(Addressing { ipv6: None, ..addressing() })
}

/// With whatever port.
fn udp(address: &str) -> OwnedFd {
    UdpSocket::bind((address, 0)).unwrap().into()
}

fn grant(roles: [&str; 3]) -> Grant {
    let sockets = [udp("127.0.0.1"), udp("::1"), udp("::1")];
    roles.iter().zip(sockets).map(|(role, fd)| (role.parse().unwrap(), fd)).collect()
}

fn refusal(interfaces: &[Interface], mut granted: Grant) -> String {
    let error = Addresses::start(interfaces, &mut granted).unwrap_err();
    crate::machine::chain(&error)
}

/// Waits until what was counted is as it is to be.
fn counted(addresses: &Addresses, is_so: impl Fn(&AddressCounters) -> bool) -> AddressCounters {
    let deadline = Instant::now() + SOON;
    loop {
        let mut counters = Counters::default();
        addresses.count(&mut counters);
        let found = counters.networks["net1"].addresses;
        if is_so(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn sockets_are_taken_out_of_the_grant() {
    let mut granted = grant(["dhcp4/net1", "dhcp6/net1", "router/net1"]);
    granted.insert(Role::kvm(), memfd_create("none", MFdFlags::empty()).unwrap());
    let addresses = Addresses::start(&[interface(addressing())], &mut granted).unwrap();
    assert!(granted.keys().eq([&Role::kvm()]));
    assert!(addresses.thread.is_some());
}

#[test]
fn without_interfaces_there_is_no_thread() {
    let addresses = Addresses::start(&[], &mut Grant::new()).unwrap();
    assert!(addresses.thread.is_none());
    addresses.follow(true);
}

#[test]
fn part_without_a_socket_is_named() {
    for (lacks, roles) in [
        ("dhcp4/net1", ["dhcp4/net2", "dhcp6/net1", "router/net1"]),
        ("dhcp6/net1", ["dhcp4/net1", "dhcp6/net2", "router/net1"]),
        ("router/net1", ["dhcp4/net1", "dhcp6/net1", "router/net2"]),
    ] {
        let text = refusal(&[interface(addressing())], grant(roles));
        assert!(text.starts_with(&format!("the descriptor {lacks} was not granted")), "{text}");
    }
}

#[test]
fn socket_without_a_part_is_named() {
    let text = refusal(&[only_ipv4()], grant(["dhcp4/net1", "tap/net1/0", "router/net1"]));
    let expected =
        "the descriptor router/net1 was granted, and there are no addresses to tell on it";
    assert_eq!(text, expected);
    let text = refusal(&[], grant(["dhcp4/net1", "kvm", "uffd"]));
    assert!(text.starts_with("the descriptor dhcp4/net1 was granted"), "{text}");
}

#[test]
fn descriptor_that_is_no_such_socket_is_named() {
    let role = || Role::dhcp4("net1").unwrap();
    let file: OwnedFd = File::from(memfd_create("none", MFdFlags::empty()).unwrap()).into();
    for fd in [file, udp("::1")] {
        let text = refusal(&[only_ipv4()], Grant::from([(role(), fd)]));
        assert!(text.starts_with("the descriptor dhcp4/net1 cannot be used: "), "{text}");
    }
}

#[test]
fn what_cannot_be_told_is_named() {
    let odd = Addressing { search: vec!["a b".into()], ..addressing() };
    let text = refusal(&[interface(odd)], grant(["dhcp4/net1", "dhcp6/net1", "router/net1"]));
    let expected = "the guest cannot be told its addresses on the network \"net1\": \"a b\" is not \
        a domain name";
    assert_eq!(text, expected);
}

/// A thread on loopback: what answers it gives, and what it counts.
#[test]
fn every_packet_is_counted_as_what_it_was() {
    let socket = UdpSocket::bind(("::1", 0)).unwrap();
    let to = socket.local_addr().unwrap();
    let mut granted = grant(["tap/net1/0", "kvm", "router/net1"]);
    granted.remove(&Role::kvm());
    granted.insert(Role::dhcp6("net1").unwrap(), socket.into());
    let described = Addressing { ipv4: None, ..addressing() };
    let addresses = Addresses::start(&[interface(described)], &mut granted).unwrap();
    let guest = UdpSocket::bind(("::1", 0)).unwrap();
    guest.send_to(&bytes("01"), to).unwrap();
    guest.send_to(&bytes("0c000001"), to).unwrap();
    guest.send_to(&[1; MAX_PACKET + 1], to).unwrap();
    guest.send_to(&[], to).unwrap();
    let found = counted(&addresses, |found| found.ignored + found.malformed == 4);
    assert_eq!((found.ignored, found.malformed, found.answered), (1, 3, 0));
}

#[test]
fn flood_is_read_at_a_limited_rate() {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let to = socket.local_addr().unwrap();
    let mut granted = Grant::from([(Role::dhcp4("net1").unwrap(), socket.into())]);
    let begin = Instant::now();
    let addresses = Addresses::start(&[only_ipv4()], &mut granted).unwrap();
    let guest = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    for _ in 0..2 * BURST {
        // Some may find no room in the socket.
        let _ = guest.send_to(&[0; 8], to);
    }
    let found = counted(&addresses, |found| found.malformed > u64::from(BURST) + 8);
    assert!(found.throttled >= 8, "{found:?}");
    assert!(begin.elapsed() >= REFILL * 8);
}

#[test]
fn routers_are_advertised_when_the_machine_begins_to_run_and_not_while_it_stops() {
    let mut post = router_post(ipv6());
    let now = Instant::now();
    post.advertise(now);
    assert_eq!(post.due, None, "it has not run yet");
    post.follow(true, now);
    let mut at = now;
    for pause in [INITIAL_PAUSE, INITIAL_PAUSE, PAUSE, PAUSE] {
        post.advertise(at);
        assert_eq!(post.due, Some(at + pause));
        post.advertise(at + pause / 2);
        assert_eq!(post.due, Some(at + pause), "it is not due yet");
        at += pause;
    }
    let sent = post.counts.advertised.load(Ordering::Relaxed);
    assert_eq!(sent + post.counts.errors.load(Ordering::Relaxed), 4);
    post.follow(false, at);
    post.advertise(at + PAUSE);
    assert_eq!(post.due, None);
}

#[test]
fn nothing_is_advertised_on_a_link_with_others() {
    let mut post = router_post(Ipv6Addressing { is_router: false, ..ipv6() });
    post.follow(true, Instant::now());
    assert_eq!(post.due, None);
}

fn router_post(ipv6: Ipv6Addressing) -> Post {
    let described = Addressing { ipv4: None, ipv6: Some(ipv6), ..addressing() };
    let mut granted = grant(["tap/net1/0", "dhcp6/net1", "router/net1"]);
    let posts = posts_of(&interface(described), &mut granted, &Arc::default()).unwrap();
    posts.into_iter().next_back().unwrap()
}

#[test]
fn bucket_gives_a_burst_and_then_one_at_a_time() {
    let now = Instant::now();
    let mut bucket = Bucket::full(now);
    let last = (0..BURST).map(|_| bucket.take()).collect::<Vec<_>>();
    assert_eq!(last.iter().filter(|is_last| **is_last).count(), 1);
    assert_eq!(bucket.fill(now), Some(now + REFILL));
    assert_eq!(bucket.fill(now + REFILL / 2), Some(now + REFILL));
    assert_eq!(bucket.fill(now + REFILL * 3 / 2), None);
    assert!(bucket.take());
    assert_eq!(bucket.fill(now + REFILL * 3 / 2), Some(now + REFILL * 2), "no time is lost");
    assert_eq!(bucket.fill(now + REFILL * 10_000), None);
    assert_eq!(bucket.level, BURST);
}
