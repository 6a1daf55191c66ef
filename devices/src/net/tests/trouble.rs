//! Limits, and TAPs that are down, full, gone or none.

use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};
use nix::unistd::dup2_raw;

use super::host::{delete, set_up};
use super::*;

/// Ten packets a second, one at once.
fn slow() -> RateLimits {
    let number = |number| NonZeroU64::new(number).unwrap();
    let limit = RateLimit { per_second: number(10), burst: number(1) };
    RateLimits { operations: Some(limit), bytes: None }
}

#[test]
fn receiving_keeps_to_its_limit_and_wakes_nobody_meanwhile() {
    in_new_network(|| {
        let config = NetConfig { receive: slow(), ..NetConfig::new(MAC) };
        let mut bench = Bench::running_without(0, &config, taps(1));
        let wire = Wire::new();
        bench.post(3, 100);
        let start = Instant::now();
        for _ in 0..3 {
            wire.send(&frame(MAC, 60));
        }
        assert_eq!(bench.used(0, 3), [(0, 72), (1, 72), (2, 72)]);
        assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
        assert_eq!((bench.counters().received, bench.counters().throttled), (3, 2));
    });
}

#[test]
fn transmitting_keeps_to_its_limit() {
    in_new_network(|| {
        let config = NetConfig { transmit: slow(), ..NetConfig::new(MAC) };
        let mut bench = Bench::running_without(0, &config, taps(1));
        let start = Instant::now();
        for _ in 0..3 {
            bench.send([0; 12], &frame(PEER, 60));
        }
        assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
        assert_eq!((bench.counters().transmitted, bench.counters().throttled), (3, 2));
    });
}

#[test]
fn frames_for_a_tap_that_is_down_are_lost_and_counted() {
    in_new_network(|| {
        let mut bench = Bench::running(1);
        bench.post(2, 100);
        set_up(false);
        bench.send([0; 12], &frame(PEER, 60));
        bench.settle();
        assert_eq!((bench.counters().refused, bench.counters().transmitted), (1, 0));
        set_up(true);
        bench.send([0; 12], &frame(PEER, 60));
        let wire = Wire::new();
        wire.send(&frame(MAC, 60));
        assert_eq!(bench.used(0, 1), [(0, 72)]);
        assert_eq!((bench.counters().refused, bench.counters().transmitted), (1, 1));
    });
}

#[test]
fn tap_that_is_gone_wakes_nobody_and_stops_nobody() {
    in_new_network(|| {
        for pairs in [1, 2] {
            let mut bench = Bench::running(pairs);
            bench.post(2, 100);
            bench.settle();
            delete();
            bench.settle();
            assert_eq!(bench.counters().receive_errors, 1);
            bench.send([0; 12], &frame(PEER, 60));
            bench.settle();
            assert_eq!(bench.counters().refused, 1);
            bench.pause();
        }
    });
}

#[test]
fn tap_without_room_is_waited_for() {
    in_new_network(|| {
        let taps = taps(1);
        let tap = taps[0].as_raw_fd();
        let mut bench = Bench::new(&NetConfig::new(MAC), taps);
        assert!(bench.driver.negotiate(bench.driver.offered()));
        for queue in 0..3 {
            assert!(bench.driver.set_up_queue(queue, &bench.rings[usize::from(queue)], 0xffff));
        }
        let _ = bench.driver.ready();
        bench.tasks = bench.function.activate().unwrap();
        // A TAP is full only if the host is: a socket, which can be filled, takes its place.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (near, far) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        // SAFETY: the descriptor is that of the TAP, which the device owns and goes on using as its own.
        let replaced = unsafe { dup2_raw(&near, tap) }.unwrap();
        std::mem::forget(replaced);
        drop(near);
        bench.tasks.iter_mut().for_each(|task| task.rearm());
        bench.fill(DATA, &[&[0; 12][..], &frame(PEER, 8000)].concat());
        let receive = |far: &OwnedFd| recv(far.as_raw_fd(), &mut [0; 9000], MsgFlags::empty());
        let mut sent = 0;
        // As many as the socket takes, and one that it does not.
        loop {
            bench.chain(1, sent % 16, &[(DATA, 8012)], 0);
            bench.settle();
            if bench.rings[1].take_used().is_empty() {
                break;
            }
            sent += 1;
        }
        assert!(sent > 0);
        assert_eq!(bench.turn(), 0, "nothing wakes the worker while there is no room");
        for _ in 0..sent {
            assert_eq!(receive(&far), Ok(8012));
        }
        assert_eq!(bench.used(1, 1), [(u32::from(sent % 16), 0)]);
        assert_eq!(receive(&far), Ok(8012));
        bench.settle();
        assert_eq!(bench.turn(), 0, "nor when there is room and nothing to send");
        let counters = bench.counters();
        assert_eq!((counters.transmitted, counters.refused), (u64::from(sent) + 1, 0));
    });
}

#[test]
fn descriptors_that_are_no_tap_are_refused_with_the_reason() {
    in_new_network(|| {
        let config = NetConfig::new(MAC);
        let refusal = |config: &NetConfig, taps| Net::new(config, taps).err().unwrap();
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        let error = refusal(&config, vec![null()]);
        assert!(matches!(error, NetError::Tap { pair: 0, source: TapFault::NotTap(_) }), "{error}");
        let unattached = OwnedFd::from(File::open("/dev/net/tun").unwrap());
        let error = refusal(&config, vec![unattached]);
        assert!(matches!(error, NetError::Tap { pair: 0, source: TapFault::NotTap(_) }), "{error}");
        let single = taps(1).pop().unwrap();
        let error = refusal(&config, vec![single, null()]);
        let flags = matches!(error, NetError::Tap { pair: 0, source: TapFault::Flags { .. } });
        assert!(flags, "{error}");
        let error = refusal(&config, vec![]);
        assert_eq!(error.to_string(), "no interface has 0 pairs of queues of 256 descriptors");
        for (config, text) in [
            (NetConfig::new(MacAddress([3; 6])), "no interface can have the address 03:03"),
            (NetConfig { mtu: Some(67), ..config.clone() }, "an MTU of 67 bytes: 68 is the least"),
            (NetConfig { queue_size: 100, ..config.clone() }, "1 pairs of queues of 100"),
            (NetConfig { queue_size: 512, ..config }, "1 pairs of queues of 512"),
        ] {
            let error = refusal(&config, taps(1)).to_string();
            assert!(error.contains(text), "{error}");
        }
    });
}

#[test]
fn interface_without_a_vhost_that_it_can_use_works_by_itself() {
    in_new_network(|| {
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        let config = NetConfig::new(MAC);
        let limited = NetConfig { transmit: slow(), ..config.clone() };
        for (config, vhosts, text) in [
            (&config, vec![], "0 descriptors of vhost for 1 pairs of queues"),
            (&config, vec![null(), null()], "2 descriptors of vhost for 1 pairs of queues"),
            (&config, vec![null()], "the descriptor of vhost for queue pair 0 cannot be used"),
            (&limited, vec![null()], "vhost cannot keep to rate limits"),
        ] {
            let mut net = Net::new(config, taps(1)).unwrap();
            let offered = net.features();
            assert_eq!(net.use_vhost(vhosts).unwrap_err().to_string(), text);
            assert_eq!(net.features(), offered);
            let mut bench = Bench::of(net);
            let features = bench.driver.offered();
            bench.start(features);
            bench.send([0; 12], &frame(PEER, 60));
            assert_eq!((bench.counters().transmitted, bench.counters().vhost_refused), (1, 0));
        }
    });
}

#[test]
fn queue_that_was_detached_is_used_again() {
    in_new_network(|| {
        let queues = taps(2);
        let copies = queues.iter().map(|queue| queue.try_clone().unwrap()).collect();
        // With one active pair, the second queue is detached when this interface goes.
        drop(Bench::running_without(0, &NetConfig::new(MAC), copies));
        let mut bench = Bench::running_without(0, &NetConfig::new(MAC), queues);
        assert_eq!(bench.command(&[4, 0, 2, 0]), 0);
    });
}

#[test]
fn features_are_those_that_were_asked_for() {
    in_new_network(|| {
        let offered = |config: &NetConfig, pairs| Net::new(config, taps(pairs)).unwrap().features();
        let plain = NetConfig { uso: Some(false), ..NetConfig::new(MAC) };
        let usual = 1 << 5 | 0xf << 15 | 0x3 << 20 | 1 << 23 | 0x3 | 0x7 << 7 | 0x7 << 11;
        assert_eq!(offered(&plain, 1), usual);
        assert_eq!(offered(&plain, 2), usual | 1 << 22);
        assert_eq!(offered(&NetConfig { mtu: Some(9000), ..plain }, 1), usual | 1 << 3);
        let probed = Net::new(&NetConfig::new(MAC), taps(1)).unwrap();
        let uso = if probed.has_uso() { 0x7 << 54 } else { 0 };
        assert_eq!(probed.features(), usual | uso);
    });
}
