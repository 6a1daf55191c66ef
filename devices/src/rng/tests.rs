//! The device between a driver and the host's generator.

mod hostile;
mod saved;

use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vm_memory::{Bytes, GuestAddress};

use super::worker::MOST;
use super::*;
use crate::testing::{FakeDriver, FakeRing, was_raised, wiring};
use crate::virtio::{GuestRam, QueueTask, Transport, VirtioPci};
use crate::{Interrupt, RateLimit, RateLimits, Records};

const BUFFERS: u64 = 0x4000;
const BUFFER: u32 = 0x1000;
/// Four times what any machine needs.
const SOON: Duration = Duration::from_secs(60);

/// A device with a driver, and the owner with the task.
struct Bench {
    function: Arc<VirtioPci<Rng>>,
    driver: FakeDriver,
    ram: GuestRam,
    interrupts: Vec<Interrupt>,
    ring: FakeRing,
    tasks: Vec<Box<dyn QueueTask>>,
}

impl Bench {
    /// Without a driver.
    fn new(limits: RateLimits) -> Self {
        let (wiring, interrupts, _) = wiring(3, 1);
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(Rng::new(limits).unwrap(), wiring).unwrap();
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        let ring = FakeRing::new(&ram, GuestAddress(0x1000), 16);
        Self { function, driver, ram, interrupts, ring, tasks: Vec::new() }
    }

    fn running(limits: RateLimits) -> Self {
        let mut bench = Self::new(limits);
        assert!(bench.driver.negotiate(bench.driver.offered()));
        bench.driver.enable_msix(2);
        assert!(bench.driver.set_up_queue(0, &bench.ring, 1));
        let _ = bench.driver.ready();
        bench.resume();
        bench
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

    /// Whether anything woke the worker in that time.
    fn turn(&mut self, wait: PollTimeout) -> bool {
        let mut woken = false;
        for task in &mut self.tasks {
            let wakeups = task.wakeups();
            // SAFETY: open as long as the task lives.
            let fd = |fd| unsafe { BorrowedFd::borrow_raw(fd) };
            let mut fds: Vec<PollFd<'_>> = wakeups
                .iter()
                .map(|wakeup| PollFd::new(fd(wakeup.fd), PollFlags::POLLIN))
                .collect();
            poll(&mut fds, wait).unwrap();
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap()).collect();
            for (wakeup, _) in wakeups.iter().zip(ready).filter(|(_, ready)| *ready) {
                task.on_event(wakeup.token);
                woken = true;
            }
        }
        woken
    }

    /// Turns until nothing wakes the worker: one that spins does not get there.
    fn settle(&mut self) {
        let turns = (0..1000).take_while(|_| self.turn(PollTimeout::ZERO)).count();
        assert!(turns < 1000, "the worker spins");
    }

    /// The driver asks for this many bytes.
    fn ask(&mut self, index: u16, length: u32) {
        let at = BUFFERS + u64::from(index) * u64::from(BUFFER);
        self.ring.describe(index, (GuestAddress(at), length), FakeRing::WRITE, 0);
        self.ring.offer(index);
        self.driver.ring(0);
    }

    fn bytes(&self, index: u16, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let at = BUFFERS + u64::from(index) * u64::from(BUFFER);
        self.ram.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    fn counters(&self) -> RngCounters {
        self.function.device(Rng::counters)
    }
}

fn limit(per_second: u64, burst: u64) -> Option<RateLimit> {
    let number = |number| NonZeroU64::new(number).unwrap();
    Some(RateLimit { per_second: number(per_second), burst: number(burst) })
}

#[test]
fn driver_gets_random_bytes_and_an_interrupt() {
    let mut bench = Bench::running(RateLimits::default());
    bench.settle();
    assert!(was_raised(&bench.interrupts[1]));
    bench.ask(0, 64);
    bench.ask(1, 64);
    bench.settle();
    assert_eq!(bench.ring.take_used(), [(0, 64), (1, 64)]);
    assert!(was_raised(&bench.interrupts[1]));
    let (first, second) = (bench.bytes(0, 128), bench.bytes(1, 128));
    assert_ne!(first[..64], second[..64]);
    assert_eq!((&first[64..], &second[64..]), (&[0; 64][..], &[0; 64][..]));
    let expected = RngCounters { requests: 2, bytes: 128, ..Default::default() };
    assert_eq!(bench.counters(), expected);
}

#[test]
fn device_has_its_type_and_no_configuration() {
    let bench = Bench::new(RateLimits::default());
    assert_eq!(bench.driver.configuration(2, 2), 0x1040 + 4);
    let mut config = [0xaa; 8];
    bench.driver.set_config(0, &[1; 8]);
    bench.driver.config(0, &mut config);
    assert_eq!(config, [0; 8]);
    assert_eq!(bench.driver.offered() & 0xff_ffff, 0);
}

#[test]
fn request_in_pieces_is_filled_across_them() {
    let mut bench = Bench::running(RateLimits::default());
    let at = |offset: u64| GuestAddress(BUFFERS + offset);
    bench.ring.describe(0, (at(0), 16), FakeRing::WRITE | FakeRing::NEXT, 1);
    bench.ring.describe(1, (at(0x100), 0), FakeRing::WRITE | FakeRing::NEXT, 2);
    bench.ring.describe(2, (at(0x200), 32), FakeRing::WRITE, 0);
    bench.ring.offer(0);
    bench.driver.ring(0);
    bench.settle();
    assert_eq!(bench.ring.take_used(), [(0, 48)]);
    let bytes = bench.bytes(0, 0x220);
    assert!(bytes[..16].iter().any(|byte| *byte != 0));
    assert!(bytes[16..0x200].iter().all(|byte| *byte == 0));
    assert!(bytes[0x200..].iter().any(|byte| *byte != 0));
}

#[test]
fn large_request_is_answered_in_part() {
    let mut bench = Bench::running(RateLimits::default());
    bench.ask(0, 0x8000);
    bench.settle();
    assert_eq!(bench.ring.take_used(), [(0, 4096)]);
    assert_eq!(bench.bytes(0, MOST + 16)[MOST..], [0; 16]);
}

#[test]
fn request_beyond_the_limit_waits_for_its_time() {
    let mut bench = Bench::running(RateLimits { bytes: limit(64, 64), operations: None });
    bench.ask(0, 64);
    bench.ask(1, 64);
    bench.settle();
    assert_eq!(bench.ring.take_used(), [(0, 64)]);
    assert_eq!(bench.counters().throttled, 1);
    let end = Instant::now() + SOON;
    let mut used = bench.ring.take_used();
    while used.is_empty() {
        assert!(Instant::now() < end, "the request waits for ever");
        bench.turn(PollTimeout::from(1000_u16));
        used = bench.ring.take_used();
    }
    assert_eq!(used, [(1, 64)]);
}

#[test]
fn request_that_waits_outlives_a_pause() {
    let mut bench = Bench::running(RateLimits { bytes: None, operations: limit(1, 1) });
    bench.ask(0, 8);
    bench.ask(1, 8);
    bench.settle();
    assert_eq!(bench.ring.take_used(), [(0, 8)]);
    bench.pause();
    bench.resume();
    let end = Instant::now() + SOON;
    let mut used = bench.ring.take_used();
    while used.is_empty() {
        assert!(Instant::now() < end, "the request waits for ever");
        bench.turn(PollTimeout::from(1000_u16));
        used = bench.ring.take_used();
    }
    assert_eq!(used, [(1, 8)]);
}

#[test]
fn driver_without_queue_is_not_served() {
    let bench = Bench::new(RateLimits::default());
    assert!(bench.driver.negotiate(bench.driver.offered()));
    let _ = bench.driver.ready();
    let error = bench.function.activate().err().unwrap();
    assert_eq!(error.to_string(), "the driver did not enable queue 0");
}
