//! What serves one queue: takes chains, checks them, has them done, gives them back.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use vm_memory::{Bytes, GuestAddress};

use super::backend::{Alignment, Backend, Completion, GuestBuffers, Transfer};
use super::config::ErrorPolicy;
use super::metrics::{Metrics, count};
use super::request::{Action, ID_LENGTH, IOERR, OK, Reject, Request, Rules, Segment, parse};
use crate::limits::Limiter;
use crate::pci::lock;
use crate::virtio::{DrainError, GuestRam, QueueTask, VirtQueue, Wakeup};

const DOORBELL: u32 = 0;
const COMPLETED: u32 = 1;
const TIMER: u32 = 2;

/// Chains taken before other tasks of the worker have their turn.
const BATCH: usize = 64;
/// Transfers that may go through memory of our own at a time: 2 MiB for each queue.
const MAX_BOUNCED: usize = 16;
/// Bytes of a queue that are at the backend at a time, if it is not one request alone: a pause waits for them.
const MAX_BYTES: u64 = 64 << 20;
/// When to ask a backend again that could not take more.
const RETRY: Duration = Duration::from_millis(10);

/// A request that the host failed and that is held until the next resume.
#[derive(Clone, Debug)]
pub struct DiskFailure {
    /// Of the disk.
    pub serial: String,
    /// Queue that it came by.
    pub queue: u16,
    /// What was asked for: "read", "write", "flush", "discard", "write zeroes".
    pub operation: &'static str,
    /// The system's error number, where it has one: ENOSPC for a full disk.
    pub number: Option<i32>,
}

/// Tells the machine's owner. Called on I/O threads; must not wait.
pub type FailureReport = Arc<dyn Fn(DiskFailure) + Send + Sync>;

/// What the tasks of one disk share with it.
pub(super) struct Shared {
    /// In sectors.
    pub(super) capacity: AtomicU64,
    pub(super) writeback: AtomicBool,
    pub(super) block_size: u32,
    pub(super) read_only: bool,
    pub(super) alignment: Alignment,
    pub(super) serial: String,
    pub(super) id: [u8; ID_LENGTH],
    pub(super) on_error: ErrorPolicy,
    pub(super) report: FailureReport,
    pub(super) limiter: Option<Mutex<Limiter>>,
    pub(super) metrics: Metrics,
}

/// When writes are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    /// When they are done.
    Writeback,
    /// When they are on the disk.
    Writethrough,
    /// As the configuration says now.
    Configured,
}

/// What the driver settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) discard: bool,
    pub(super) write_zeroes: bool,
    pub(super) cache: Cache,
}

impl Shared {
    pub(super) fn rules(&self, terms: Terms) -> Rules {
        Rules {
            capacity: self.capacity.load(Ordering::Acquire),
            block_size: self.block_size,
            read_only: self.read_only,
            discard: terms.discard,
            write_zeroes: terms.write_zeroes,
        }
    }
}

/// What a queue has of the host's, made before the vmm is locked in.
pub(super) struct Lane {
    pub(super) backend: Box<dyn Backend>,
    timer: TimerFd,
    /// Requests that the host failed.
    pub(super) held: Vec<Request>,
}

impl Lane {
    pub(super) fn new(backend: Box<dyn Backend>) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        Ok(Self { backend, timer, held: Vec::new() })
    }
}

/// Serves one queue of a disk.
pub struct BlockTask {
    queue: VirtQueue,
    lane: Lane,
    shared: Arc<Shared>,
    terms: Terms,
    pending: BTreeMap<u64, Pending>,
    next_token: u64,
    bounced: usize,
    /// Bytes of those that are pending.
    bytes: u64,
    /// A request was held: nothing more is taken.
    is_stopped: bool,
    /// It is to come to rest: nothing more is taken.
    is_draining: bool,
    /// The rate limit was reached: nothing more is taken before the timer.
    is_throttled: bool,
    /// Something was pushed that the driver was not told of.
    is_pushed: bool,
}

/// A request at the backend.
struct Pending {
    request: Request,
    may_bounce: bool,
}

impl BlockTask {
    pub(super) fn new(queue: VirtQueue, lane: Lane, shared: Arc<Shared>, terms: Terms) -> Self {
        Self {
            queue,
            lane,
            shared,
            terms,
            pending: BTreeMap::new(),
            next_token: 0,
            bounced: 0,
            bytes: 0,
            is_stopped: false,
            is_draining: false,
            is_throttled: false,
            is_pushed: false,
        }
    }

    /// Takes it apart. It is drained: what the kernel may still write to must not be taken for free.
    pub(super) fn into_parts(self) -> (VirtQueue, Lane) {
        assert_eq!(self.pending.len(), 0, "a task that is reclaimed is drained");
        (self.queue, self.lane)
    }

    /// Gives back what is done. Asks memory first: a system call for each look would cost more than most requests.
    fn finish(&mut self) -> io::Result<()> {
        let found = self.look()?;
        if found {
            // What is told of has been found already, and need not wake us.
            self.hear();
            self.look()?;
        }
        Ok(())
    }

    /// Makes the backend's descriptor unreadable. What was done before is looked for afterwards.
    fn hear(&self) {
        // It fails if nothing is done.
        let _ = self.lane.backend.completed().read();
    }

    /// Gives back what is done; whether anything was.
    fn look(&mut self) -> io::Result<bool> {
        let mut done = Vec::new();
        let result = self.lane.backend.completions(&mut done);
        let found = !done.is_empty();
        for completion in done {
            self.complete(completion);
        }
        result.map(|()| found)
    }

    fn complete(&mut self, completion: Completion) {
        let Some(Pending { request, may_bounce }) = self.pending.remove(&completion.token) else {
            return;
        };
        self.bounced -= usize::from(may_bounce);
        self.bytes -= request.action.work();
        match completion.result {
            Ok(()) => self.succeed(&request),
            Err(error) => self.fail(request, &error),
        }
    }

    fn succeed(&mut self, request: &Request) {
        self.shared.metrics.done(&request.action);
        let data =
            if let Action::Read { .. } = request.action { request.action.length() } else { 0 };
        let written = u32::try_from(data).unwrap_or(u32::MAX - 1) + 1;
        self.answer((request.head, request.status), OK, written);
    }

    fn fail(&mut self, request: Request, error: &io::Error) {
        count(&self.shared.metrics.errors);
        if self.shared.on_error == ErrorPolicy::Report {
            self.answer((request.head, request.status), IOERR, 1);
            return;
        }
        self.is_stopped = true;
        (self.shared.report)(DiskFailure {
            serial: self.shared.serial.clone(),
            queue: self.queue.index(),
            operation: operation(&request.action),
            number: error.raw_os_error(),
        });
        self.lane.held.push(request);
    }

    fn answer(&mut self, (head, status): (u16, GuestAddress), code: u8, written: u32) {
        if self.queue.ram().write_obj(code, status).is_err() {
            // It was in memory when the chain was taken, and memory stays.
            self.queue.fail();
        }
        self.queue.push(head, written);
        self.is_pushed = true;
    }

    /// Takes chains, as many as there may be now.
    fn start(&mut self) {
        for _ in 0..BATCH {
            let is_full = self.bounced >= MAX_BOUNCED || self.bytes >= MAX_BYTES;
            if self.is_stopped || self.is_draining || self.is_throttled || is_full {
                return;
            }
            let Some(chain) = self.queue.pop() else {
                if self.queue.resume_doorbell() {
                    continue;
                }
                return;
            };
            let head = chain.head_index();
            let rules = self.shared.rules(self.terms);
            match parse(head, chain, self.queue.ram(), &rules) {
                Ok(request) => match self.limit(&request) {
                    Ok(()) => self.submit(request),
                    Err(wait) => {
                        self.queue.put_back();
                        self.is_throttled = true;
                        count(&self.shared.metrics.throttled);
                        self.wake_in(wait);
                    }
                },
                Err(Reject::Answered { status, code, .. }) => {
                    count(&self.shared.metrics.bad_requests);
                    self.answer((head, status), code, 1);
                }
                Err(Reject::Unanswerable) => {
                    count(&self.shared.metrics.bad_requests);
                    self.queue.put_back();
                    self.queue.fail();
                }
            }
        }
        // There may be more.
        self.queue.ring_doorbell();
    }

    fn limit(&self, request: &Request) -> Result<(), Duration> {
        match &self.shared.limiter {
            Some(limiter) => lock(limiter).take(request.action.work(), Instant::now()),
            None => Ok(()),
        }
    }

    fn submit(&mut self, request: Request) {
        let ram = self.queue.ram();
        let buffers = match &request.action {
            Action::Read { segments, .. } | Action::Write { segments, .. } => {
                Some(GuestBuffers::new(ram.clone(), segments.clone()))
            }
            Action::GetId { segments } => {
                let written = give_id(ram, segments, &self.shared.id);
                self.answer((request.head, request.status), OK, written + 1);
                return;
            }
            _ => None,
        };
        let sync = match self.terms.cache {
            Cache::Writeback => false,
            Cache::Writethrough => true,
            Cache::Configured => !self.shared.writeback.load(Ordering::Acquire),
        };
        let (token, alignment) = (self.next_token, self.shared.alignment);
        self.next_token += 1;
        match Transfer::new(token, &request.action, buffers, alignment, sync) {
            Ok(transfer) => {
                if transfer.is_bounced() {
                    count(&self.shared.metrics.bounced);
                }
                // Zeroes are written from memory of our own where the host has no other way.
                let zeroes = matches!(request.action, Action::WriteZeroes { .. });
                let may_bounce = transfer.is_bounced() || zeroes;
                self.bounced += usize::from(may_bounce);
                self.bytes += request.action.work();
                self.pending.insert(token, Pending { request, may_bounce });
                self.lane.backend.submit(transfer);
            }
            Err(error) => self.fail(request, &error),
        }
    }

    /// Starts what was submitted, gives back what is done, tells the driver once.
    fn settle(&mut self) {
        let kicked = self.lane.backend.kick();
        let finished = self.finish();
        if kicked.and(finished).is_err() {
            self.wake_in(RETRY);
        }
        if std::mem::take(&mut self.is_pushed) {
            self.queue.signal();
        }
    }

    fn wake_in(&self, wait: Duration) {
        let wait = wait.max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(wait));
        // The only failures are a bad descriptor and a bad time.
        let _ = self.lane.timer.set(once, TimerSetTimeFlags::empty());
    }
}

impl QueueTask for BlockTask {
    fn wakeups(&self) -> Vec<Wakeup> {
        vec![
            Wakeup::when_written(self.queue.doorbell().as_raw_fd(), DOORBELL),
            Wakeup::when_written(self.lane.backend.completed().as_raw_fd(), COMPLETED),
            Wakeup::while_readable(self.lane.timer.as_fd().as_raw_fd(), TIMER),
        ]
    }

    fn on_event(&mut self, token: u32) {
        // It is not readable if the time has not come.
        if token == TIMER && self.lane.timer.wait().is_ok() {
            self.is_throttled = false;
        }
        // Room first: what is done may let more be taken.
        let finished = if token == COMPLETED { self.look().map(drop) } else { self.finish() };
        if finished.is_err() {
            self.wake_in(RETRY);
        }
        self.start();
        self.settle();
    }

    fn drain(&mut self) -> Result<usize, DrainError> {
        self.is_draining = true;
        let kicked = self.lane.backend.kick();
        // Unreadable before the last look: what is done later wakes the worker.
        self.hear();
        let finished = self.look();
        if kicked.and(finished.map(drop)).is_err() {
            // A backend that cannot take more now may be able to later.
            self.wake_in(RETRY);
        }
        let in_flight = self.lane.backend.in_flight();
        assert!(in_flight > 0 || self.pending.is_empty(), "the backend knows of all in flight");
        Ok(in_flight)
    }

    fn rearm(&mut self) {
        self.is_stopped = false;
        self.is_draining = false;
        self.is_throttled = false;
        if !self.queue.is_given_up() {
            for request in std::mem::take(&mut self.lane.held) {
                self.submit(request);
            }
        }
        self.queue.rearm();
        self.settle();
    }
}

fn operation(action: &Action) -> &'static str {
    match action {
        Action::Read { .. } => "read",
        Action::Write { .. } => "write",
        Action::Flush => "flush",
        Action::GetId { .. } => "get id",
        Action::Discard { .. } => "discard",
        Action::WriteZeroes { .. } => "write zeroes",
    }
}

/// Copies the serial number into the guest's buffers; as much as they hold.
fn give_id(ram: &GuestRam, segments: &[Segment], id: &[u8]) -> u32 {
    let mut rest = id;
    let mut written = 0;
    for segment in segments {
        let (part, behind) = rest.split_at(rest.len().min(segment.length as usize));
        // The request was checked: the buffers are in memory.
        let _ = ram.write_slice(part, segment.address);
        rest = behind;
        written += u32::try_from(part.len()).unwrap_or(0);
    }
    written
}
