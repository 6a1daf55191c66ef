//! Balloons on a real memfd, as a driver and the machine's owner drive them.

mod hostile;
mod saved;

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vm_memory::{Bytes, GuestAddress};

use super::layout::{F_DEFLATE_ON_OOM, F_REPORTING, F_STATS_VQ};
use super::*;
use crate::testing::{FakeDriver, FakeRing, shared_guest_ram, was_raised, wiring};
use crate::virtio::{ActivateError, GuestRam, QueueTask, Transport, VirtioPci, Wakeup};
use crate::{Interrupt, RecordError, Records};

const INFLATE: u16 = 0;
const DEFLATE: u16 = 1;
const STATISTICS: u16 = 2;
const REPORTING: u16 = 3;

const WITH_ALL: BalloonConfig = BalloonConfig { deflate_on_oom: true, reporting: true };

/// Two ranges with a gap between, as a machine has them.
const LOW: usize = 8 << 20;
const HIGH: u64 = 16 << 20;
const HIGH_SIZE: usize = 4 << 20;

/// Where lists of a chain are; the rings lie below.
const LIST: u64 = 0x1_0000;

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A balloon with a driver, and the owner with its task.
struct Bench {
    function: Arc<VirtioPci<Balloon>>,
    driver: FakeDriver,
    ram: GuestRam,
    file: File,
    interrupts: Vec<Interrupt>,
    rings: Vec<FakeRing>,
    tasks: Vec<Box<dyn QueueTask>>,
}

impl Bench {
    fn new(config: BalloonConfig) -> Self {
        let ranges = [(GuestAddress(0), LOW), (GuestAddress(HIGH), HIGH_SIZE)];
        let (ram, file) = shared_guest_ram(&ranges);
        let queues = if config.reporting { 5 } else { 3 };
        let (mut wiring, interrupts, _) = wiring(3, queues);
        wiring.ram = ram.clone();
        let function = VirtioPci::new(Balloon::new(config).unwrap(), wiring).unwrap();
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        let ring = |queue| FakeRing::new(&ram, GuestAddress(0x1000 * (queue + 1)), 16);
        let rings = (0..queues as u64).map(ring).collect();
        Self { function, driver, ram, file, interrupts, rings, tasks: Vec::new() }
    }

    /// Up to a device at work, with all features and queues.
    fn running() -> Self {
        let mut bench = Self::new(WITH_ALL);
        bench.start(u64::MAX);
        bench
    }

    /// With those features of the device that are among `features`.
    fn start(&mut self, features: u64) {
        let queues: Vec<u16> = (0..).take(self.rings.len()).collect();
        self.start_queues(features, &queues);
        self.resume();
    }

    fn start_queues(&mut self, features: u64, queues: &[u16]) {
        let features = features | FakeDriver::VERSION_1 | FakeDriver::EVENT_IDX;
        assert!(self.driver.negotiate(self.driver.offered() & features));
        let vectors = u16::try_from(self.interrupts.len()).unwrap();
        self.driver.enable_msix(vectors);
        let _ = self.driver.set_common(0x10, 2, 0);
        for queue in queues {
            let ring = &self.rings[usize::from(*queue)];
            assert!(self.driver.set_up_queue(*queue, ring, queue + 1));
        }
        let _ = self.driver.ready();
    }

    fn resume(&mut self) {
        self.tasks = self.function.activate().unwrap();
        self.tasks.iter_mut().for_each(|task| task.rearm());
        self.function.resumed();
    }

    fn pause(&mut self) {
        let mut tasks = std::mem::take(&mut self.tasks);
        for task in &mut tasks {
            assert_eq!(task.drain().unwrap(), 0);
        }
        self.function.reclaim(tasks).unwrap();
    }

    /// A worker's turn: whether anything woke it.
    fn turn(&mut self) -> bool {
        let mut woken = false;
        for task in &mut self.tasks {
            for wakeup in task.wakeups() {
                if is_readable(wakeup, PollTimeout::ZERO) {
                    task.on_event(wakeup.token);
                    woken = true;
                }
            }
        }
        woken
    }

    /// Turns until nothing wakes it any more.
    fn settle(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.turn() {
            assert!(Instant::now() < end, "it never comes to rest");
        }
    }

    /// One chain of these buffers, from start to end; true if it came back.
    fn give(&mut self, queue: u16, buffers: &[(u64, u32)], flags: u16) -> bool {
        let ring = &mut self.rings[usize::from(queue)];
        for (index, buffer) in (0..).zip(buffers) {
            let is_last = usize::from(index) + 1 == buffers.len();
            let flags = flags | if is_last { 0 } else { FakeRing::NEXT };
            ring.describe(index, (GuestAddress(buffer.0), buffer.1), flags, index + 1);
        }
        ring.offer(0);
        self.driver.ring(queue);
        self.settle();
        self.rings[usize::from(queue)].take_used() == [(0, 0)]
    }

    /// A list of page numbers on a queue.
    fn list(&mut self, queue: u16, numbers: &[u32]) -> bool {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.ram.write_slice(&bytes, GuestAddress(LIST)).unwrap();
        self.give(queue, &[(LIST, u32::try_from(bytes.len()).unwrap())], 0)
    }

    fn report(&mut self, queue: u16, buffers: &[(u64, u32)]) -> bool {
        self.give(queue, buffers, FakeRing::WRITE)
    }

    /// Statistics in a chain that starts with that descriptor: it does not come back by itself.
    fn tell(&mut self, descriptor: u16, statistics: &[(u16, u64)]) {
        let entry =
            |(tag, value): &(u16, u64)| [&tag.to_le_bytes()[..], &value.to_le_bytes()].concat();
        let bytes: Vec<u8> = statistics.iter().flat_map(entry).collect();
        self.ram.write_slice(&bytes, GuestAddress(LIST)).unwrap();
        let buffer = (GuestAddress(LIST), u32::try_from(bytes.len()).unwrap());
        let ring = &mut self.rings[usize::from(STATISTICS)];
        ring.describe(descriptor, buffer, 0, 0);
        ring.offer(descriptor);
        self.driver.ring(STATISTICS);
        self.settle();
    }

    fn statistics(&self) -> Option<Statistics> {
        self.function.device(Balloon::statistics).map(|(_, statistics)| statistics)
    }

    /// Asks soon, once, and waits for that.
    fn ask(&mut self) {
        let soon = Some(Duration::from_millis(1));
        self.function.device(|balloon| balloon.set_statistics_interval(soon));
        let timer = *self.tasks[0].wakeups().last().unwrap();
        assert!(is_readable(timer, PollTimeout::try_from(PATIENCE).unwrap()));
        self.tasks[0].on_event(timer.token);
        self.function.device(|balloon| balloon.set_statistics_interval(None));
    }

    /// Every page holds something.
    fn fill(&self) {
        self.ram.write_slice(&vec![7; LOW - 0x2_0000], GuestAddress(0x2_0000)).unwrap();
        self.ram.write_slice(&vec![7; HIGH_SIZE], GuestAddress(HIGH)).unwrap();
    }

    /// Pages that the memfd has.
    fn pages(&self) -> u64 {
        self.file.metadata().unwrap().blocks() / 8
    }

    /// What is in the pages from one number up to another: the first byte of each.
    fn content(&self, pages: std::ops::Range<u64>) -> Vec<u8> {
        pages.map(|page| self.ram.read_obj(GuestAddress(page * PAGE_SIZE)).unwrap()).collect()
    }

    fn counters(&self) -> BalloonCounters {
        self.function.device(Balloon::counters)
    }

    fn needs_reset(&self) -> bool {
        self.driver.status() & FakeDriver::NEEDS_RESET != 0
    }
}

fn is_readable(wakeup: Wakeup, patience: PollTimeout) -> bool {
    // SAFETY: open as long as the task lives.
    let fd = unsafe { BorrowedFd::borrow_raw(wakeup.fd) };
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, patience).unwrap() > 0
}

#[test]
fn inflated_pages_leave_the_memfd_and_all_else_stays() {
    let mut bench = Bench::running();
    bench.fill();
    let before = bench.pages();
    // 0x100 to 0x13f from the end, one alone, one in the high range.
    let numbers: Vec<u32> = (0x100..0x140).rev().chain([0x200, 0x1001]).collect();
    assert!(bench.list(INFLATE, &numbers));
    // The list's own page is new.
    assert_eq!(bench.pages(), before + 1 - 66);
    assert!(was_raised(&bench.interrupts[1]));
    let counters = bench.counters();
    assert_eq!((counters.inflated_pages, counters.runs), (66, 3));
    assert_eq!((counters.bad_requests, counters.failures, counters.reported_bytes), (0, 0, 0));
    assert_eq!(counters.partial_huge_pages, 3);
    assert_eq!(bench.content(0x100..0x140), [0; 0x40]);
    assert_eq!(bench.content(0x200..0x201), [0]);
    assert_eq!(bench.content(0x1001..0x1002), [0]);
    assert_eq!(bench.content(0x20..0x100), [7; 0xe0]);
    assert_eq!(bench.content(0x140..0x200), [7; 0xc0]);
    assert_eq!(bench.content(0x201..0x800), [7; 0x5ff]);
    assert_eq!(bench.content(0x1000..0x1001), [7]);
    assert_eq!(bench.content(0x1002..0x1400), [7; 0x3fe]);
}

#[test]
fn deflated_pages_are_zero_and_come_back_when_they_are_touched() {
    let mut bench = Bench::running();
    bench.fill();
    assert!(bench.list(INFLATE, &[0x300, 0x301]));
    let without = bench.pages();
    assert!(bench.list(DEFLATE, &[0x300, 0x301]));
    assert_eq!(bench.pages(), without);
    assert_eq!(bench.content(0x300..0x302), [0, 0]);
    bench.ram.write_obj(9_u8, GuestAddress(0x30_0000)).unwrap();
    assert_eq!(bench.content(0x300..0x302), [9, 0]);
    assert_eq!(bench.pages(), without + 2);
    let counters = bench.counters();
    assert_eq!((counters.inflated_pages, counters.deflated_pages), (2, 2));
}

#[test]
fn reported_pages_leave_the_memfd_by_any_numbering_of_queues() {
    for (features, queue) in [
        (F_STATS_VQ | F_REPORTING, 3),
        (F_STATS_VQ | F_REPORTING, 4),
        (F_REPORTING, 2),
        (F_REPORTING, 4),
    ] {
        let mut bench = Bench::new(WITH_ALL);
        bench.start(features);
        bench.fill();
        let before = bench.pages();
        // Two huge pages that touch, and a page.
        assert!(bench.report(queue, &[(4 << 20, 2 << 20), (2 << 20, 2 << 20), (HIGH, 0x1000)]));
        assert_eq!(bench.pages(), before - 1025);
        let counters = bench.counters();
        assert_eq!((counters.reported_bytes, counters.runs), ((4 << 20) + 0x1000, 2));
        assert_eq!((counters.partial_huge_pages, counters.inflated_pages), (1, 0));
        assert_eq!(counters.bad_requests, 0);
        assert_eq!(bench.content(0x200..0x600), [0; 0x400]);
        assert_eq!(bench.content(0x600..0x800), [7; 0x200]);
    }
}

#[test]
fn owner_sets_the_target_and_the_driver_says_how_far_it_is() {
    let mut bench = Bench::running();
    bench.settle();
    assert!(!was_raised(&bench.interrupts[0]));
    bench.function.change_config(|balloon| balloon.set_target_pages(0x0102_0304));
    assert!(was_raised(&bench.interrupts[0]));
    let mut config = [0xff; 10];
    bench.driver.config(0, &mut config);
    assert_eq!(config, [4, 3, 2, 1, 0, 0, 0, 0, 0, 0]);
    bench.driver.set_config(4, &[1, 2, 3, 4]);
    assert_eq!(bench.function.device(Balloon::actual_pages), 0x0403_0201);
    // The target is not its to set; what is behind the end is nowhere.
    bench.driver.set_config(0, &[9; 8]);
    bench.driver.set_config(7, &[5, 6]);
    bench.driver.set_config(8, &[7; 4]);
    assert_eq!(bench.function.device(Balloon::target_pages), 0x0102_0304);
    assert_eq!(bench.function.device(Balloon::actual_pages), 0x0509_0909);
}

#[test]
fn reset_forgets_the_driver_but_not_the_owner() {
    let mut bench = Bench::running();
    bench.function.change_config(|balloon| balloon.set_target_pages(100));
    bench.function.device(|balloon| balloon.set_statistics_interval(Some(PATIENCE)));
    bench.driver.set_config(4, &[50, 0, 0, 0]);
    bench.tell(0, &[(4, 1)]);
    let _ = bench.driver.reset();
    bench.pause();
    bench.function.deactivated().unwrap();
    assert_eq!(bench.function.device(Balloon::target_pages), 100);
    assert_eq!(bench.function.device(Balloon::actual_pages), 0);
    assert_eq!(bench.statistics(), None);
    bench.pause();
    let state: BalloonState = bench.save().take("balloon").unwrap();
    assert_eq!((state.held, state.statistics_interval), (None, Some(PATIENCE)));
}

#[test]
fn statistics_come_when_they_are_asked_for() {
    let mut bench = Bench::running();
    assert_eq!(bench.statistics(), None);
    bench.tell(3, &[(4, 1000), (5, 2000), (99, 1)]);
    let expected = Statistics { free: Some(1000), total: Some(2000), ..Statistics::default() };
    assert_eq!(bench.statistics(), Some(expected));
    // Held until it is time.
    assert_eq!(bench.rings[2].take_used(), []);
    assert!(was_raised(&bench.interrupts[3]));
    assert!(!was_raised(&bench.interrupts[3]));
    bench.ask();
    assert_eq!(bench.rings[2].take_used(), [(3, 0)]);
    assert!(was_raised(&bench.interrupts[3]));
    // Asked again before the driver answers: it has the chain already.
    bench.ask();
    assert_eq!(bench.rings[2].take_used(), []);
    bench.tell(3, &[(10, 4)]);
    let expected = Statistics { oom_kills: Some(4), ..Statistics::default() };
    assert_eq!(bench.statistics(), Some(expected));
    assert_eq!((bench.counters().statistics, bench.counters().bad_requests), (2, 0));
}

#[test]
fn interval_that_is_taken_away_asks_no_more() {
    let bench = Bench::running();
    let timer = *bench.tasks[0].wakeups().last().unwrap();
    for never in [None, Some(Duration::ZERO)] {
        let soon = Some(Duration::from_nanos(1));
        bench.function.device(|balloon| balloon.set_statistics_interval(soon));
        assert!(is_readable(timer, PollTimeout::try_from(PATIENCE).unwrap()));
        bench.function.device(|balloon| balloon.set_statistics_interval(never));
        assert!(!is_readable(timer, PollTimeout::ZERO));
    }
}

#[test]
fn of_several_chains_of_statistics_the_last_is_held() {
    let mut bench = Bench::running();
    bench.tell(3, &[(4, 1)]);
    bench.tell(5, &[(4, 2)]);
    assert_eq!(bench.rings[2].take_used(), [(3, 0)]);
    bench.ask();
    assert_eq!(bench.rings[2].take_used(), [(5, 0)]);
    assert_eq!(bench.statistics().unwrap().free, Some(2));
}

#[test]
fn features_are_those_wanted() {
    let device = |deflate_on_oom, reporting| {
        let bench = Bench::new(BalloonConfig { deflate_on_oom, reporting });
        (bench.driver.offered() & 0xff, bench.driver.common(0x12, 2))
    };
    assert_eq!(device(false, false), (F_STATS_VQ, 3));
    assert_eq!(device(true, false), (F_STATS_VQ | F_DEFLATE_ON_OOM, 3));
    assert_eq!(device(false, true), (F_STATS_VQ | F_REPORTING, 5));
    let bench = Bench::new(WITH_ALL);
    assert_eq!(bench.driver.configuration(0x00, 4), 0x1045_1af4);
}

#[test]
fn driver_without_both_first_queues_does_not_start() {
    for (queues, missing) in [(&[1_u16, 2][..], 0), (&[0, 2, 3], 1)] {
        let mut bench = Bench::new(WITH_ALL);
        bench.start_queues(u64::MAX, queues);
        let error = bench.function.activate().err().unwrap();
        assert!(matches!(error, ActivateError::MissingQueue { queue } if queue == missing));
        assert!(bench.needs_reset());
    }
}

#[test]
fn queues_without_their_feature_are_left_alone() {
    let mut bench = Bench::new(WITH_ALL);
    bench.start(0);
    bench.fill();
    let before = bench.pages();
    for queue in [2, 3, 4] {
        assert!(!bench.report(queue, &[(2 << 20, 2 << 20)]));
    }
    assert_eq!((bench.pages(), bench.counters()), (before, BalloonCounters::default()));
    assert!(bench.list(INFLATE, &[0x300]));
    bench.pause();
    bench.resume();
    assert!(bench.list(DEFLATE, &[0x300]));
}

#[test]
fn memory_that_the_host_keeps_is_counted_and_the_guest_goes_on() {
    let mut bench = Bench::running();
    bench.fill();
    // SAFETY: takes a number only; the descriptor is open.
    let sealed = unsafe {
        libc::fcntl(bench.file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE)
    };
    assert_eq!(sealed, 0);
    assert!(bench.list(INFLATE, &[0x300, 0x302]));
    assert!(bench.report(REPORTING, &[(2 << 20, 2 << 20)]));
    let counters = bench.counters();
    assert_eq!((counters.failures, counters.runs, counters.partial_huge_pages), (3, 0, 0));
    assert_eq!(bench.content(0x200..0x303), [7; 0x103]);
}
