//! Packets, both ways, over pauses and from one path to the other.

use std::time::{Duration, Instant};

use corten_devices::pci::MsixState;
use corten_devices::testing::{FakeRing, in_new_network, was_raised};

use super::bench::SIZE;
use super::*;

const EVENT_IDX: u64 = 1 << 29;
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;

#[test]
fn frames_go_both_ways_and_wake_no_task() {
    in_new_network(|| {
        for left_out in [0, EVENT_IDX] {
            let mut bench = Bench::new(Path::Vhost, 1);
            bench.start(!left_out);
            while bench.turn() > 0 {}
            bench.send(TRANSMIT, 3, &frame(7, 700));
            assert_eq!(bench.receive(), frame(7, 700));
            assert_eq!(bench.used(TRANSMIT, 1), [(3, 0)]);
            bench.post(RECEIVE, 9);
            bench.wire.send(&frame(8, 1514));
            assert_eq!(bench.used(RECEIVE, 1), [(9, 1526)]);
            let received = bench.memory(Bench::buffer(RECEIVE, 9), 1526);
            let header = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
            assert_eq!(received, [&header[..], &frame(8, 1514)].concat());
            assert_eq!(bench.turn(), 0);
            let counters = bench.counters();
            assert_eq!(
                (counters.vhost_refused, counters.received, counters.transmitted),
                (0, 0, 0)
            );
        }
    });
}

#[test]
fn large_frame_takes_several_buffers() {
    in_new_network(|| {
        let mut bench = Bench::running(Path::Vhost, 1);
        for index in 0..4 {
            bench.offer(RECEIVE, index, 500, FakeRing::WRITE);
        }
        bench.wire.send(&frame(1, 1514));
        let used = bench.used(RECEIVE, 4);
        assert_eq!(used, [(0, 500), (1, 500), (2, 500), (3, 26)]);
        let parts = used.iter().map(|(index, length)| {
            let index = u16::try_from(*index).unwrap();
            bench.memory(Bench::buffer(RECEIVE, index), *length as usize)
        });
        let bytes = parts.collect::<Vec<_>>().concat();
        assert_eq!(bytes[HEADER - 2..], [&[4, 0][..], &frame(1, 1514)].concat());
    });
}

/// A driver that counts frames in both directions.
struct Traffic {
    sent: u32,
    arrived: u32,
    offered: u32,
    received: u32,
    /// Descriptors of the transmit ring that are free.
    free: Vec<u16>,
}

impl Traffic {
    fn start(bench: &mut Bench) -> Self {
        for index in 0..SIZE {
            bench.post(RECEIVE, index);
        }
        let free = (0..SIZE).collect();
        Self { sent: 0, arrived: 0, offered: 0, received: 0, free }
    }

    /// Keeps both directions busy. No more is under way than the TAP's queue and the socket's buffer hold: what is lost then
    /// was lost by somebody.
    fn push(&mut self, bench: &mut Bench) {
        while self.sent - self.arrived < 100 {
            let Some(index) = self.free.pop() else { break };
            bench.send(TRANSMIT, index, &frame(self.sent, 60 + usize::from(index)));
            self.sent += 1;
        }
        while self.offered - self.received < 100 {
            bench.wire.send(&frame(self.offered, 60 + self.offered as usize % 300));
            self.offered += 1;
        }
    }

    /// Takes what has come: each frame whole, in order, once.
    fn pull(&mut self, bench: &mut Bench) {
        for (index, _) in bench.take_used(TRANSMIT) {
            let index = u16::try_from(index).expect("it is a head");
            assert!(!self.free.contains(&index), "chain {index} came back twice");
            self.free.push(index);
        }
        while let Some(came) = bench.wire.try_receive() {
            assert_eq!(came, frame(self.arrived, came.len()));
            self.arrived += 1;
        }
        for (index, length) in bench.take_used(RECEIVE) {
            let index = u16::try_from(index).expect("it is a head");
            let bytes = bench.memory(Bench::buffer(RECEIVE, index), length as usize);
            assert_eq!(bytes[HEADER..], frame(self.received, bytes.len() - HEADER));
            self.received += 1;
            bench.post(RECEIVE, index);
        }
    }

    /// Goes on until `more` frames came in each direction, and stops in the middle of it.
    fn run(&mut self, bench: &mut Bench, more: u32) {
        let (arrived, received) = (self.arrived + more, self.received + more);
        let end = Instant::now() + Duration::from_secs(120);
        while self.arrived < arrived || self.received < received {
            assert!(Instant::now() < end, "{} and {} came", self.arrived, self.received);
            self.push(bench);
            bench.turn();
            self.pull(bench);
        }
        self.push(bench);
    }

    /// Waits for all that is under way.
    fn finish(mut self, bench: &mut Bench) {
        let end = Instant::now() + Duration::from_secs(120);
        while self.arrived < self.sent
            || self.received < self.offered
            || self.free.len() < SIZE.into()
        {
            assert!(Instant::now() < end, "{} and {} came", self.arrived, self.received);
            bench.turn();
            self.pull(bench);
        }
    }
}

#[test]
fn pause_in_the_midst_of_traffic_loses_nothing() {
    in_new_network(|| {
        for left_out in [0, EVENT_IDX] {
            let mut bench = Bench::new(Path::Vhost, 1);
            bench.start(!left_out);
            let mut traffic = Traffic::start(&mut bench);
            for _ in 0..12 {
                traffic.run(&mut bench, 80);
                bench.pause();
                let ring = bench.save();
                assert_eq!(bench.save(), ring, "nothing moves any more");
                bench.resume();
            }
            traffic.finish(&mut bench);
            assert_eq!(bench.counters().vhost_errors, 0);
        }
    });
}

#[test]
fn machine_saved_with_vhost_goes_on_without_and_the_other_way_round() {
    in_new_network(|| {
        for left_out in [0, EVENT_IDX] {
            let mut bench = Bench::new(Path::Vhost, 1);
            bench.start(!left_out);
            let mut traffic = Traffic::start(&mut bench);
            for path in [Path::Process, Path::Vhost, Path::Vhost, Path::Process, Path::Vhost] {
                traffic.run(&mut bench, 200);
                let counters = bench.counters();
                bench.pause();
                bench.move_to(path);
                assert_eq!((counters.vhost_refused, counters.vhost_errors), (0, 0));
            }
            traffic.run(&mut bench, 200);
            traffic.finish(&mut bench);
        }
    });
}

#[test]
fn masked_vector_pends_and_is_delivered() {
    in_new_network(|| {
        let mut bench = Bench::running(Path::Vhost, 1);
        bench.post(RECEIVE, 0);
        while was_raised(&bench.interrupts[1]) {}
        bench.driver.set_vector(1, 3, 1);
        bench.wire.send(&frame(0, 60));
        // The driver that masked it looks at the ring.
        while bench.take_used(RECEIVE).is_empty() {
            std::thread::yield_now();
        }
        bench.pause();
        let msix: MsixState = bench.save().take("net1").unwrap();
        assert!(msix.vectors[1].pending);
        assert!(!was_raised(&bench.interrupts[1]));
        bench.driver.set_vector(1, 3, 0);
        assert!(was_raised(&bench.interrupts[1]));
    });
}

#[test]
fn queue_raises_the_vector_that_it_was_given_last() {
    in_new_network(|| {
        let mut bench = Bench::running(Path::Vhost, 1);
        let _ = bench.driver.set_common(0x16, 2, 0);
        let _ = bench.driver.set_common(0x1a, 2, 3);
        while bench.turn() > 0 {}
        while was_raised(&bench.interrupts[1]) || was_raised(&bench.interrupts[3]) {}
        bench.post(RECEIVE, 0);
        bench.wire.send(&frame(0, 60));
        while bench.take_used(RECEIVE).is_empty() {
            std::thread::yield_now();
        }
        bench.pause();
        assert!(was_raised(&bench.interrupts[3]));
        assert!(!was_raised(&bench.interrupts[1]));
    });
}

#[test]
fn pairs_work_while_they_are_active() {
    in_new_network(|| {
        let mut bench = Bench::running(Path::Vhost, 2);
        bench.send(3, 0, &frame(1, 60));
        bench.send(TRANSMIT, 0, &frame(2, 60));
        assert_eq!(bench.receive(), frame(2, 60));
        assert_eq!(bench.take_used(3), []);
        assert_eq!(bench.command(&[4, 0, 2, 0]), 0);
        assert_eq!(bench.receive(), frame(1, 60));
        assert_eq!(bench.used(3, 1), [(0, 0)]);
        assert_eq!(bench.command(&[4, 0, 1, 0]), 0);
        while bench.turn() > 0 {}
        bench.send(3, 1, &frame(3, 60));
        bench.send(TRANSMIT, 1, &frame(4, 60));
        assert_eq!(bench.receive(), frame(4, 60));
        bench.pause();
        assert_eq!(bench.take_used(3), []);
        bench.resume();
        assert_eq!(bench.command(&[4, 0, 2, 0]), 0);
        assert_eq!(bench.receive(), frame(3, 60));
    });
}
