//! Fills guest memory in while its guest runs.
//!
//! Whoever touches a page that is missing waits for this thread, be it a vCPU, KVM on its behalf, or a device. Faults come
//! first; between them it fills in all else, from the first resume on and not before: what is done until then does not
//! depend on how much memory there is. It never touches guest memory by its mapping, which would be to wait for itself.
//!
//! A chunk that cannot be had, being damaged for instance, is the end of the machine. Who waits for it waits on: with
//! anything else in its place, the guest would go on with garbage.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use corten_link::{FillCounters, FillWork};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use thiserror::Error;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::source::{CHUNK, CHUNK_BYTES, PageSource, Present, SourceError};
use super::userfault::Userfault;
use super::{Mapping, PAGE};
use crate::sandbox::{self, ThreadKind};
use crate::say::say;

/// How long a machine whose memory cannot be filled in may take to end: longer than all that its owner waits for with a
/// deadline. The owner may be the one who waits for a page.
const END_LIMIT: Duration = Duration::from_secs(90);

/// Why memory cannot be filled in.
#[derive(Debug, Error)]
pub enum PagerError {
    /// The userfaultfd.
    #[error("cannot {what} by userfaultfd")]
    Userfault {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No thread, or nothing to wake it by.
    #[error("cannot start the pager")]
    Start(#[source] io::Error),
    /// A fault that is none of ours.
    #[error("a fault at {0:#x} is not in guest memory")]
    Elsewhere(u64),
    /// What is to be filled in.
    #[error("guest memory cannot be read")]
    Source(#[source] SourceError),
    /// It failed earlier.
    #[error("guest memory cannot be filled in: {0}")]
    Failed(String),
    /// Not all is there yet.
    #[error("guest memory is still being filled in after {0:?}: try again")]
    Filling(Duration),
}

fn userfault(what: &'static str) -> impl Fn(io::Error) -> PagerError {
    move |source| PagerError::Userfault { what, source }
}

/// Who is told if memory cannot be filled in, and why.
pub type Report = Box<dyn FnOnce(String) + Send>;

/// The thread, as its machine's owner sees it.
pub(super) struct Pager {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    bell: EventFd,
    /// Not all of memory is there. For devices.
    filling: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    wanted: Wanted,
    /// Chunks that somebody wants before all others.
    asked: VecDeque<u64>,
    outcome: Outcome,
    work: FillWork,
    before_run: Option<FillWork>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Wanted {
    /// What is waited for.
    #[default]
    Faults,
    /// All of it.
    All,
    /// Nothing any more.
    Nothing,
}

#[derive(Default)]
enum Outcome {
    #[default]
    Working,
    Done,
    Failed(String),
}

/// What the thread does next.
enum Job {
    Chunk(u64),
    Fill,
    Wait,
    End,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn want(&self, wanted: Wanted) {
        let mut state = self.state();
        if state.wanted != Wanted::Nothing {
            state.wanted = wanted;
        }
        drop(state);
        self.changed.notify_all();
        self.ring();
    }

    fn ring(&self) {
        // It cannot be full: nobody rings that often.
        let _ = self.bell.write(1);
    }

    /// Waits until `over` says what came of it, or the time is over.
    fn wait<T>(&self, limit: Duration, over: impl Fn(&State) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        loop {
            if let Some(outcome) = over(&state) {
                return Some(outcome);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Pager {
    /// Has `source` fill in the memory behind `mappings`, which follow each other in the memfd and are empty. `device` is an
    /// open /dev/userfaultfd. `filling` is set until all is there.
    pub(super) fn start(
        device: BorrowedFd<'_>,
        mappings: &[Mapping],
        source: Box<dyn PageSource>,
        filling: &Arc<AtomicBool>,
        report: Report,
    ) -> Result<Self, PagerError> {
        let faults = Userfault::new(device).map_err(userfault("get faults"))?;
        for mapping in mappings {
            // A huge page in place of a missing one would be there without what belongs to it.
            mapping.advise_huge_pages(false);
            let length = mapping.size as u64;
            faults.register(mapping.address(), length).map_err(userfault("watch guest memory"))?;
        }
        filling.store(true, Ordering::Release);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            bell: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK).map_err(PagerError::Start)?,
            filling: Arc::clone(filling),
        });
        let size: u64 = mappings.iter().map(|mapping| mapping.size as u64).sum();
        let chunks = size.div_ceil(CHUNK);
        let words = usize::try_from(chunks.div_ceil(64)).unwrap_or_default();
        let filler = Filler {
            faults,
            mappings: mappings.to_vec(),
            source,
            size,
            next: 0,
            is_placed: vec![0; words],
            buffer: vec![0; CHUNK_BYTES],
            shared: Arc::clone(&shared),
        };
        let thread = Builder::new().name("pager".into()).spawn(move || filler.run(report));
        Ok(Self { shared, thread: Some(thread.map_err(PagerError::Start)?) })
    }

    /// The guest is about to run: from now on all is filled in.
    pub(super) fn begin(&self) -> Result<(), PagerError> {
        let mut state = self.shared.state();
        let work = state.work;
        state.before_run.get_or_insert(work);
        drop(state);
        self.shared.want(Wanted::All);
        self.check()
    }

    /// Whether it has failed.
    pub(super) fn check(&self) -> Result<(), PagerError> {
        match &self.shared.state().outcome {
            Outcome::Failed(why) => Err(PagerError::Failed(why.clone())),
            Outcome::Working | Outcome::Done => Ok(()),
        }
    }

    /// Waits until all is there.
    pub(super) fn finish(&self, limit: Duration) -> Result<(), PagerError> {
        self.shared.want(Wanted::All);
        let over = self.shared.wait(limit, |state| match &state.outcome {
            Outcome::Working => None,
            Outcome::Done => Some(Ok(())),
            Outcome::Failed(why) => Some(Err(PagerError::Failed(why.clone()))),
        });
        over.unwrap_or(Err(PagerError::Filling(limit)))
    }

    /// Waits until the chunk with this byte of the memfd is there. Then it can be touched without waiting for anybody.
    pub(super) fn bring_in(&self, offset: u64, limit: Duration) -> Result<(), PagerError> {
        let chunk = offset / CHUNK;
        self.shared.state().asked.push_back(chunk);
        self.shared.ring();
        let over = self.shared.wait(limit, |state| match &state.outcome {
            Outcome::Failed(why) => Some(Err(PagerError::Failed(why.clone()))),
            Outcome::Done => Some(Ok(())),
            Outcome::Working => (!state.asked.contains(&chunk)).then_some(Ok(())),
        });
        over.unwrap_or(Err(PagerError::Filling(limit)))
    }

    pub(super) fn counters(&self) -> FillCounters {
        let state = self.shared.state();
        FillCounters {
            filling: self.shared.filling.load(Ordering::Acquire),
            all: state.work,
            before_run: state.before_run.unwrap_or(state.work),
        }
    }

    /// Ends it. What is not there yet reads as zeros from now on: the memory is about to be emptied, or nobody's any more.
    pub(super) fn stop(&mut self) {
        self.shared.want(Wanted::Nothing);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Pager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pager").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

/// What the thread has.
struct Filler {
    faults: Userfault,
    mappings: Vec<Mapping>,
    source: Box<dyn PageSource>,
    size: u64,
    /// Chunks before this one are in place.
    next: u64,
    is_placed: Vec<u64>,
    buffer: Vec<u8>,
    shared: Arc<Shared>,
}

impl Filler {
    fn run(mut self, report: Report) {
        sandbox::enter(ThreadKind::Pager);
        match self.work() {
            Ok(()) => self.end(),
            Err(error) => self.fail(&error, report),
        }
    }

    fn work(&mut self) -> Result<(), PagerError> {
        loop {
            while let Some(address) = self.faults.next_fault().map_err(userfault("get faults"))? {
                self.answer(address)?;
            }
            match self.next_job() {
                Job::Chunk(number) => {
                    self.place(number)?;
                    self.shared.state().asked.retain(|asked| *asked != number);
                    self.shared.changed.notify_all();
                }
                Job::Fill if self.next == self.chunks() => return Ok(()),
                Job::Fill => {
                    self.place(self.next)?;
                    self.next += 1;
                }
                Job::Wait => self.wait()?,
                Job::End => return Ok(()),
            }
        }
    }

    fn next_job(&self) -> Job {
        let state = self.shared.state();
        match (state.wanted, state.asked.front()) {
            (Wanted::Nothing, _) => Job::End,
            (_, Some(number)) => Job::Chunk(*number),
            (Wanted::All, None) => Job::Fill,
            (Wanted::Faults, None) => Job::Wait,
        }
    }

    fn wait(&self) -> Result<(), PagerError> {
        // SAFETY: the eventfd stays open as long as the borrow of it lasts.
        let bell = unsafe { BorrowedFd::borrow_raw(self.shared.bell.as_raw_fd()) };
        let mut polled = [
            PollFd::new(self.faults.as_fd(), PollFlags::POLLIN),
            PollFd::new(bell, PollFlags::POLLIN),
        ];
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(userfault("wait for faults")(error.into())),
        }
        // Nothing to read is fine: a fault came.
        let _ = self.shared.bell.read();
        Ok(())
    }

    fn chunks(&self) -> u64 {
        self.size.div_ceil(CHUNK)
    }

    /// Somebody waits for the page at this address of ours.
    fn answer(&mut self, address: u64) -> Result<(), PagerError> {
        let page = address / PAGE * PAGE;
        let offset = self.offset_of(page).ok_or(PagerError::Elsewhere(address))?;
        self.count(|work| work.faults += 1);
        let number = offset / CHUNK;
        let is_new = !self.is_placed(number);
        let present = self.place(number)?;
        if is_new && present.has(offset % CHUNK / PAGE) {
            // Copying it woke whoever waited.
            return Ok(());
        }
        // Nothing is in it, or it came while the fault was on its way.
        // Counted first: who waits may look at the numbers as soon as it is there.
        self.count(|work| work.zero_pages += 1);
        if !self.faults.zero(page).map_err(userfault("place a page"))? {
            self.count(|work| work.zero_pages -= 1);
        }
        Ok(())
    }

    fn offset_of(&self, address: u64) -> Option<u64> {
        let mut before = 0;
        for mapping in &self.mappings {
            let at = address.checked_sub(mapping.address());
            if let Some(at) = at.filter(|at| *at < mapping.size as u64) {
                return Some(before + at);
            }
            before += mapping.size as u64;
        }
        None
    }

    fn is_placed(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok().and_then(|word| self.is_placed.get(word));
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Puts a chunk in place, once. Pages of zeros stay missing until somebody wants them.
    fn place(&mut self, number: u64) -> Result<Present, PagerError> {
        let start = number.saturating_mul(CHUNK);
        if start >= self.size || self.is_placed(number) {
            return Ok(Present::default());
        }
        let length = usize::try_from((self.size - start).min(CHUNK)).unwrap_or_default();
        let read = self.source.chunk(number, &mut self.buffer[..length]);
        let bytes_read = self.source.bytes_read();
        self.count(|work| work.bytes_read = bytes_read);
        let present = read.map_err(PagerError::Source)?;
        self.count(|work| work.pages += present.count());
        for run in present.runs().map(|run| run.start..run.end.min(length)) {
            self.copy(start + run.start as u64, &self.buffer[run])?;
        }
        let word = usize::try_from(number / 64).ok();
        if let Some(word) = word.and_then(|word| self.is_placed.get_mut(word)) {
            *word |= 1 << (number % 64);
        }
        Ok(present)
    }

    /// Copies pages to where this part of the memfd is mapped, which may be in two mappings.
    fn copy(&self, offset: u64, pages: &[u8]) -> Result<(), PagerError> {
        let (mut before, end) = (0, offset + pages.len() as u64);
        for mapping in &self.mappings {
            let after = before + mapping.size as u64;
            let (from, to) = (offset.max(before), end.min(after));
            if from < to {
                let part = |at: u64| usize::try_from(at - offset).unwrap_or_default();
                let pages = &pages[part(from)..part(to)];
                let address = mapping.address() + (from - before);
                self.faults.copy(address, pages).map_err(userfault("place a page"))?;
            }
            before = after;
        }
        Ok(())
    }

    fn count(&self, change: impl FnOnce(&mut FillWork)) {
        change(&mut self.shared.state().work);
    }

    fn end(self) {
        let Self { faults, mappings, shared, .. } = self;
        // Closing it takes the watch off all ranges.
        drop(faults);
        mappings.iter().for_each(|mapping| mapping.advise_huge_pages(true));
        shared.filling.store(false, Ordering::Release);
        shared.state().outcome = Outcome::Done;
        shared.changed.notify_all();
    }

    fn fail(self, error: &PagerError, report: Report) {
        let why = crate::machine::chain(error);
        self.shared.state().outcome = Outcome::Failed(why.clone());
        self.shared.changed.notify_all();
        report(format!("guest memory cannot be filled in: {why}"));
        let over = |state: &State| (state.wanted == Wanted::Nothing).then_some(());
        if self.shared.wait(END_LIMIT, over).is_none() {
            // The owner waits for a page itself, and cannot hear of it.
            say(format_args!("guest memory cannot be filled in: {why}"));
            std::process::abort();
        }
    }
}
