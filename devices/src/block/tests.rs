//! Disks on real files, as a driver and the machine's owner drive them.

mod failures;
mod hostile;
mod images;
mod saved;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;
use vm_memory::{Bytes, GuestAddress};

use super::request::{IOERR, OK, UNSUPPORTED};
use super::*;
use crate::testing::{FakeDriver, FakeRing, drain, turn, was_raised, wiring};
use crate::virtio::{GuestRam, QueueTask, Transport, VirtioPci};
use crate::{Interrupt, RateLimit, RateLimits, RecordError, Records};

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

const HEADER: u64 = 0x4000;
const STATUS: u64 = 0x4100;
const DATA: u64 = 0x5000;

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file of 1 MiB that is full of a byte.
fn disk_of(byte: u8) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&vec![byte; 1 << 20]).unwrap();
    file
}

fn open(file: &NamedTempFile) -> DiskFile {
    DiskFile::new(file.reopen().unwrap().into(), false).unwrap()
}

fn content(file: &NamedTempFile, offset: u64, length: usize) -> Vec<u8> {
    let mut reader = file.reopen().unwrap();
    reader.seek(SeekFrom::Start(offset)).unwrap();
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).unwrap();
    bytes
}

/// Rings only where this host has them.
fn engines() -> Vec<Engine> {
    let file = disk_of(0);
    let config = BlockConfig { engine: Engine::Ring, ..BlockConfig::default() };
    let ring = Block::new(open(&file), config, Arc::new(|_| {})).is_ok();
    if ring { vec![Engine::Ring, Engine::Pool] } else { vec![Engine::Pool] }
}

fn with(engine: Engine) -> BlockConfig {
    BlockConfig { engine, serial: "corten-disk".into(), ..BlockConfig::default() }
}

/// A disk with a driver, and the owner with the tasks.
struct Bench {
    function: Arc<VirtioPci<Block>>,
    driver: FakeDriver,
    ram: GuestRam,
    interrupts: Vec<Interrupt>,
    rings: Vec<FakeRing>,
    tasks: Vec<Box<dyn QueueTask>>,
    failures: Arc<Mutex<Vec<DiskFailure>>>,
}

impl Bench {
    fn new(disk: impl Into<Disk>, config: BlockConfig) -> Self {
        let failures = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&failures);
        let report = Arc::new(move |failure| seen.lock().unwrap().push(failure));
        Self::around(Block::new(disk, config, report).unwrap(), failures)
    }

    fn around(block: Block, failures: Arc<Mutex<Vec<DiskFailure>>>) -> Self {
        use crate::virtio::Device;
        let queues = block.queue_sizes().len();
        let (wiring, interrupts, _) = wiring(3, queues);
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(block, wiring).unwrap();
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        let ring = |queue| FakeRing::new(&ram, GuestAddress(0x1000 * (queue + 1)), 16);
        let rings = (0..queues as u64).map(ring).collect();
        Self { function, driver, ram, interrupts, rings, tasks: Vec::new(), failures }
    }

    /// Up to a device at work, with all features.
    fn running(disk: impl Into<Disk>, config: BlockConfig) -> Self {
        let mut bench = Self::new(disk, config);
        let features = bench.driver.offered();
        bench.start(features);
        bench
    }

    fn start(&mut self, features: u64) {
        assert!(self.driver.negotiate(features));
        let queues = u16::try_from(self.rings.len()).unwrap();
        self.driver.enable_msix(queues + 1);
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
            drain(task, Instant::now() + PATIENCE).unwrap();
        }
        self.function.reclaim(tasks).unwrap();
    }

    /// A worker's turn, if anything wakes it within the time.
    fn turn(&mut self, patience: Duration) {
        turn(&mut self.tasks);
        std::thread::sleep(patience);
    }

    /// Describes a request on descriptors from `first` on: header, data, status. Gives the place of the status.
    fn describe(&mut self, queue: usize, first: u16, ask: (u32, u64), data: &[(u64, u32)]) -> u64 {
        let (kind, sector) = ask;
        let place = u64::from(first) * 0x10;
        let (header, status) = (HEADER + place, STATUS + place);
        self.ram.write_obj(kind, GuestAddress(header)).unwrap();
        self.ram.write_obj(0_u32, GuestAddress(header + 4)).unwrap();
        self.ram.write_obj(sector, GuestAddress(header + 8)).unwrap();
        self.ram.write_obj(0xaa_u8, GuestAddress(status)).unwrap();
        let direction = if matches!(kind, READ | GET_ID) { FakeRing::WRITE } else { 0 };
        let ring = &self.rings[queue];
        let mut next = first + 1;
        ring.describe(first, (GuestAddress(header), 16), FakeRing::NEXT, next);
        for (address, length) in data {
            let flags = FakeRing::NEXT | direction;
            ring.describe(next, (GuestAddress(*address), *length), flags, next + 1);
            next += 1;
        }
        ring.describe(next, (GuestAddress(status), 1), FakeRing::WRITE, 0);
        status
    }

    fn offer(&mut self, queue: u16, head: u16) {
        self.rings[usize::from(queue)].offer(head);
        self.driver.ring(queue);
    }

    /// Waits for `count` chains to come back.
    fn used(&mut self, queue: usize, count: usize) -> Vec<(u32, u32)> {
        let end = Instant::now() + PATIENCE;
        let mut used = self.rings[queue].take_used();
        while used.len() < count {
            assert!(Instant::now() < end, "chains do not come back");
            self.turn(Duration::from_millis(1));
            used.extend(self.rings[queue].take_used());
        }
        used
    }

    fn status(&self, at: u64) -> u8 {
        self.ram.read_obj(GuestAddress(at)).unwrap()
    }

    /// One request from start to end: its status, and the length in the used ring.
    fn ask_on(&mut self, queue: u16, ask: (u32, u64), data: &[(u64, u32)]) -> (u8, u32) {
        let status = self.describe(queue.into(), 0, ask, data);
        self.offer(queue, 0);
        let used = self.used(queue.into(), 1);
        (self.status(status), used[0].1)
    }

    fn ask(&mut self, kind: u32, sector: u64, data: &[(u64, u32)]) -> u8 {
        self.ask_on(0, (kind, sector), data).0
    }

    fn put_range(&self, sector: u64, sectors: u32, flags: u32) {
        self.ram.write_obj(sector, GuestAddress(DATA)).unwrap();
        self.ram.write_obj(sectors, GuestAddress(DATA + 8)).unwrap();
        self.ram.write_obj(flags, GuestAddress(DATA + 12)).unwrap();
    }

    fn fill(&self, address: u64, bytes: &[u8]) {
        self.ram.write_slice(bytes, GuestAddress(address)).unwrap();
    }

    fn memory(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.ram.read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    fn counters(&self) -> BlockCounters {
        self.function.device(Block::counters)
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251).to_le_bytes()[0]).collect()
}

#[test]
fn written_data_is_on_the_file_and_reads_back() {
    for engine in engines() {
        let file = disk_of(0);
        let mut bench = Bench::running(open(&file), with(engine));
        assert_eq!(bench.function.device(Block::engine), engine);
        let data = pattern(1536);
        bench.fill(DATA, &data);
        // Three buffers, none of them a sector.
        let pieces = [(DATA, 100), (DATA + 100, 1000), (DATA + 1100, 436)];
        assert_eq!(bench.ask_on(0, (WRITE, 5), &pieces), (OK, 1));
        assert_eq!(bench.ask(FLUSH, 0, &[]), OK);
        assert_eq!(content(&file, 5 * 512, 1536), data);
        assert_eq!(bench.ask_on(0, (READ, 5), &[(0x8001, 1536)]), (OK, 1537));
        assert_eq!(bench.memory(0x8001, 1536), data);
        let counters = bench.counters();
        assert_eq!((counters.reads, counters.writes, counters.flushes), (1, 1, 1));
        assert_eq!((counters.read_bytes, counters.written_bytes), (1536, 1536));
        assert_eq!((counters.errors, counters.bad_requests), (0, 0));
    }
}

#[test]
fn read_marks_memory_as_written_when_it_is_done() {
    use vm_memory::bitmap::AtomicBitmap;
    use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
    for engine in engines() {
        let file = disk_of(7);
        let mut bench = Bench::running(open(&file), with(engine));
        let region = bench.ram.iter().next().unwrap().get_mmap();
        let _: &AtomicBitmap = region.bitmap();
        region.bitmap().reset();
        let marked = |bench: &Bench, at: usize| {
            let region = bench.ram.iter().next().unwrap();
            assert!(region.len() > 0);
            region.get_mmap().bitmap().is_addr_set(at)
        };
        assert!(!marked(&bench, 0x8000));
        assert_eq!(bench.ask(WRITE, 0, &[(0x8000, 4096)]), OK);
        assert!(!marked(&bench, 0x8000));
        assert_eq!(bench.ask(READ, 0, &[(0x8000, 4096)]), OK);
        assert!(marked(&bench, 0x8000));
        assert!(!marked(&bench, 0x9000));
    }
}

#[test]
fn discard_gives_space_back() {
    for engine in engines() {
        let file = disk_of(7);
        let mut bench = Bench::running(open(&file), with(engine));
        file.as_file().sync_all().unwrap();
        let before = file.as_file().metadata().unwrap().blocks();
        bench.put_range(1024, 512, 0);
        assert_eq!(bench.ask(DISCARD, 0, &[(DATA, 16)]), OK);
        let after = file.as_file().metadata().unwrap();
        assert!(after.blocks() + 512 <= before, "{before} {}", after.blocks());
        assert_eq!(after.len(), 1 << 20);
        assert_eq!(content(&file, 1024 * 512 - 1, 2), [7, 0]);
        assert_eq!(bench.counters().discards, 1);
    }
}

#[test]
fn zeroes_read_as_zeroes_and_keep_their_space_unless_told() {
    for engine in engines() {
        for unmap in [0, 1] {
            let file = disk_of(7);
            let mut bench = Bench::running(open(&file), with(engine));
            file.as_file().sync_all().unwrap();
            let before = file.as_file().metadata().unwrap().blocks();
            bench.put_range(8, 512, unmap);
            assert_eq!(bench.ask(WRITE_ZEROES, 0, &[(DATA, 16)]), OK);
            let bytes = content(&file, 4095, 512 * 512 + 2);
            assert_eq!((bytes[0], bytes[bytes.len() - 1]), (7, 7));
            assert!(bytes[1..bytes.len() - 1].iter().all(|byte| *byte == 0));
            let after = file.as_file().metadata().unwrap().blocks();
            assert_eq!(after + 512 <= before, unmap == 1, "{before} {after}");
        }
    }
}

#[test]
fn read_only_disk_refuses_to_be_written() {
    let file = disk_of(7);
    let reader = DiskFile::new(File::open(file.path()).unwrap().into(), false).unwrap();
    let refused = Block::new(reader.clone(), BlockConfig::default(), Arc::new(|_| {}));
    assert!(matches!(refused.err(), Some(BlockError::Disk(DiskError::NotWritable))));
    for engine in engines() {
        let config = BlockConfig { read_only: true, ..with(engine) };
        let mut bench = Bench::running(reader.clone(), config);
        assert_ne!(bench.driver.offered() & 1 << 5, 0);
        assert_eq!(bench.driver.offered() & (1 << 13 | 1 << 14), 0);
        assert_eq!(bench.ask(WRITE, 0, &[(DATA, 512)]), IOERR);
        assert_eq!(bench.ask(READ, 0, &[(DATA, 512)]), OK);
        assert_eq!(bench.ask(FLUSH, 0, &[]), OK);
        assert_eq!(bench.counters().bad_requests, 1);
    }
    assert_eq!(content(&file, 0, 512), [7; 512]);
}

#[test]
fn serial_is_cut_to_the_buffer() {
    let file = disk_of(0);
    let mut bench = Bench::running(open(&file), with(Engine::Auto));
    assert_eq!(bench.ask_on(0, (GET_ID, 0), &[(DATA, 20)]), (OK, 21));
    assert_eq!(bench.memory(DATA, 20), b"corten-disk\0\0\0\0\0\0\0\0\0");
    assert_eq!(bench.ask_on(0, (GET_ID, 0), &[(DATA, 2), (0x8000, 3)]), (OK, 6));
    assert_eq!(bench.memory(0x8000, 4), b"rte\0");
}

#[test]
fn queues_work_on_their_own() {
    for engine in engines() {
        let file = disk_of(0);
        let mut bench = Bench::running(open(&file), BlockConfig { queues: 2, ..with(engine) });
        assert_eq!(bench.tasks.len(), 2);
        let mut queues = [0; 2];
        bench.driver.config(34, &mut queues);
        assert_eq!(queues, [2, 0]);
        bench.fill(DATA, &[1; 512]);
        assert_eq!(bench.ask_on(1, (WRITE, 9), &[(DATA, 512)]), (OK, 1));
        assert_eq!(bench.ask_on(0, (READ, 9), &[(0x8000, 512)]), (OK, 513));
        assert_eq!(bench.memory(0x8000, 512), [1; 512]);
    }
}

#[test]
fn many_requests_at_once_all_come_back() {
    for engine in engines() {
        let file = disk_of(0);
        let mut bench = Bench::running(open(&file), with(engine));
        for (sector, first) in (0_u64..).zip([0, 3, 6, 9, 12]) {
            let at = 0x6000 + sector * 512;
            bench.fill(at, &[sector.to_le_bytes()[0] + 1; 512]);
            bench.describe(0, first, (WRITE, sector), &[(at, 512)]);
            bench.rings[0].offer(first);
        }
        bench.driver.ring(0);
        let mut heads: Vec<u32> = bench.used(0, 5).into_iter().map(|(head, _)| head).collect();
        heads.sort_unstable();
        assert_eq!(heads, [0, 3, 6, 9, 12]);
        let written: Vec<u8> = (0..5).map(|sector| content(&file, sector * 512, 1)[0]).collect();
        assert_eq!(written, [1, 2, 3, 4, 5]);
    }
}

#[test]
fn indirect_descriptors_are_followed() {
    let file = disk_of(9);
    let mut bench = Bench::running(open(&file), with(Engine::Auto));
    let status = bench.describe(0, 0, (READ, 0), &[(DATA, 512)]);
    let table = bench.memory(bench.rings[0].descriptors().0, 48);
    bench.fill(0x9000, &table);
    let ring = &bench.rings[0];
    ring.describe(5, (GuestAddress(0x9000), 48), FakeRing::INDIRECT, 0);
    bench.offer(0, 5);
    assert_eq!(bench.used(0, 1), [(5, 513)]);
    assert_eq!(bench.status(status), OK);
    assert_eq!(bench.memory(DATA, 512), [9; 512]);
}

#[test]
fn driver_is_told_when_it_asked_to_be() {
    let file = disk_of(0);
    let mut bench = Bench::running(open(&file), with(Engine::Auto));
    bench.turn(Duration::ZERO);
    let _ = was_raised(&bench.interrupts[1]);
    bench.rings[0].set_used_event(2);
    for expected in [false, false, true, false] {
        assert_eq!(bench.ask(READ, 0, &[(DATA, 512)]), OK);
        assert_eq!(was_raised(&bench.interrupts[1]), expected);
    }
    assert_eq!(bench.rings[0].available_event(), 4, "asks to be rung for the next");
}

#[test]
fn misaligned_buffers_go_through_ours_under_o_direct() {
    for engine in engines() {
        let file = disk_of(0);
        let disk = DiskFile::new(file.reopen().unwrap().into(), true).unwrap();
        let direct = disk.is_direct();
        let sectors = u64::from(disk.block_size()) / 512;
        let mut bench = Bench::running(disk, with(engine));
        let length = 0x2000;
        let data = pattern(length);
        bench.fill(0x8003, &data);
        let pieces = [(0x8003, 1000), (0x8003 + 1000, 0x2000 - 1000)];
        assert_eq!(bench.ask(WRITE, sectors, &pieces), OK);
        assert_eq!(content(&file, sectors * 512, length), data);
        assert_eq!(bench.ask(READ, sectors, &[(0xb001, 100), (0xc001, 0x2000 - 100)]), OK);
        assert_eq!(bench.memory(0xb001, 100), data[..100]);
        assert_eq!(bench.memory(0xc001, length - 100), data[100..]);
        assert_eq!(bench.counters().bounced, if direct { 2 } else { 0 });
        assert_eq!(bench.ask(READ, 0, &[(0x8000, 4096)]), OK);
        assert_eq!(bench.counters().bounced, if direct { 2 } else { 0 });
    }
}

#[test]
fn zeroes_count_for_the_limit_of_bytes_and_discards_do_not() {
    let file = disk_of(7);
    let limit = NonZeroU64::new(0x1000).unwrap();
    let limit = RateLimit { per_second: NonZeroU64::MIN, burst: limit };
    let limits = RateLimits { bytes: Some(limit), operations: None };
    let mut bench = Bench::running(open(&file), BlockConfig { limits, ..with(Engine::Pool) });
    for _ in 0..3 {
        bench.put_range(0, 2048, 0);
        assert_eq!(bench.ask(DISCARD, 0, &[(DATA, 16)]), OK);
    }
    assert_eq!(bench.counters().throttled, 0);
    assert_eq!(
        bench.ask(WRITE_ZEROES, 0, &[(DATA, 16)]),
        OK,
        "what is larger than the bucket passes"
    );
    bench.put_range(0, 1, 0);
    bench.describe(0, 0, (WRITE_ZEROES, 0), &[(DATA, 16)]);
    bench.offer(0, 0);
    bench.turn(Duration::ZERO);
    assert_eq!(bench.counters().throttled, 1);
    bench.pause();
    assert_eq!(bench.rings[0].take_used(), [], "the next one waits");
}

#[test]
fn wrong_requests_get_a_status_and_the_queue_goes_on() {
    let file = disk_of(3);
    let mut bench = Bench::running(open(&file), with(Engine::Auto));
    let end = (1 << 20) / 512;
    assert_eq!(bench.ask(READ, end, &[(DATA, 512)]), IOERR);
    assert_eq!(bench.ask(READ, end - 1, &[(DATA, 1024)]), IOERR);
    assert_eq!(bench.ask(WRITE, u64::MAX, &[(DATA, 512)]), IOERR);
    assert_eq!(bench.ask(READ, 0, &[(DATA, 511)]), IOERR);
    assert_eq!(bench.ask(READ, 0, &[(0xff00, 512)]), IOERR);
    assert_eq!(bench.ask(99, 0, &[]), UNSUPPORTED);
    assert_eq!(bench.counters().bad_requests, 6);
    assert_eq!(bench.ask(READ, 0, &[]), OK, "nothing is no error");
    assert_eq!(bench.ask(READ, end - 1, &[(DATA, 512)]), OK);
    assert_eq!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0);
}

#[test]
fn chain_without_a_status_fails_the_device() {
    let file = disk_of(3);
    let mut bench = Bench::running(open(&file), with(Engine::Auto));
    bench.rings[0].describe(0, (GuestAddress(HEADER), 16), 0, 0);
    bench.offer(0, 0);
    bench.turn(Duration::ZERO);
    assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0);
    assert_eq!(bench.rings[0].take_used(), []);
    bench.pause();
    let features = bench.driver.offered();
    let _ = bench.driver.reset();
    bench.function.deactivated().unwrap();
    bench.rings[0] = FakeRing::new(&bench.ram, GuestAddress(0x1000), 16);
    bench.rings[0].set_available_index(0);
    bench.fill(0x1800, &[0; 4]);
    bench.start(features);
    assert_eq!(bench.ask(READ, 0, &[(DATA, 512)]), OK);
}

#[test]
fn rate_limit_holds_requests_back() {
    let limit = |number| NonZeroU64::new(number).unwrap();
    let operations = Some(RateLimit { per_second: limit(20), burst: limit(2) });
    let bytes = Some(RateLimit { per_second: limit(10240), burst: limit(512) });
    for limits in [RateLimits { operations, bytes: None }, RateLimits { operations: None, bytes }] {
        let file = disk_of(3);
        let mut bench = Bench::running(open(&file), BlockConfig { limits, ..with(Engine::Auto) });
        let start = Instant::now();
        for _ in 0..6 {
            assert_eq!(bench.ask(READ, 0, &[(DATA, 512)]), OK);
        }
        assert!(start.elapsed() >= Duration::from_millis(190));
        assert!(bench.counters().throttled >= 3);
    }
}

#[test]
fn throttled_disk_is_paused_at_once() {
    let limit = |number| NonZeroU64::new(number).unwrap();
    let operations = Some(RateLimit { per_second: limit(1), burst: limit(1) });
    let limits = RateLimits { operations, bytes: None };
    let file = disk_of(3);
    let mut bench = Bench::running(open(&file), BlockConfig { limits, ..with(Engine::Auto) });
    assert_eq!(bench.ask(READ, 0, &[(DATA, 512)]), OK);
    let status = bench.describe(0, 0, (READ, 0), &[(DATA, 512)]);
    bench.offer(0, 0);
    bench.turn(Duration::ZERO);
    assert_eq!(bench.status(status), 0xaa);
    bench.pause();
    bench.resume();
    bench.used(0, 1);
    assert_eq!(bench.status(status), OK);
}

#[test]
fn cache_mode_is_the_drivers() {
    let file = disk_of(3);
    let mut bench = Bench::running(open(&file), with(Engine::Auto));
    let mode = |bench: &Bench| {
        let mut mode = [0xaa];
        bench.driver.config(32, &mut mode);
        mode[0]
    };
    assert_eq!(mode(&bench), 1);
    bench.driver.set_config(32, &[0]);
    assert_eq!(mode(&bench), 0);
    assert_eq!(bench.ask(WRITE, 0, &[(DATA, 512)]), OK);
    bench.driver.set_config(0, &[0xff; 8]);
    bench.driver.set_config(33, &[0xff; 8]);
    assert_eq!(mode(&bench), 0, "only there");
    bench.pause();
    let _ = bench.driver.reset();
    bench.function.deactivated().unwrap();
    assert_eq!(mode(&bench), 1);
}

#[test]
fn configuration_says_what_requests_are_held_to() {
    let file = disk_of(3);
    let bench = Bench::new(open(&file), with(Engine::Auto));
    let mut config = [0; 64];
    bench.driver.config(0, &mut config);
    let word = |at: usize| u32::from_le_bytes(config[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4)), (2048, 0));
    assert_eq!((word(8), word(12), word(20)), (1 << 20, 254, 512));
    assert_eq!(config[24..28], [3, 0, 8, 0]);
    assert_eq!((word(36), word(40), word(44)), (1 << 21, 16, 8));
    assert_eq!((word(48), word(52), config[56]), (1 << 18, 1, 1));
    assert_eq!(config[57..], [0; 7]);
}

#[test]
fn grown_disk_is_larger_for_its_driver() {
    let file = disk_of(3);
    let mut bench = Bench::running(open(&file), with(Engine::Auto));
    let _ = bench.driver.set_common(0x10, 2, 0);
    assert_eq!(bench.ask(READ, 2048, &[(DATA, 512)]), IOERR);
    file.as_file().set_len(1 << 21).unwrap();
    assert_eq!(bench.function.change_config(Block::resize).unwrap(), 1 << 21);
    assert!(was_raised(&bench.interrupts[0]));
    assert_eq!(bench.ask(READ, 2048, &[(DATA, 512)]), OK);
}

#[test]
fn disks_that_cannot_be_are_refused() {
    let file = disk_of(3);
    let new = |config: BlockConfig| {
        let config = BlockConfig { lock: false, ..config };
        Block::new(open(&file), config, Arc::new(|_| {})).map(drop)
    };
    let good = BlockConfig::default;
    assert!(matches!(
        new(BlockConfig { serial: "x".repeat(21), ..good() }),
        Err(BlockError::Serial(_))
    ));
    assert!(matches!(
        new(BlockConfig { serial: "a\0".into(), ..good() }),
        Err(BlockError::Serial(_))
    ));
    for (queues, queue_size) in [(0, 16), (1, 3), (1, 512), (u16::MAX, 16), (1, 2)] {
        assert!(matches!(
            new(BlockConfig { queues, queue_size, ..good() }),
            Err(BlockError::Queues { .. })
        ));
    }
    for size in [0, 256, 513, 1 << 17] {
        assert!(matches!(
            new(BlockConfig { block_size: Some(size), ..good() }),
            Err(BlockError::BlockSize { .. })
        ));
    }
    new(BlockConfig { block_size: Some(4096), ..good() }).unwrap();
}

#[test]
fn writable_disk_is_one_machines() {
    let file = disk_of(3);
    let first = Block::new(open(&file), BlockConfig::default(), Arc::new(|_| {})).unwrap();
    let second = Block::new(open(&file), BlockConfig::default(), Arc::new(|_| {}));
    assert!(matches!(second.err(), Some(BlockError::Lock(LockError::HeldByFile))));
    let later = BlockConfig { lock: false, ..BlockConfig::default() };
    let target = Block::new(open(&file), later, Arc::new(|_| {})).unwrap();
    assert!(target.lock().is_err());
    first.unlock().unwrap();
    target.lock().unwrap();
}
