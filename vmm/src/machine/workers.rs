//! I/O workers: threads that own the tasks of devices' queues.
//!
//! A task is always somebody's: a worker's while its device works, else the owner's on its way to or from the device.
//! A worker sleeps until a descriptor of one of its tasks is readable or the owner has an order. It waits for nothing else:
//! a task that is to be given back works on what it has in flight, beside all others, until that is done.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use corten_devices::virtio::{DrainError, QueueTask, Wakeup};
use thiserror::Error;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::sandbox::{self, ThreadKind};

/// How much longer than a drain's own deadline the owner waits for the worker's answer.
const ANSWER: Duration = Duration::from_secs(1);
/// Events taken at once.
const BATCH: usize = 16;
/// The owner's bell among a worker's descriptors: no task has this number.
const BELL: u64 = u64::MAX;

/// A task with the slot of the function it is of.
pub(super) struct Assigned {
    pub(super) slot: u8,
    pub(super) task: Box<dyn QueueTask>,
}

/// Why tasks do not come back. They work on.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// There is no thread.
    #[error("cannot start an I/O thread")]
    Thread(#[source] io::Error),
    /// The device in this slot did not finish.
    #[error("the device in PCI slot {slot} did not finish its requests")]
    Drain {
        /// Device number on bus 0.
        slot: u8,
        /// Why.
        #[source]
        source: DrainError,
    },
    /// The thread does not answer.
    #[error("the I/O thread {0} does not answer")]
    Silent(usize),
}

type Drained = Result<Vec<Assigned>, WorkerError>;

enum Order {
    /// Serve these, from now on.
    Take(Vec<Assigned>),
    /// Drain the tasks of one slot, or all, and give them back.
    GiveBack { slot: Option<u8>, deadline: Instant, answer: Arc<Answer> },
}

/// All I/O workers of a machine.
pub(super) struct Workers {
    workers: Vec<Worker>,
    /// Who gets the next task.
    next: usize,
}

struct Worker {
    orders: Sender<Order>,
    bell: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads.
    pub(super) fn start(count: usize) -> Result<Self, WorkerError> {
        Self::start_named((0..count).map(|index| format!("io-{index}")))
    }

    /// Starts a thread of each name.
    pub(super) fn start_named(
        names: impl IntoIterator<Item = String>,
    ) -> Result<Self, WorkerError> {
        let workers = names.into_iter().map(Worker::start).collect::<io::Result<_>>();
        Ok(Self { workers: workers.map_err(WorkerError::Thread)?, next: 0 })
    }

    /// Gives tasks to workers, one after the other in turn.
    pub(super) fn take(&mut self, tasks: Vec<Assigned>) {
        for task in tasks {
            self.next = (self.next + 1) % self.workers.len().max(1);
            if let Some(worker) = self.workers.get(self.next) {
                worker.order(Order::Take(vec![task]));
            }
        }
    }

    /// Takes tasks back, drained: those of one slot, or all. If not all can be had, all work on.
    pub(super) fn give_back(&self, slot: Option<u8>, limit: Duration) -> Drained {
        let deadline = Instant::now() + limit;
        let ask = |worker: &Worker| {
            let answer = Arc::new(Answer::default());
            worker.order(Order::GiveBack { slot, deadline, answer: Arc::clone(&answer) });
            answer
        };
        let asked: Vec<Arc<Answer>> = self.workers.iter().map(ask).collect();
        let mut back = Vec::new();
        let mut failure = None;
        for (index, (worker, answer)) in self.workers.iter().zip(asked).enumerate() {
            match answer.wait(deadline + ANSWER) {
                Some(Ok(tasks)) => back.push((worker, tasks)),
                Some(Err(error)) => failure = Some(error),
                None => failure = Some(WorkerError::Silent(index)),
            }
        }
        if let Some(failure) = failure {
            back.into_iter().for_each(|(worker, tasks)| worker.order(Order::Take(tasks)));
            return Err(failure);
        }
        Ok(back.into_iter().flat_map(|(_, tasks)| tasks).collect())
    }
}

/// The place for an answer. Tasks in it are always somebody's: an owner that has given up waiting leaves them to the
/// worker, in whatever order the two come.
#[derive(Default)]
struct Answer {
    state: Mutex<Waiting>,
    is_there: Condvar,
}

#[derive(Default)]
enum Waiting {
    #[default]
    Yes,
    Answered(Drained),
    GivenUp,
}

impl Answer {
    /// Waits for it, and gives up at the deadline.
    fn wait(&self, deadline: Instant) -> Option<Drained> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Waiting::Answered(drained) = std::mem::replace(&mut *state, Waiting::Yes) {
                return Some(drained);
            }
            if left.is_zero() {
                *state = Waiting::GivenUp;
                return None;
            }
            let waited = self.is_there.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives it, or gets it back if nobody waits any more.
    fn give(&self, drained: Drained) -> Result<(), Drained> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Waiting::GivenUp = *state {
            return Err(drained);
        }
        *state = Waiting::Answered(drained);
        self.is_there.notify_one();
        Ok(())
    }
}

impl Worker {
    fn start(name: String) -> io::Result<Self> {
        let bell = Arc::new(EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?);
        let epoll = Epoll::new()?;
        let event = EpollEvent::new(EventSet::IN, BELL);
        epoll.ctl(ControlOperation::Add, bell.as_raw_fd(), event)?;
        let (orders, received) = channel();
        let (bell_heard, tasks) = (Arc::clone(&bell), Vec::new());
        let runner = Runner { epoll, bell: bell_heard, orders: received, tasks, leaving: None };
        let thread = Builder::new().name(name).spawn(move || runner.serve())?;
        Ok(Self { orders, bell, thread: Some(thread) })
    }

    fn order(&self, order: Order) {
        // A thread that is gone answers nothing, which whoever waits for it sees.
        let _ = self.orders.send(order);
        self.ring();
    }

    fn ring(&self) {
        // The only failure is a count of 2^64 - 1, at which it rings already.
        let _ = self.bell.write(1);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Without orders the thread ends.
        let (closed, _) = channel();
        self.orders = closed;
        self.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Runner {
    epoll: Epoll,
    bell: Arc<EventFd>,
    orders: Receiver<Order>,
    /// A task keeps its place, which is its number among the descriptors.
    tasks: Vec<Option<Assigned>>,
    /// What the owner waits for.
    leaving: Option<Leaving>,
}

/// Tasks on their way to the owner.
struct Leaving {
    /// Of one function, or of all.
    slot: Option<u8>,
    deadline: Instant,
    answer: Arc<Answer>,
    /// Those that are at rest. Nothing wakes them.
    back: Vec<Assigned>,
}

impl Leaving {
    fn wants(&self, assigned: &Assigned) -> bool {
        self.slot.is_none_or(|slot| slot == assigned.slot)
    }
}

impl Runner {
    fn serve(mut self) {
        sandbox::enter(ThreadKind::Io);
        let mut events = [EpollEvent::default(); BATCH];
        loop {
            // Interrupted, by a debugger for one: nothing was lost.
            let count = self.epoll.wait(self.patience(), &mut events).unwrap_or(0);
            let (mut ordered, ready) = (false, &events[..count]);
            for event in ready {
                match event.data() {
                    BELL => ordered = true,
                    number => self.wake(number),
                }
            }
            if ordered && !self.obey() {
                return;
            }
            self.go_on_leaving();
        }
    }

    /// Milliseconds to sleep at most, rounded up so as not to spin in the last one.
    fn patience(&self) -> i32 {
        let left = |leaving: &Leaving| leaving.deadline.saturating_duration_since(Instant::now());
        self.leaving.as_ref().map_or(-1, |leaving| {
            i32::try_from(left(leaving).as_millis()).unwrap_or(i32::MAX - 1) + 1
        })
    }

    fn wake(&mut self, number: u64) {
        let [place, token] = split(number);
        let place = usize::try_from(place).ok().and_then(|place| self.tasks.get_mut(place));
        // It is there: orders, which take tasks away, are obeyed after the batch.
        if let Some(Some(assigned)) = place {
            assigned.task.on_event(token);
        }
    }

    /// False if nobody will order anything any more.
    fn obey(&mut self) -> bool {
        // Read before the orders are: what comes later rings anew.
        let _ = self.bell.read();
        loop {
            match self.orders.try_recv() {
                Ok(Order::Take(tasks)) => tasks.into_iter().for_each(|task| self.take(task)),
                Ok(Order::GiveBack { slot, deadline, answer }) => {
                    // An owner that asks anew does not wait for the last answer any more.
                    if let Some(last) = self.leaving.take() {
                        self.stay(last.slot, last.back);
                    }
                    let back = Vec::new();
                    self.leaving = Some(Leaving { slot, deadline, answer, back });
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn take(&mut self, mut assigned: Assigned) {
        let place = match self.tasks.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.tasks.push(None);
                self.tasks.len() - 1
            }
        };
        for Wakeup { fd, token, is_edge } in assigned.task.wakeups() {
            let edge = if is_edge { EventSet::EDGE_TRIGGERED } else { EventSet::empty() };
            let event = EpollEvent::new(EventSet::IN | edge, join(place, token));
            self.listen(ControlOperation::Add, fd, event);
        }
        assigned.task.rearm();
        self.tasks[place] = Some(assigned);
    }

    /// Answers the owner once all that it wants is at rest, or cannot be in time.
    fn go_on_leaving(&mut self) {
        let Some(mut leaving) = self.leaving.take() else { return };
        let outcome = match self.drain(&mut leaving) {
            Ok(None) => Ok(()),
            Ok(Some(_)) if Instant::now() < leaving.deadline => {
                self.leaving = Some(leaving);
                return;
            }
            Ok(Some(unfinished)) | Err(unfinished) => Err(unfinished),
        };
        let Leaving { slot, answer, back, .. } = leaving;
        match outcome {
            Ok(()) => {
                // An owner that gave up waiting gets nothing: the tasks work on.
                if let Err(Ok(tasks)) = answer.give(Ok(back)) {
                    tasks.into_iter().for_each(|task| self.take(task));
                }
            }
            Err(error) => {
                self.stay(slot, back);
                let _ = answer.give(Err(error));
            }
        }
    }

    /// Takes aside whatever is at rest of what is wanted; gives one that is not.
    fn drain(&mut self, leaving: &mut Leaving) -> Result<Option<WorkerError>, WorkerError> {
        let mut unfinished = None;
        for place in 0..self.tasks.len() {
            let Some(assigned) = self.tasks[place].as_mut().filter(|task| leaving.wants(task))
            else {
                continue;
            };
            let slot = assigned.slot;
            let drained = assigned.task.drain();
            match drained.map_err(|source| WorkerError::Drain { slot, source })? {
                0 => leaving.back.extend(self.give_up(place)),
                in_flight => {
                    let source = DrainError::Deadline { in_flight };
                    unfinished = Some(WorkerError::Drain { slot, source });
                }
            }
        }
        Ok(unfinished)
    }

    /// Listens no more to the task in this place.
    fn give_up(&mut self, place: usize) -> Option<Assigned> {
        let assigned = self.tasks[place].take();
        let wakeups = assigned.iter().flat_map(|assigned| assigned.task.wakeups());
        for Wakeup { fd, .. } in wakeups {
            self.listen(ControlOperation::Delete, fd, EpollEvent::default());
        }
        assigned
    }

    /// Tasks that were to leave work on.
    fn stay(&mut self, slot: Option<u8>, back: Vec<Assigned>) {
        let wanted = |assigned: &&mut Assigned| slot.is_none_or(|slot| slot == assigned.slot);
        self.tasks.iter_mut().flatten().filter(wanted).for_each(|assigned| assigned.task.rearm());
        back.into_iter().for_each(|task| self.take(task));
    }

    fn listen(&self, operation: ControlOperation, fd: RawFd, event: EpollEvent) {
        let outcome = self.epoll.ctl(operation, fd, event);
        // Only for a descriptor that is closed or already there, or without memory: a queue would be dead.
        assert!(outcome.is_ok(), "a task's descriptor cannot be listened to: {outcome:?}");
    }
}

fn join(place: usize, token: u32) -> u64 {
    (place as u64) << 32 | u64::from(token)
}

fn split(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);
    const MOMENT: Duration = Duration::from_millis(20);

    /// Says what was done to it.
    struct Spy {
        bell: Arc<EventFd>,
        /// It does not read its bell.
        is_edge: bool,
        stuck: Arc<AtomicBool>,
        log: Sender<&'static str>,
    }

    impl QueueTask for Spy {
        fn wakeups(&self) -> Vec<Wakeup> {
            let wakeup = if self.is_edge { Wakeup::when_written } else { Wakeup::while_readable };
            vec![wakeup(self.bell.as_raw_fd(), 7)]
        }

        fn on_event(&mut self, token: u32) {
            assert_eq!(token, 7);
            if !self.is_edge {
                let _ = self.bell.read();
            }
            let _ = self.log.send("event");
        }

        fn drain(&mut self) -> Result<usize, DrainError> {
            let _ = self.log.send("drain");
            Ok(usize::from(self.stuck.load(Ordering::Relaxed)))
        }

        fn rearm(&mut self) {
            let _ = self.log.send("rearm");
        }
    }

    struct Rig {
        bell: Arc<EventFd>,
        stuck: Arc<AtomicBool>,
        log: Mutex<Receiver<&'static str>>,
    }

    impl Rig {
        fn new() -> (Self, Box<dyn QueueTask>) {
            Self::of(false)
        }

        fn of(is_edge: bool) -> (Self, Box<dyn QueueTask>) {
            let bell = Arc::new(EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK).unwrap());
            let stuck = Arc::new(AtomicBool::new(false));
            let (log, received) = channel();
            let spy = Spy { bell: Arc::clone(&bell), is_edge, stuck: Arc::clone(&stuck), log };
            (Self { bell, stuck, log: Mutex::new(received) }, Box::new(spy))
        }

        fn expect(&self, what: &str) {
            assert_eq!(self.log.lock().unwrap().recv_timeout(SOON).unwrap(), what);
        }

        /// The next thing done that is not `passed`.
        fn expect_after(&self, passed: &str, what: &str) {
            let log = self.log.lock().unwrap();
            let next =
                std::iter::from_fn(|| log.recv_timeout(SOON).ok()).find(|done| *done != passed);
            assert_eq!(next, Some(what));
        }
    }

    #[test]
    fn task_is_armed_first_woken_by_its_bell_and_given_back_drained() {
        let mut workers = Workers::start(2).unwrap();
        let (rig, task) = Rig::new();
        workers.take(vec![Assigned { slot: 3, task }]);
        rig.expect("rearm");
        rig.bell.write(1).unwrap();
        rig.expect("event");
        assert!(workers.give_back(Some(4), SOON).unwrap().is_empty());
        let back = workers.give_back(Some(3), SOON).unwrap();
        assert_eq!(back.len(), 1);
        rig.expect("drain");
        // It has no ears any more.
        rig.bell.write(1).unwrap();
        workers.take(back);
        rig.expect("rearm");
        rig.expect("event");
    }

    #[test]
    fn bell_that_nobody_reads_wakes_once_for_each_ring() {
        let mut workers = Workers::start(1).unwrap();
        let (rig, task) = Rig::of(true);
        workers.take(vec![Assigned { slot: 3, task }]);
        rig.expect("rearm");
        for _ in 0..3 {
            rig.bell.write(1).unwrap();
            rig.expect("event");
        }
        let back = workers.give_back(None, SOON).unwrap();
        rig.expect("drain");
        // Whoever takes it looks once, as it cannot know what was rung for.
        workers.take(back);
        rig.expect("rearm");
        rig.expect("event");
        workers.give_back(None, SOON).unwrap();
        rig.expect("drain");
    }

    #[test]
    fn failed_drain_leaves_every_task_at_work() {
        let mut workers = Workers::start(2).unwrap();
        let (good, first) = Rig::new();
        let (bad, second) = Rig::new();
        bad.stuck.store(true, Ordering::Relaxed);
        workers.take(vec![Assigned { slot: 1, task: first }, Assigned { slot: 2, task: second }]);
        for rig in [&good, &bad] {
            rig.expect("rearm");
        }
        let Err(error) = workers.give_back(None, MOMENT) else { panic!("it is stuck") };
        assert!(matches!(error, WorkerError::Drain { slot: 2, .. }), "{error}");
        for rig in [&good, &bad] {
            rig.expect("drain");
            rig.expect_after("drain", "rearm");
            rig.bell.write(1).unwrap();
            rig.expect("event");
        }
        bad.stuck.store(false, Ordering::Relaxed);
        assert_eq!(workers.give_back(None, SOON).unwrap().len(), 2);
    }

    #[test]
    fn task_that_takes_long_to_drain_holds_up_no_other_and_is_given_back_when_it_is_done() {
        let mut workers = Workers::start(1).unwrap();
        let (slow, first) = Rig::new();
        let (other, second) = Rig::new();
        slow.stuck.store(true, Ordering::Relaxed);
        workers.take(vec![Assigned { slot: 1, task: first }, Assigned { slot: 2, task: second }]);
        for rig in [&slow, &other] {
            rig.expect("rearm");
        }
        std::thread::scope(|scope| {
            let back = scope.spawn(|| workers.give_back(Some(1), SOON).unwrap());
            slow.expect("drain");
            for _ in 0..3 {
                other.bell.write(1).unwrap();
                other.expect("event");
            }
            slow.bell.write(1).unwrap();
            slow.expect_after("drain", "event");
            slow.stuck.store(false, Ordering::Relaxed);
            // Only now: a drain that goes on from the last event may see it done, and it would be woken no more.
            slow.bell.write(1).unwrap();
            assert_eq!(back.join().unwrap().len(), 1);
        });
    }

    #[test]
    fn numbers_of_descriptors_come_apart_as_they_were_joined() {
        assert_eq!(split(join(5, u32::MAX)), [5, u32::MAX]);
        assert_eq!(split(join(0, 0)), [0, 0]);
    }
}
