//! Hosts that fail, fill up, or take their time.

use std::io;

use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::*;
use crate::block::backend::{Backend, Completion, Transfer};
use crate::virtio::DrainError;

/// 1 MiB that reads as zeroes and is always full.
fn full() -> DiskFile {
    let file = File::options().read(true).write(true).open("/dev/full").unwrap();
    DiskFile::fake(file, 1 << 20)
}

fn unlocked(engine: Engine, on_error: ErrorPolicy) -> BlockConfig {
    BlockConfig { lock: false, on_error, ..with(engine) }
}

#[test]
fn full_disk_is_an_error_of_the_guests() {
    for engine in engines() {
        let mut bench = Bench::running(full(), unlocked(engine, ErrorPolicy::Report));
        assert_eq!(bench.ask_on(0, (WRITE, 0), &[(DATA, 512)]), (IOERR, 1));
        assert_eq!(bench.ask(READ, 0, &[(DATA, 512)]), OK);
        assert_eq!(bench.counters().errors, 1);
        assert_eq!(bench.failures.lock().unwrap().len(), 0);
    }
}

#[test]
fn file_that_ends_early_is_an_error() {
    for engine in engines() {
        let file = disk_of(7);
        let config = unlocked(engine, ErrorPolicy::Report);
        let mut bench = Bench::running(open(&file), config);
        file.as_file().set_len(700).unwrap();
        assert_eq!(bench.ask(READ, 0, &[(DATA, 512)]), OK);
        assert_eq!(bench.ask(READ, 1, &[(DATA, 512)]), IOERR);
    }
}

#[test]
fn request_that_is_held_is_done_at_resume() {
    for engine in engines() {
        let file = disk_of(7);
        let reader = DiskFile::fake(File::open(file.path()).unwrap(), 1 << 20);
        let config = unlocked(engine, ErrorPolicy::Stop);
        let failures = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&failures);
        let report = Arc::new(move |failure: DiskFailure| seen.lock().unwrap().push(failure));
        let reader = Disk::from(reader);
        let backends = crate::block::device::backends(&reader, &config).unwrap();
        let block = Block::with(reader, config, report, backends).unwrap();
        let mut bench = Bench::around(block, failures);
        let features = bench.driver.offered();
        bench.start(features);
        let status = bench.describe(0, 0, (WRITE, 0), &[(DATA, 512)]);
        bench.rings[0].offer(0);
        bench.describe(0, 8, (READ, 0), &[(0x8000, 512)]);
        bench.offer(0, 8);
        assert_eq!(bench.used(0, 1), [(8, 513)], "taken behind it, done before it");
        let end = Instant::now() + PATIENCE;
        while bench.failures.lock().unwrap().is_empty() {
            assert!(Instant::now() < end, "nobody is told");
            bench.turn(Duration::from_millis(1));
        }
        let failure = bench.failures.lock().unwrap()[0].clone();
        assert_eq!((failure.operation, failure.number), ("write", Some(libc::EBADF)));
        assert_eq!((failure.serial.as_str(), failure.queue), ("corten-disk", 0));
        assert_eq!(bench.status(status), 0xaa, "the guest waits");
        bench.describe(0, 4, (READ, 0), &[(0x8000, 512)]);
        bench.offer(0, 4);
        bench.turn(Duration::ZERO);
        assert_eq!(bench.rings[0].take_used(), [], "nothing more is taken");
        // Paused and resumed, it fails again; moved to a disk that works, it is done.
        bench.pause();
        bench.resume();
        bench.pause_after_failures(2);
        let records = bench.save();
        let mut target = Bench::new(open(&file), unlocked(engine, ErrorPolicy::Stop));
        target.take_memory(&bench);
        target.load(&records).unwrap();
        target.fill(DATA, &[5; 512]);
        target.resume();
        let mut heads: Vec<u32> = target.used(0, 3).into_iter().map(|(head, _)| head).collect();
        heads.sort_unstable();
        assert_eq!(heads, [0, 4, 8]);
        assert_eq!(target.status(status), OK);
        assert_eq!(content(&file, 0, 512), [5; 512]);
    }
}

#[test]
fn request_that_is_held_goes_with_its_driver() {
    for engine in engines() {
        let mut bench = Bench::running(full(), unlocked(engine, ErrorPolicy::Stop));
        let status = bench.describe(0, 0, (WRITE, 0), &[(DATA, 512)]);
        bench.offer(0, 0);
        bench.pause_after_failures(1);
        let failure = bench.failures.lock().unwrap()[0].clone();
        assert_eq!((failure.operation, failure.number), ("write", Some(libc::ENOSPC)));
        assert_eq!(bench.status(status), 0xaa);
        assert_eq!(bench.save().take::<BlockState>("vda").unwrap().held.len(), 1);
        let _ = bench.driver.reset();
        bench.function.deactivated().unwrap();
        assert_eq!(bench.save().take::<BlockState>("vda").unwrap().held, []);
    }
}

/// Does nothing until it is told to.
struct Slow {
    eventfd: EventFd,
    transfers: Vec<Transfer>,
    may_finish: Arc<Mutex<bool>>,
}

impl Backend for Slow {
    fn completed(&self) -> &EventFd {
        &self.eventfd
    }

    fn submit(&mut self, transfer: Transfer) {
        self.transfers.push(transfer);
    }

    fn kick(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn completions(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        if *self.may_finish.lock().unwrap() {
            let finish =
                |transfer: Transfer| Completion { token: transfer.token(), result: Ok(()) };
            done.extend(self.transfers.drain(..).map(finish));
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.transfers.len()
    }
}

#[test]
fn pause_fails_at_its_deadline_and_the_disk_goes_on() {
    let file = disk_of(7);
    let may_finish = Arc::new(Mutex::new(false));
    let eventfd = EventFd::new(EFD_NONBLOCK).unwrap();
    let slow = Slow { eventfd, transfers: Vec::new(), may_finish: Arc::clone(&may_finish) };
    let backends: Vec<Box<dyn Backend>> = vec![Box::new(slow)];
    let report = Arc::new(|_| {});
    let block = Block::with(open(&file), with(Engine::Pool), report, (Engine::Pool, backends));
    let mut bench = Bench::around(block.unwrap(), Arc::default());
    let features = bench.driver.offered();
    bench.start(features);
    let status = bench.describe(0, 0, (FLUSH, 0), &[]);
    bench.offer(0, 0);
    bench.turn(Duration::ZERO);
    for wait in [Duration::ZERO, Duration::from_millis(20)] {
        let start = Instant::now();
        let error = drain(&mut bench.tasks[0], start + wait).unwrap_err();
        assert!(matches!(error, DrainError::Deadline { in_flight: 1 }));
        assert!(start.elapsed() >= wait);
        assert_eq!(bench.status(status), 0xaa);
        bench.tasks[0].rearm();
    }
    *may_finish.lock().unwrap() = true;
    bench.pause();
    assert_eq!(bench.status(status), OK);
    assert_eq!(bench.rings[0].take_used(), [(0, 1)]);
}

#[test]
fn driver_that_resets_and_goes_on_asking_is_served_no_more() {
    for engine in engines() {
        let file = disk_of(7);
        let mut bench = Bench::running(open(&file), with(engine));
        let status = bench.describe(0, 0, (READ, 0), &[(0x8000, 512)]);
        let later = bench.describe(0, 4, (READ, 0), &[(0x8000, 512)]);
        bench.offer(0, 0);
        bench.turn(Duration::ZERO);
        let _ = bench.driver.reset();
        bench.offer(0, 4);
        // A worker that has waited long enough sets its tasks to work again.
        bench.tasks[0].rearm();
        bench.turn(Duration::ZERO);
        drain(&mut bench.tasks[0], Instant::now() + PATIENCE).unwrap();
        assert_eq!(bench.rings[0].take_used(), [(0, 513)], "only what was in flight");
        assert_eq!((bench.status(status), bench.status(later)), (OK, 0xaa));
        bench.pause();
        bench.function.deactivated().unwrap();
        assert_eq!(bench.driver.status(), 0);
        // Its next driver is served.
        bench.rings[0] = FakeRing::new(&bench.ram, GuestAddress(0x3000), 16);
        let features = bench.driver.offered();
        bench.start(features);
        assert_eq!(bench.ask(READ, 0, &[(0x8000, 512)]), OK);
    }
}
