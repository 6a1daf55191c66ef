//! Interfaces on real TAPs, as a driver, the machine's owner and the host on the other side see them.

mod host;
mod hostile;
mod offloads;
mod pairs;
mod saved;
mod trouble;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corten_net::Tap;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::testing::{FakeDriver, FakeRing, Wire, in_new_network, turn, was_raised, wiring};
use crate::virtio::{Device, GuestRam, QueueTask, Transport, VirtioPci};
use crate::{Interrupt, RateLimit, RateLimits, RecordError, Records};

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
/// Feature bits that tests leave out.
const GUEST_CSUM: u64 = 1 << 1;
const MRG_RXBUF: u64 = 1 << 15;
const EVENT_IDX: u64 = 1 << 29;

/// Where buffers are: behind the rings of two pairs and the control queue.
const DATA: u64 = 0x6000;
const COMMAND: u64 = 0xff00;
const ANSWER: u64 = 0xfff0;

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn taps(pairs: u16) -> Vec<OwnedFd> {
    Tap::create("tap0", pairs).unwrap().into_queues()
}

/// An Ethernet frame of this many bytes, for an experiment of ours.
fn frame(to: MacAddress, length: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(length);
    frame.extend(to.0);
    frame.extend(PEER.0);
    frame.extend([0x88, 0xb5]);
    frame.extend((frame.len()..length).map(|at| (at * 31 % 251).to_le_bytes()[0]));
    frame
}

/// An interface with a driver, the owner with the tasks, and the host.
struct Bench {
    function: Arc<VirtioPci<Net>>,
    driver: FakeDriver,
    ram: GuestRam,
    interrupts: Vec<Interrupt>,
    rings: Vec<FakeRing>,
    tasks: Vec<Box<dyn QueueTask>>,
    pairs: u16,
}

impl Bench {
    fn new(config: &NetConfig, taps: Vec<OwnedFd>) -> Self {
        Self::of(Net::new(config, taps).unwrap())
    }

    fn of(net: Net) -> Self {
        let queues = net.queue_sizes().len();
        let (wiring, interrupts, _) = wiring(3, queues);
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(net, wiring).unwrap();
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        let ring = |queue| FakeRing::new(&ram, GuestAddress(0x1000 * (queue + 1)), 16);
        let rings = (0..queues as u64).map(ring).collect();
        let pairs = u16::try_from(queues / 2).unwrap();
        Self { function, driver, ram, interrupts, rings, tasks: Vec::new(), pairs }
    }

    /// Up to a device at work, with all features but these.
    fn running_without(left_out: u64, config: &NetConfig, taps: Vec<OwnedFd>) -> Self {
        let mut bench = Self::new(config, taps);
        let features = bench.driver.offered() & !left_out;
        bench.start(features);
        bench
    }

    fn running(pairs: u16) -> Self {
        Self::running_without(0, &NetConfig::new(MAC), taps(pairs))
    }

    fn start(&mut self, features: u64) {
        assert!(self.driver.negotiate(features));
        let queues = u16::try_from(self.rings.len()).unwrap();
        self.driver.enable_msix(queues + 1);
        // The configuration's vector.
        let _ = self.driver.set_common(0x10, 2, 0);
        for (queue, ring) in (0..queues).zip(&self.rings) {
            assert!(self.driver.set_up_queue(queue, ring, queue + 1));
        }
        let _ = self.driver.ready();
        self.resume();
    }

    fn resume(&mut self) {
        self.tasks = self.function.activate().unwrap();
        self.tasks.iter_mut().for_each(|task| task.rearm());
    }

    fn pause(&mut self) {
        let mut tasks = std::mem::take(&mut self.tasks);
        for task in &mut tasks {
            assert_eq!(task.drain().unwrap(), 0);
        }
        self.function.reclaim(tasks).unwrap();
    }

    /// A worker's turn: how many wake-ups it answered.
    fn turn(&mut self) -> usize {
        turn(&mut self.tasks)
    }

    /// Turns until nothing wakes the worker any more: a device that spins never ends this.
    fn settle(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.turn() > 0 {
            assert!(Instant::now() < end, "the worker is woken without end");
        }
    }

    /// Turns until `count` chains of the queue came back.
    fn used(&mut self, queue: usize, count: usize) -> Vec<(u32, u32)> {
        let end = Instant::now() + PATIENCE;
        let mut used = self.rings[queue].take_used();
        while used.len() < count {
            assert!(Instant::now() < end, "{count} chains do not come back, only {used:?}");
            self.turn();
            used.extend(self.rings[queue].take_used());
        }
        used
    }

    fn offer(&mut self, queue: u16, head: u16) {
        self.rings[usize::from(queue)].offer(head);
        self.driver.ring(queue);
    }

    /// Links descriptors from `first` on and offers them as one chain.
    fn chain(&mut self, queue: u16, first: u16, buffers: &[(u64, u32)], flags: u16) {
        let last = first + u16::try_from(buffers.len()).unwrap() - 1;
        for (index, (address, length)) in (first..).zip(buffers) {
            let next = if index == last { 0 } else { FakeRing::NEXT };
            let ring = &self.rings[usize::from(queue)];
            ring.describe(index, (GuestAddress(*address), *length), flags | next, index + 1);
        }
        self.offer(queue, first);
    }

    /// Offers `count` buffers of this many bytes each, to receive into: behind each other, one descriptor each.
    fn post(&mut self, count: u16, length: u32) {
        for index in 0..count {
            let address = DATA + u64::from(index) * u64::from(length);
            self.chain(0, index, &[(address, length)], FakeRing::WRITE);
        }
    }

    /// Sends a frame with this header from one buffer.
    fn send(&mut self, header: [u8; 12], frame: &[u8]) {
        self.fill(DATA, &header);
        self.fill(DATA + 12, frame);
        let length = u32::try_from(12 + frame.len()).unwrap();
        self.chain(1, 0, &[(DATA, length)], 0);
        assert_eq!(self.used(1, 1), [(0, 0)]);
    }

    /// Gives a command and has it answered.
    fn command(&mut self, bytes: &[u8]) -> u8 {
        let queue = u16::try_from(self.rings.len() - 1).unwrap();
        let length = u32::try_from(bytes.len()).unwrap();
        self.fill(COMMAND, bytes);
        self.fill(ANSWER, &[0xaa]);
        let ring = &self.rings[usize::from(queue)];
        ring.describe(0, (GuestAddress(COMMAND), length), FakeRing::NEXT, 1);
        ring.describe(1, (GuestAddress(ANSWER), 1), FakeRing::WRITE, 0);
        self.offer(queue, 0);
        assert_eq!(self.used(queue.into(), 1), [(0, 1)]);
        self.memory(ANSWER, 1)[0]
    }

    fn config(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.driver.config(offset, &mut bytes);
        bytes
    }

    fn fill(&self, address: u64, bytes: &[u8]) {
        self.ram.write_slice(bytes, GuestAddress(address)).unwrap();
    }

    fn memory(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.ram.read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    fn counters(&self) -> NetCounters {
        self.function.device(Net::counters)
    }
}

#[test]
fn frame_from_odd_pieces_reaches_the_host_whole() {
    in_new_network(|| {
        let mut bench = Bench::running(1);
        let wire = Wire::new();
        let sent = frame(PEER, 700);
        bench.fill(DATA, &[0; 12]);
        bench.fill(DATA + 12, &sent);
        let pieces = [(DATA, 5), (DATA + 5, 0), (DATA + 5, 8), (DATA + 13, 600), (DATA + 613, 99)];
        bench.chain(1, 3, &pieces, 0);
        assert_eq!(bench.used(1, 1), [(3, 0)]);
        assert_eq!(wire.receive(), sent);
        let counters = bench.counters();
        assert_eq!((counters.transmitted, counters.transmitted_bytes), (1, 700));
        assert_eq!(
            NetCounters { transmitted: 0, transmitted_bytes: 0, ..counters },
            NetCounters::default()
        );
    });
}

#[test]
fn frame_of_the_host_is_received_and_marked_as_written() {
    use vm_memory::GuestMemoryBackend;
    in_new_network(|| {
        for left_out in [0, MRG_RXBUF, EVENT_IDX] {
            let mut bench = Bench::running_without(left_out, &NetConfig::new(MAC), taps(1));
            let wire = Wire::new();
            bench.settle();
            assert!(was_raised(&bench.interrupts[1]));
            bench.chain(0, 7, &[(0x8fff, 30), (0x9800, 5000)], FakeRing::WRITE);
            bench.ram.iter().next().unwrap().get_mmap().bitmap().reset();
            let sent = frame(MAC, 1514);
            wire.send(&sent);
            assert_eq!(bench.used(0, 1), [(7, 1526)]);
            assert!(was_raised(&bench.interrupts[1]));
            let header = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
            let received = [bench.memory(0x8fff, 30), bench.memory(0x9800, 1496)].concat();
            assert_eq!(received, [&header[..], &sent].concat());
            let marks = [0x7000, 0x8000, 0x9000, 0xa000]
                .map(|at| bench.ram.iter().next().unwrap().get_mmap().bitmap().is_addr_set(at));
            assert_eq!(marks, [false, true, true, false]);
            let counters = bench.counters();
            assert_eq!((counters.received, counters.received_bytes), (1, 1514));
        }
    });
}

#[test]
fn large_frame_takes_several_buffers_and_the_next_one_the_buffers_behind() {
    in_new_network(|| {
        let mut bench = Bench::running(1);
        let wire = Wire::new();
        // The front of a packet alone goes over three of these.
        bench.post(4, 12);
        bench.chain(0, 4, &[(0x8000, 500)], FakeRing::WRITE);
        bench.chain(0, 5, &[(0x9000, 500)], FakeRing::WRITE);
        let first = frame(MAC, 4 * 12 - 12 + 500 + 1);
        let second = frame(MAC, 60);
        wire.send(&first);
        let used = bench.used(0, 6);
        assert_eq!(used, [(0, 12), (1, 12), (2, 12), (3, 12), (4, 500), (5, 1)]);
        assert_eq!(bench.memory(DATA + 10, 2), [6, 0]);
        let parts =
            [bench.memory(DATA + 12, 36), bench.memory(0x8000, 500), bench.memory(0x9000, 1)];
        assert_eq!(parts.concat(), first);
        bench.chain(0, 6, &[(0xa000, 500)], FakeRing::WRITE);
        wire.send(&second);
        assert_eq!(bench.used(0, 1), [(6, 72)]);
        assert_eq!(bench.memory(0xa00a, 62), [&[1, 0][..], &second].concat());
    });
}

#[test]
fn frames_wait_in_the_tap_while_the_guest_has_no_buffers_and_wake_nobody() {
    in_new_network(|| {
        let mut bench = Bench::running(1);
        let wire = Wire::new();
        bench.settle();
        let sent = frame(MAC, 100);
        wire.send(&sent);
        wire.send(&sent);
        bench.settle();
        assert_eq!(bench.turn(), 0);
        bench.post(1, 2000);
        assert_eq!(bench.used(0, 1), [(0, 112)]);
        bench.settle();
        assert_eq!(bench.turn(), 0);
        bench.post(2, 2000);
        assert_eq!(bench.used(0, 1), [(0, 112)]);
        assert_eq!(bench.memory(DATA + 12, 100), sent);
        assert_eq!(bench.counters().received, 2);
    });
}

#[test]
fn frame_larger_than_its_buffers_waits_for_more_even_over_a_pause() {
    in_new_network(|| {
        for is_paused in [false, true] {
            let mut bench = Bench::running(1);
            let wire = Wire::new();
            bench.post(3, 100);
            let sent = frame(MAC, 1000);
            wire.send(&sent);
            bench.settle();
            assert_eq!(bench.rings[0].take_used(), []);
            if is_paused {
                bench.pause();
                let erased = vec![0xee; 300];
                bench.fill(DATA, &erased);
                bench.resume();
                bench.settle();
            }
            bench.chain(0, 3, &[(DATA + 300, 712)], FakeRing::WRITE);
            assert_eq!(bench.used(0, 4), [(0, 100), (1, 100), (2, 100), (3, 712)]);
            assert_eq!(bench.memory(DATA + 10, 1002), [&[4, 0][..], &sent].concat());
            assert_eq!(bench.counters().oversized, 0);
        }
    });
}

#[test]
fn frames_that_can_never_fit_are_dropped_and_counted() {
    in_new_network(|| {
        // Without merging, the first buffer is all there is.
        let mut bench = Bench::running_without(MRG_RXBUF, &NetConfig::new(MAC), taps(1));
        let wire = Wire::new();
        bench.post(2, 500);
        wire.send(&frame(MAC, 489));
        wire.send(&frame(MAC, 488));
        assert_eq!(bench.used(0, 1), [(0, 500)]);
        assert_eq!(bench.counters().oversized, 1);
        drop(bench);

        // With it, all that the ring can hold.
        let mut bench = Bench::running(1);
        let wire = Wire::new();
        bench.post(16, 50);
        wire.send(&frame(MAC, 789));
        wire.send(&frame(MAC, 788));
        assert_eq!(bench.used(0, 16), (0..16).map(|head| (head, 50)).collect::<Vec<_>>());
        assert_eq!(bench.counters().oversized, 1);
    });
}

#[test]
fn many_frames_are_looked_at_in_parts() {
    in_new_network(|| {
        let mut bench = Bench::running(1);
        let wire = Wire::new();
        assert_eq!(bench.command(&[0, 0, 0]), 0, "not promiscuous");
        bench.post(1, 2000);
        bench.settle();
        for _ in 0..200 {
            wire.send(&frame(PEER, 60));
        }
        let mut filtered = vec![0];
        while bench.turn() > 0 {
            filtered.push(bench.counters().filtered);
        }
        let largest = filtered.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert_eq!((filtered.last(), largest), (Some(&200), Some(64)));
    });
}
