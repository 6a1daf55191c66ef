//! What drivers ask for on the control queue.

use std::net::{Ipv4Addr, UdpSocket};

use super::host::give_addresses;
use super::*;

const OK: u8 = 0;
const ERR: u8 = 1;
const MQ: u64 = 1 << 22;
const GROUP: MacAddress = MacAddress([1, 0, 0x5e, 0, 0, 9]);
const ANNOUNCE: u8 = 2;
const LINK_UP: u8 = 1;

/// Sends a frame to each address, and says which arrive.
fn arriving(bench: &mut Bench, wire: &Wire) -> Vec<MacAddress> {
    let before = bench.counters().received;
    for to in [MAC, PEER, GROUP, MacAddress::BROADCAST] {
        wire.send(&frame(to, 60));
    }
    bench.post(4, 100);
    bench.settle();
    let count = bench.rings[0].take_used().len();
    assert_eq!(bench.counters().received - before, count as u64);
    // Buffers that were not used are used first the next time, so look where each frame is.
    let at = |index: usize| bench.memory(DATA + 100 * index as u64 + 12, 6);
    let address = |bytes: Vec<u8>| MacAddress(bytes.try_into().unwrap());
    let seen = (0..count).map(|index| address(at(index))).collect();
    // The driver takes all buffers back by starting anew.
    let _ = bench.driver.reset();
    bench.pause();
    bench.function.deactivated().unwrap();
    seen
}

fn filtered_by(commands: &[&[u8]]) -> Vec<MacAddress> {
    let mut bench = Bench::running(1);
    let wire = Wire::new();
    for command in commands {
        assert_eq!(bench.command(command), OK, "{command:?}");
    }
    arriving(&mut bench, &wire)
}

#[test]
fn driver_chooses_what_it_receives() {
    in_new_network(|| {
        let everybody = MacAddress::BROADCAST;
        let quiet: &[u8] = &[0, 0, 0];
        let tables = [&[1, 0, 1, 0, 0, 0][..], &PEER.0, &[1, 0, 0, 0], &GROUP.0].concat();
        let address = [&[1, 1][..], &PEER.0].concat();
        assert_eq!(filtered_by(&[]), [MAC, PEER, GROUP, everybody]);
        assert_eq!(filtered_by(&[quiet]), [MAC, everybody]);
        assert_eq!(filtered_by(&[quiet, &[0, 1, 1]]), [MAC, GROUP, everybody]);
        assert_eq!(filtered_by(&[quiet, &[0, 2, 1]]), [MAC, PEER, everybody]);
        assert_eq!(filtered_by(&[quiet, &tables]), [MAC, PEER, GROUP, everybody]);
        assert_eq!(filtered_by(&[quiet, &tables, &[0, 3, 1]]), [MAC, PEER, everybody]);
        assert_eq!(filtered_by(&[quiet, &[0, 4, 1]]), [everybody]);
        assert_eq!(filtered_by(&[quiet, &[0, 5, 1]]), [MAC]);
        assert_eq!(filtered_by(&[quiet, &address]), [PEER, everybody]);
    });
}

#[test]
fn address_that_a_driver_sets_is_shown_until_it_leaves() {
    in_new_network(|| {
        let mut bench = Bench::running(1);
        assert_eq!(bench.command(&[&[1, 1][..], &PEER.0].concat()), OK);
        assert_eq!(bench.config(0, 6), PEER.0);
        assert_eq!(bench.command(&[&[1, 1][..], &GROUP.0].concat()), ERR);
        bench.driver.set_config(0, &[9; 6]);
        assert_eq!(bench.config(0, 6), PEER.0);
        let _ = bench.driver.reset();
        bench.pause();
        bench.function.deactivated().unwrap();
        assert_eq!(bench.config(0, 6), MAC.0);
        assert_eq!(bench.counters().malformed, 1);
    });
}

#[test]
fn driver_is_asked_to_announce_itself_until_it_has() {
    in_new_network(|| {
        let mut bench = Bench::new(&NetConfig::new(MAC), taps(1));
        assert!(!bench.function.change_config(Net::announce), "there is no driver");
        let features = bench.driver.offered();
        bench.start(features);
        assert_eq!(bench.config(6, 2), [LINK_UP, 0]);
        assert!(!was_raised(&bench.interrupts[0]));
        assert!(bench.function.change_config(Net::announce));
        assert!(was_raised(&bench.interrupts[0]));
        assert_eq!(bench.config(6, 2), [LINK_UP | ANNOUNCE, 0]);
        assert_eq!(bench.command(&[3, 0]), OK);
        assert_eq!(bench.config(6, 2), [LINK_UP, 0]);
    });
}

#[test]
fn driver_that_cannot_announce_is_not_asked() {
    in_new_network(|| {
        let mut bench = Bench::running_without(1 << 21, &NetConfig::new(MAC), taps(1));
        assert!(!bench.function.change_config(Net::announce));
        assert_eq!(bench.config(6, 2), [LINK_UP, 0]);
        assert_eq!(bench.command(&[3, 0]), ERR);
    });
}

/// Sends from 16 ports, which the TAP spreads over its queues: how many frames arrive on each pair.
fn spread(bench: &mut Bench) -> [usize; 2] {
    for queue in [0, 2] {
        for index in 0..16 {
            bench.chain(queue, index, &[(DATA + u64::from(index) * 0x100, 0x100)], FakeRing::WRITE);
        }
    }
    let before = bench.counters().received;
    for _ in 0..16 {
        let host = UdpSocket::bind((Ipv4Addr::new(10, 0, 0, 1), 0)).unwrap();
        host.send_to(b"x", (Ipv4Addr::new(10, 0, 0, 2), 9)).unwrap();
    }
    bench.settle();
    assert_eq!(bench.counters().received - before, 16);
    [0, 2].map(|queue| bench.rings[queue].take_used().len())
}

/// Two pairs at work, of which the driver uses some.
fn with_active(commands: &[&[u8]]) -> Bench {
    let mut bench = Bench::running(2);
    give_addresses(MAC);
    for command in commands {
        assert_eq!(bench.command(command), OK, "{command:?}");
    }
    bench
}

#[test]
fn frames_come_by_active_pairs_only() {
    in_new_network(|| {
        assert_eq!(spread(&mut with_active(&[])), [16, 0]);
        let [first, second] = spread(&mut with_active(&[&[4, 0, 2, 0]]));
        assert!(first > 0 && second > 0, "{first} {second}");
        assert_eq!(spread(&mut with_active(&[&[4, 0, 2, 0], &[4, 0, 1, 0]])), [16, 0]);
        let again: [&[u8]; 3] = [&[4, 0, 2, 0], &[4, 0, 1, 0], &[4, 0, 2, 0]];
        let [first, second] = spread(&mut with_active(&again));
        assert!(first > 0 && second > 0, "{first} {second}");
    });
}

#[test]
fn pair_that_is_not_active_transmits_when_it_is() {
    in_new_network(|| {
        let mut bench = Bench::running(2);
        let wire = Wire::new();
        let sent = frame(PEER, 60);
        bench.fill(DATA, &[&[0; 12][..], &sent].concat());
        bench.chain(3, 0, &[(DATA, 72)], 0);
        bench.settle();
        assert_eq!(wire.try_receive(), None);
        assert_eq!(bench.command(&[4, 0, 2, 0]), OK);
        assert_eq!(bench.used(3, 1), [(0, 0)]);
        assert_eq!(wire.receive(), sent);
    });
}

#[test]
fn numbers_of_pairs_that_cannot_be_are_refused() {
    in_new_network(|| {
        let mut bench = Bench::running(2);
        assert_eq!(bench.config(8, 2), [2, 0]);
        for pairs in [0_u16, 3, 0x8000] {
            assert_eq!(bench.command(&[&[4, 0][..], &pairs.to_le_bytes()].concat()), ERR);
        }
        assert_eq!(bench.counters().malformed, 3);
    });
}

#[test]
fn driver_of_one_pair_has_its_control_queue_behind_it() {
    in_new_network(|| {
        let mut bench = Bench::new(&NetConfig::new(MAC), taps(2));
        let features = bench.driver.offered() & !MQ;
        assert_eq!(bench.pairs, 2);
        bench.start(features);
        bench.fill(COMMAND, &[0, 0, 0]);
        bench.rings[2].describe(0, (GuestAddress(COMMAND), 3), FakeRing::NEXT, 1);
        bench.rings[2].describe(1, (GuestAddress(ANSWER), 1), FakeRing::WRITE, 0);
        bench.offer(2, 0);
        assert_eq!(bench.used(2, 1), [(0, 1)]);
        assert_eq!(bench.memory(ANSWER, 1), [OK]);
        // Queues that are of no use come back all the same.
        bench.pause();
        bench.resume();
    });
}

#[test]
fn driver_without_its_first_queues_does_not_start() {
    in_new_network(|| {
        let bench = Bench::new(&NetConfig::new(MAC), taps(1));
        assert!(bench.driver.negotiate(bench.driver.offered()));
        assert!(bench.driver.set_up_queue(0, &bench.rings[0], 0xffff));
        let _ = bench.driver.ready();
        let error = bench.function.activate().err().unwrap();
        assert_eq!(error.to_string(), "the driver did not enable queue 1");
        assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0);
    });
}
