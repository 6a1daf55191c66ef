//! Drivers that break the rules, or that vhost cannot serve, and descriptors that it cannot be.

use std::process::Command;

use corten_devices::net::{Net, NetConfig, VhostRefusal};
use corten_devices::testing::{FakeRing, in_new_network};
use corten_devices::virtio::{Transport, TransportState};
use corten_net::Tap;
use vm_memory::GuestAddress;

use super::bench::vhosts;
use super::*;

const MRG_RXBUF: u64 = 1 << 15;

#[test]
fn driver_that_breaks_a_ring_is_asked_for_a_reset_and_served_again() {
    in_new_network(|| {
        // Something to write to in what is to be sent, memory that is not there, a descriptor that is not there.
        let chains: [fn(&mut Bench); 3] = [
            |bench| bench.offer(1, 0, 60, FakeRing::WRITE),
            |bench| bench.offer(1, 0, u32::MAX, 0),
            |bench| {
                bench.rings[1].offer(0x4000);
                bench.driver.ring(1);
            },
        ];
        let mut bench = Bench::running(Path::Vhost, 1);
        for (errors, break_ring) in (1..).zip(chains) {
            break_ring(&mut bench);
            bench.needs_reset();
            assert_eq!(
                (bench.counters().vhost_errors, bench.function.faults().rings),
                (errors, errors)
            );
            // It stands still until then.
            bench.post(0, 0);
            bench.wire.send(&frame(1, 60));
            while bench.turn() > 0 {}
            bench.pause();
            assert_eq!(bench.take_used(0), []);
            bench.restart();
            bench.send(1, 0, &frame(2, 60));
            assert_eq!(bench.receive(), frame(2, 60));
            assert_eq!(bench.used(1, 1), [(0, 0)]);
        }
        assert_eq!(bench.counters().vhost_refused, 0);
    });
}

#[test]
fn command_that_breaks_the_device_stops_vhost_too() {
    in_new_network(|| {
        let mut bench = Bench::running(Path::Vhost, 1);
        // A command without a place for its answer.
        bench.offer(2, 0, 3, 0);
        bench.needs_reset();
        while bench.turn() > 0 {}
        bench.send(1, 0, &frame(1, 60));
        bench.pause();
        assert_eq!((bench.take_used(1), bench.wire.try_receive()), (vec![], None));
    });
}

#[test]
fn driver_that_vhost_cannot_serve_is_served_all_the_same() {
    in_new_network(|| {
        let mut bench = Bench::new(Path::Vhost, 1);
        bench.start(!MRG_RXBUF);
        bench.send(1, 0, &frame(1, 60));
        assert_eq!(bench.receive(), frame(1, 60));
        bench.post(0, 0);
        bench.wire.send(&frame(2, 60));
        assert_eq!(bench.used(0, 1), [(0, 72)]);
        let counters = bench.counters();
        assert_eq!((counters.vhost_refused, counters.received, counters.transmitted), (1, 1, 1));
    });
}

#[test]
fn frames_of_a_time_without_driver_are_dropped() {
    in_new_network(|| {
        let mut bench = Bench::new(Path::Vhost, 1);
        for number in 0..2000 {
            bench.wire.send(&frame(number, 60));
        }
        bench.start(u64::MAX);
        bench.post(0, 0);
        bench.wire.send(&frame(7, 60));
        assert_eq!(bench.used(0, 1), [(0, 72)]);
        assert_eq!(bench.memory(Bench::buffer(0, 0), 72)[HEADER..], frame(7, 60));
    });
}

#[test]
fn descriptor_that_somebody_uses_is_refused() {
    in_new_network(|| {
        let taps = Tap::create("tap0", 1).unwrap().into_queues();
        let mut net = Net::new(&NetConfig::new(MAC), taps).unwrap();
        let first = vhosts(1).pop().unwrap();
        net.use_vhost(vec![first.try_clone().unwrap()]).unwrap();
        let refusal = net.use_vhost(vec![first]).unwrap_err();
        let VhostRefusal::Descriptor { pair: 0, source } = refusal else { panic!("{refusal}") };
        assert_eq!(source.raw_os_error(), Some(libc::EBUSY));
    });
}

#[test]
fn tap_that_is_gone_has_the_driver_reset_the_device() {
    in_new_network(|| {
        let mut bench = Bench::running(Path::Vhost, 1);
        bench.post(0, 0);
        while bench.turn() > 0 {}
        let deleted = Command::new("ip").args(["link", "delete", "tap0"]).status().unwrap();
        assert!(deleted.success());
        bench.send(1, 0, &frame(1, 60));
        bench.needs_reset();
        while bench.turn() > 0 {}
        assert_eq!(bench.counters().vhost_errors, 1);
        bench.pause();
        // What was not sent would be taken again.
        let state: TransportState = bench.save().take("net1").unwrap();
        assert_eq!((state.queues[1].next_available, state.queues[1].next_used), (0, 0));
    });
}

/// Numbers without end, the same for the same start.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn short(&mut self, end: u64) -> u16 {
        u16::try_from(self.below(end)).expect("the end is near")
    }

    fn among<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.short(choices.len() as u64))]
    }
}

#[test]
fn no_guest_stops_a_pause_or_the_next_driver() {
    in_new_network(|| {
        for seed in 1..30 {
            let mut bench = Bench::running(Path::Vhost, 1);
            let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
            for _ in 0..numbers.below(40) {
                let (queue, index) = (numbers.short(3), numbers.short(34));
                let address =
                    numbers.among(&[Bench::buffer(queue, index), 0x1800, 0xfff8, u64::MAX]);
                let length = numbers.among(&[12, 72, 0, 1, 0x800, u32::MAX]);
                let ring = &mut bench.rings[usize::from(queue)];
                let flags = numbers.short(8);
                ring.describe(
                    index % 32,
                    (GuestAddress(address), length),
                    flags,
                    numbers.short(34),
                );
                match numbers.below(12) {
                    0 => bench.wire.send(&frame(0, 60)),
                    1 => drop(bench.turn()),
                    2 => {
                        // The used ring's index, which is not the driver's.
                        let used = ring.used().0 + 2;
                        bench.fill(used, &numbers.short(0x1_0000).to_le_bytes());
                    }
                    3 => {
                        bench.pause();
                        bench.resume();
                    }
                    _ => {
                        ring.offer(index);
                        bench.driver.ring(queue);
                    }
                }
            }
            bench.pause();
            bench.resume();
            bench.restart();
            // Whatever it sent before is shorter or longer.
            bench.send(1, 0, &frame(2, 77));
            while bench.receive() != frame(2, 77) {}
        }
    });
}
