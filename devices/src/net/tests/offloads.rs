//! Checksums and segmentation that one side leaves to the other.

use std::net::{Ipv4Addr, UdpSocket};

use super::host::{give_addresses, send_segmented};
use super::*;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GUEST_TSO4: u64 = 1 << 7;
const GUEST_USO4: u64 = 1 << 54;

const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_UDP_L4: u8 = 5;
const UDP: u8 = 17;
const TCP: u8 = 6;
/// Where the transport's header is, behind Ethernet and IPv4.
const TRANSPORT: usize = 34;

/// The sum that checksums of the Internet are the complement of.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| (*low).into()));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}

/// What a transport's checksum covers beside its own bytes.
fn pseudo_header(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, length: usize) -> Vec<u8> {
    let length = u16::try_from(length).unwrap().to_be_bytes();
    [&from.octets()[..], &to.octets(), &[0, protocol], &length].concat()
}

/// Ethernet and IPv4 around what a transport sends.
fn packet(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + transport.len()).unwrap().to_be_bytes();
    let mut ip = [&[0x45, 0], &length[..], &[0, 1, 0, 0, 64, protocol, 0, 0]].concat();
    ip.extend([from.octets(), to.octets()].concat());
    let checksum = !sum(&ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    // The host's TAP takes everything that is written to it, whoever it is for.
    [&MacAddress::BROADCAST.0[..], &MAC.0, &[8, 0], &ip, transport].concat()
}

fn udp(from: u16, to: u16, checksum: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + data.len()).unwrap();
    let header = [from, to, length, checksum].map(u16::to_be_bytes);
    [&header.concat(), data].concat()
}

fn header(flags: u8, segmentation: u8, size: u16) -> [u8; 12] {
    let [start, offset] = [34_u16, 6].map(u16::to_le_bytes);
    let [length, size] = [42, size].map(u16::to_le_bytes);
    let fields = [&[flags, segmentation][..], &length, &size, &start, &offset, &[0, 0]];
    fields.concat().try_into().unwrap()
}

/// Whether the checksum of the datagram in a frame is not that of its bytes.
fn is_wrong(frame: &[u8]) -> bool {
    let datagram = &frame[TRANSPORT..];
    let covered = [pseudo_header(HOST, GUEST, UDP, datagram.len()), datagram.to_vec()].concat();
    !sum(&covered) != 0
}

#[test]
fn checksum_of_the_host_is_left_to_a_guest_that_takes_it() {
    in_new_network(|| {
        for (left_out, flags) in [(0, NEEDS_CSUM), (GUEST_CSUM, 0)] {
            let mut bench = Bench::running_without(left_out, &NetConfig::new(MAC), taps(1));
            give_addresses(MAC);
            let host = UdpSocket::bind((HOST, 0)).unwrap();
            bench.post(1, 2000);
            host.send_to(b"over there", (GUEST, 9)).unwrap();
            assert_eq!(bench.used(0, 1), [(0, 12 + 42 + 10)]);
            let header = bench.memory(DATA, 12);
            let received = bench.memory(DATA + 12, 42 + 10);
            assert_eq!(&received[TRANSPORT + 8..], b"over there");
            assert_eq!((header[0], header[1]), (flags, 0));
            assert_eq!(is_wrong(&received), flags == NEEDS_CSUM);
        }
    });
}

#[test]
fn checksum_of_the_guest_is_completed_by_the_host() {
    in_new_network(|| {
        let mut bench = Bench::running(1);
        give_addresses(MAC);
        let host = UdpSocket::bind((HOST, 0)).unwrap();
        host.set_nonblocking(true).unwrap();
        let port = host.local_addr().unwrap().port();
        let partial = sum(&pseudo_header(GUEST, HOST, UDP, 8 + 5));
        let sent = packet(GUEST, HOST, UDP, &udp(9, port, partial, b"hello"));
        let mut received = [0; 64];
        // A checksum that nobody completes is wrong.
        bench.send(header(0, 0, 0), &sent);
        assert!(host.recv(&mut received).is_err());
        bench.send(header(NEEDS_CSUM, 0, 0), &sent);
        assert_eq!(host.recv(&mut received).unwrap(), 5);
        assert_eq!(&received[..5], b"hello");
        assert_eq!(bench.counters().transmitted, 2);
    });
}

#[test]
fn segmentation_of_tcp_is_left_to_a_guest_that_takes_it() {
    in_new_network(|| {
        for (left_out, frames, kind) in [(0, 1, GSO_TCPV4), (GUEST_TSO4, 4, 0)] {
            let mut bench = Bench::running_without(left_out, &NetConfig::new(MAC), taps(1));
            bench.post(16, 1500);
            let mut segment = vec![0; 20 + 2000];
            segment[12] = 5 << 4;
            let partial = sum(&pseudo_header(HOST, GUEST, TCP, segment.len()));
            segment[16..18].copy_from_slice(&partial.to_be_bytes());
            let sent = packet(HOST, GUEST, TCP, &segment);
            let mut ask = header(NEEDS_CSUM, GSO_TCPV4, 500);
            ask[2] = 54;
            ask[8] = 16;
            send_segmented(&ask[..10], &sent);
            let used = bench.used(0, 2);
            bench.settle();
            let used: u32 =
                used.into_iter().chain(bench.used(0, 0)).map(|(_, length)| length).sum();
            assert_eq!(used, 2000 + frames * (12 + 54));
            assert_eq!(bench.counters().received, u64::from(frames));
            assert_eq!(bench.memory(DATA + 1, 1), [kind]);
        }
    });
}

#[test]
fn segmentation_of_udp_goes_both_ways_where_the_tap_has_it() {
    in_new_network(|| {
        let probed = Net::new(&NetConfig::new(MAC), taps(1)).unwrap().has_uso();
        for (left_out, is_taken) in [(0, probed), (GUEST_USO4, false)] {
            let mut bench = Bench::running_without(left_out, &NetConfig::new(MAC), taps(1));
            give_addresses(MAC);
            let host = UdpSocket::bind((HOST, 0)).unwrap();
            nix::sys::socket::setsockopt(&host, nix::sys::socket::sockopt::UdpGsoSegment, &100)
                .unwrap();
            bench.post(16, 1500);
            host.send_to(&[7; 1000], (GUEST, 9)).unwrap();
            bench.used(0, 1);
            bench.settle();
            let frames = if is_taken { 1 } else { 10 };
            assert_eq!(bench.counters().received, frames);
            assert_eq!(bench.memory(DATA + 1, 1), [if is_taken { GSO_UDP_L4 } else { 0 }]);
        }
        let mut bench = Bench::running(1);
        give_addresses(MAC);
        let host = UdpSocket::bind((HOST, 0)).unwrap();
        host.set_nonblocking(true).unwrap();
        let port = host.local_addr().unwrap().port();
        let partial = sum(&pseudo_header(GUEST, HOST, UDP, 8 + 300));
        let sent = packet(GUEST, HOST, UDP, &udp(9, port, partial, &[5; 300]));
        bench.send(header(NEEDS_CSUM, GSO_UDP_L4, 100), &sent);
        let received = std::iter::from_fn(|| host.recv(&mut [0; 512]).ok());
        assert_eq!(received.collect::<Vec<_>>(), vec![100; if probed { 3 } else { 0 }]);
    });
}

#[test]
fn next_driver_gets_only_what_it_takes_itself() {
    in_new_network(|| {
        let mut bench = Bench::running(1);
        give_addresses(MAC);
        let host = UdpSocket::bind((HOST, 0)).unwrap();
        // One that the TAP has queued for the first driver is unfinished.
        host.send_to(b"early", (GUEST, 9)).unwrap();
        let _ = bench.driver.reset();
        bench.pause();
        bench.function.deactivated().unwrap();
        host.send_to(b"late", (GUEST, 9)).unwrap();
        let fresh = |queue: u64| FakeRing::new(&bench.ram, GuestAddress(0x1000 * (queue + 1)), 16);
        bench.rings = (0..3).map(fresh).collect();
        bench.fill(0x1000, &[0; 0x3000]);
        let features = bench.driver.offered() & !GUEST_CSUM;
        bench.start(features);
        bench.post(4, 2000);
        assert_eq!(bench.used(0, 1), [(0, 12 + 42 + 4)]);
        let received = bench.memory(DATA + 12, 46);
        assert_eq!(&received[42..], b"late");
        assert!(!is_wrong(&received));
        assert_eq!((bench.counters().unfit, bench.counters().received), (1, 1));
    });
}
