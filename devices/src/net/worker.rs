//! What serves one pair of queues.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::control::ControlTask;
use super::filter::ReceiveFilter;
use super::metrics::Metrics;
use super::offload::Offloads;
use super::receive::{Packet, Receiver};
use super::tap::{TapQueue, TapWatch};
use super::transmit::Transmitter;
use super::vhost::VhostTask;
use crate::limits::Limiter;
use crate::pci::lock;
use crate::virtio::{DrainError, QueueTask, VirtQueue, Wakeup};

const RECEIVE_DOORBELL: u32 = 0;
const TRANSMIT_DOORBELL: u32 = 1;
const TAP: u32 = 2;
const RECEIVE_TIMER: u32 = 3;
const TRANSMIT_TIMER: u32 = 4;
const NUDGE: u32 = 5;

/// Packets moved in one direction before other tasks of the worker have their turn.
pub(super) const BATCH: usize = 64;
/// Bytes of theirs.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// When to ask a TAP again that could not be read.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// Why one direction stops for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is nothing to do.
    Idle,
    /// There may be more to do, after others had their turn.
    More,
    /// The guest has no buffers for what comes.
    NoBuffers,
    /// The TAP takes nothing now.
    Blocked,
    /// Until this much time has passed.
    Wait(Duration),
}

/// What the tasks of one interface share with it.
pub(super) struct Shared {
    /// One for each pair.
    pub(super) taps: Vec<TapQueue>,
    /// Has the task of each pair look whether it is active, and what there is to do.
    pub(super) nudges: Vec<EventFd>,
    /// Taken as it is for each batch, and exchanged as a whole.
    pub(super) filter: Mutex<Arc<ReceiveFilter>>,
    /// Pairs that carry packets, as the driver wants it.
    pub(super) active: AtomicU16,
    /// The driver is asked to announce its addresses.
    pub(super) announce: AtomicBool,
    pub(super) receive_limiter: Option<Mutex<Limiter>>,
    pub(super) transmit_limiter: Option<Mutex<Limiter>>,
    /// There is vhost, and it has not failed.
    pub(super) has_vhost: AtomicBool,
    pub(super) metrics: Metrics,
}

impl Shared {
    pub(super) fn filter(&self) -> Arc<ReceiveFilter> {
        Arc::clone(&lock(&self.filter))
    }

    pub(super) fn set_filter(&self, filter: ReceiveFilter) {
        *lock(&self.filter) = Arc::new(filter);
    }

    /// The TAP's queue of a pair that carries packets.
    pub(super) fn active_tap(&self, pair: u16) -> Option<&TapQueue> {
        let is_active = pair < self.active.load(Ordering::Acquire);
        self.taps.get(usize::from(pair)).filter(|_| is_active)
    }

    /// Has the TAP use the first `active` of its queues, and the tasks of these pairs. If it cannot, all stays.
    pub(super) fn set_active(&self, active: u16) -> io::Result<()> {
        let before = self.active.load(Ordering::Acquire);
        let result = self.switch(active);
        if result.is_err() {
            // If that fails as well, the TAP is gone, and there is nothing to attach to.
            let _ = self.switch(before);
        }
        self.nudge();
        result
    }

    /// Has every pair's task look at what there is to do.
    pub(super) fn nudge(&self) {
        for nudge in &self.nudges {
            // The only failure is a count of 2^64 - 1, at which it is nudged already.
            let _ = nudge.write(1);
        }
    }

    /// Attaches before it activates, and deactivates before it detaches: no task reads a queue that gets nothing.
    fn switch(&self, active: u16) -> io::Result<()> {
        let (used, unused) = self.taps.split_at(self.taps.len().min(active.into()));
        used.iter().try_for_each(|tap| tap.set_attached(true))?;
        self.active.store(active, Ordering::Release);
        unused.iter().try_for_each(|tap| tap.set_attached(false))
    }
}

/// What the driver settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) offloads: Offloads,
    /// A packet may take several buffers.
    pub(super) is_mergeable: bool,
    /// What most packets keep to.
    pub(super) mtu: u16,
}

/// What a pair has of the host's, made before the vmm is locked in.
pub(super) struct Lane {
    watch: TapWatch,
    receive_timer: TimerFd,
    transmit_timer: TimerFd,
    pub(super) packet: Packet,
}

impl Lane {
    pub(super) fn new(tap: &TapQueue) -> io::Result<Self> {
        let timer = || {
            let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
            TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)
        };
        Ok(Self {
            watch: TapWatch::new(tap)?,
            receive_timer: timer()?,
            transmit_timer: timer()?,
            packet: Packet::new(),
        })
    }
}

/// What wakes the task of a pair from elsewhere.
pub(super) fn nudge() -> io::Result<EventFd> {
    EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)
}

/// Serves one pair of queues.
pub struct PairTask {
    pair: u16,
    receiver: Receiver,
    transmitter: Transmitter,
    lane: Lane,
    shared: Arc<Shared>,
    /// Nothing is received before the timer.
    receive_waits: bool,
    /// Nothing is transmitted before the timer.
    transmit_waits: bool,
    /// Nothing is transmitted before the TAP has room.
    is_blocked: bool,
}

impl PairTask {
    pub(super) fn new(
        pair: u16,
        (receive, transmit): (VirtQueue, VirtQueue),
        lane: Lane,
        shared: Arc<Shared>,
        terms: Terms,
    ) -> Self {
        Self {
            pair,
            receiver: Receiver::new(receive, terms),
            transmitter: Transmitter::new(transmit),
            lane,
            shared,
            receive_waits: false,
            transmit_waits: false,
            is_blocked: false,
        }
    }

    /// Takes it apart. It is drained.
    pub(super) fn into_parts(self) -> (u16, Lane, [VirtQueue; 2]) {
        (self.pair, self.lane, [self.receiver.into_queue(), self.transmitter.into_queue()])
    }

    fn receive(&mut self) {
        let shared = Arc::clone(&self.shared);
        let outcome = match shared.active_tap(self.pair) {
            None => Outcome::NoBuffers,
            Some(_) if self.receive_waits => return,
            Some(tap) => self.receiver.run(tap, &mut self.lane.packet, &shared.filter(), &shared),
        };
        // A TAP with more frames wakes the task again by itself.
        let wants_frames = matches!(outcome, Outcome::Idle | Outcome::More);
        let watched = self.lane.watch.want_frames(wants_frames);
        match (outcome, watched) {
            (Outcome::Wait(wait), _) => self.receive_in(wait),
            (_, Err(_)) => self.receive_in(RETRY),
            _ => {}
        }
    }

    fn receive_in(&mut self, wait: Duration) {
        self.receive_waits = true;
        set(&self.lane.receive_timer, wait);
    }

    fn transmit(&mut self) {
        let shared = Arc::clone(&self.shared);
        let outcome = match shared.active_tap(self.pair) {
            None => Outcome::Idle,
            Some(_) if self.transmit_waits || self.is_blocked => return,
            Some(tap) => self.transmitter.run(tap, &shared),
        };
        self.is_blocked = outcome == Outcome::Blocked;
        let watched = self.lane.watch.want_room(self.is_blocked);
        match (outcome, watched) {
            (Outcome::Wait(wait), _) => self.transmit_in(wait),
            (Outcome::More, _) => self.transmitter.queue().ring_doorbell(),
            (_, Err(_)) => {
                self.is_blocked = false;
                self.transmit_in(RETRY);
            }
            _ => {}
        }
    }

    fn transmit_in(&mut self, wait: Duration) {
        self.transmit_waits = true;
        set(&self.lane.transmit_timer, wait);
    }
}

impl QueueTask for PairTask {
    fn wakeups(&self) -> Vec<Wakeup> {
        let lane = &self.lane;
        let nudge = self.shared.nudges.get(usize::from(self.pair));
        let doorbells = [
            (self.receiver.queue().doorbell(), RECEIVE_DOORBELL),
            (self.transmitter.queue().doorbell(), TRANSMIT_DOORBELL),
        ];
        let fds = [
            (lane.watch.as_raw_fd(), TAP),
            (lane.receive_timer.as_fd().as_raw_fd(), RECEIVE_TIMER),
            (lane.transmit_timer.as_fd().as_raw_fd(), TRANSMIT_TIMER),
        ];
        let nudge = nudge.map(|nudge| (nudge.as_raw_fd(), NUDGE));
        let doorbells = doorbells
            .into_iter()
            .map(|(doorbell, token)| Wakeup::when_written(doorbell.as_raw_fd(), token));
        let others = fds.into_iter().chain(nudge);
        doorbells.chain(others.map(|(fd, token)| Wakeup::while_readable(fd, token))).collect()
    }

    fn on_event(&mut self, token: u32) {
        match token {
            RECEIVE_DOORBELL => self.receive(),
            TRANSMIT_DOORBELL => self.transmit(),
            // A frame, or room, or an error: which one shows when it is tried.
            TAP => {
                self.receive();
                if std::mem::take(&mut self.is_blocked) {
                    self.transmit();
                }
            }
            // A timer is not readable if its time has not come.
            RECEIVE_TIMER if self.lane.receive_timer.wait().is_ok() => {
                self.receive_waits = false;
                self.receive();
            }
            TRANSMIT_TIMER if self.lane.transmit_timer.wait().is_ok() => {
                self.transmit_waits = false;
                self.transmit();
            }
            NUDGE => {
                if let Some(nudge) = self.shared.nudges.get(usize::from(self.pair)) {
                    // It fails if nobody nudged.
                    let _ = nudge.read();
                }
                self.receive();
                self.transmit();
            }
            _ => {}
        }
    }

    /// A packet is moved from start to end while the task is called: nothing is in flight. Chains that were taken to
    /// receive into go back. What the TAP has stays there.
    fn drain(&mut self) -> Result<usize, DrainError> {
        let watch = &mut self.lane.watch;
        watch.want_frames(false).and(watch.want_room(false)).map_err(DrainError::Backend)?;
        self.receiver.give_back(&mut self.lane.packet);
        Ok(0)
    }

    /// The doorbells that it rings have it look at both directions.
    fn rearm(&mut self) {
        self.receive_waits = false;
        self.transmit_waits = false;
        self.is_blocked = false;
        self.receiver.queue_mut().rearm();
        self.transmitter.queue_mut().rearm();
    }
}

fn set(timer: &TimerFd, wait: Duration) {
    let wait = wait.max(Duration::from_nanos(1));
    let once = Expiration::OneShot(TimeSpec::from_duration(wait));
    // The only failures are a bad descriptor and a bad time.
    let _ = timer.set(once, TimerSetTimeFlags::empty());
}

/// Serves queues of an interface.
pub enum NetTask {
    /// That carry packets.
    Pair(Box<PairTask>),
    /// That carry packets, which vhost moves.
    Vhost(Box<VhostTask>),
    /// That carries commands.
    Control(ControlTask),
}

impl NetTask {
    fn task(&mut self) -> &mut dyn QueueTask {
        match self {
            Self::Pair(task) => &mut **task,
            Self::Vhost(task) => &mut **task,
            Self::Control(task) => task,
        }
    }
}

impl QueueTask for NetTask {
    fn wakeups(&self) -> Vec<Wakeup> {
        match self {
            Self::Pair(task) => task.wakeups(),
            Self::Vhost(task) => task.wakeups(),
            Self::Control(task) => task.wakeups(),
        }
    }

    fn on_event(&mut self, token: u32) {
        self.task().on_event(token);
    }

    fn drain(&mut self) -> Result<usize, DrainError> {
        self.task().drain()
    }

    fn rearm(&mut self) {
        self.task().rearm();
    }
}
