//! Threads that do what a ring would, where there can be none.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::{Backend, Completion, Medium, Transfer};
use crate::pci::lock;

/// How many transfers of a disk are done at the same time.
const THREADS: usize = 4;

/// Called first by each thread that the devices start, to lock itself in for example.
pub type ThreadStart = Arc<dyn Fn() + Send + Sync>;

/// What the threads of one disk share. They end when the last queue is dropped; nobody waits for that, as one may be in
/// a system call that does not return.
struct Work {
    jobs: Mutex<Jobs>,
    more: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    ended: bool,
}

struct Job {
    transfer: Transfer,
    done: Arc<Done>,
}

/// What is done for one queue.
struct Done {
    completions: Mutex<Vec<Completion>>,
    eventfd: EventFd,
}

/// Ends the threads.
struct End(Arc<Work>);

impl Drop for End {
    fn drop(&mut self) {
        lock(&self.0.jobs).ended = true;
        self.0.more.notify_all();
    }
}

/// One queue's end of the threads.
pub(in crate::block) struct Pool {
    work: Arc<End>,
    done: Arc<Done>,
    in_flight: usize,
}

impl Pool {
    /// One for each queue of a disk, with threads that serve them all.
    pub(in crate::block) fn for_queues(
        medium: &Arc<dyn Medium>,
        queues: u16,
        start: Option<&ThreadStart>,
    ) -> io::Result<Vec<Self>> {
        let work = Arc::new(Work { jobs: Mutex::default(), more: Condvar::new() });
        let end = Arc::new(End(Arc::clone(&work)));
        for number in 0..THREADS {
            let (work, medium, start) = (Arc::clone(&work), Arc::clone(medium), start.cloned());
            thread::Builder::new().name(format!("disk-{number}")).spawn(move || {
                if let Some(start) = start {
                    start();
                }
                serve(&work, &*medium);
            })?;
        }
        let queue = |_| {
            let eventfd = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
            let done = Arc::new(Done { completions: Mutex::default(), eventfd });
            Ok(Self { work: Arc::clone(&end), done, in_flight: 0 })
        };
        (0..queues).map(queue).collect()
    }
}

impl Backend for Pool {
    fn completed(&self) -> &EventFd {
        &self.done.eventfd
    }

    fn submit(&mut self, transfer: Transfer) {
        self.in_flight += 1;
        let job = Job { transfer, done: Arc::clone(&self.done) };
        lock(&self.work.0.jobs).waiting.push_back(job);
        self.work.0.more.notify_one();
    }

    fn kick(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn completions(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let completions = std::mem::take(&mut *lock(&self.done.completions));
        self.in_flight -= completions.len();
        done.extend(completions);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

fn serve(work: &Work, medium: &dyn Medium) {
    loop {
        let mut jobs = lock(&work.jobs);
        let mut job = loop {
            if let Some(job) = jobs.waiting.pop_front() {
                break job;
            }
            if jobs.ended {
                return;
            }
            jobs = work.more.wait(jobs).unwrap_or_else(std::sync::PoisonError::into_inner);
        };
        drop(jobs);
        let result = run(medium, &mut job.transfer);
        let completion = Completion { token: job.transfer.token(), result };
        lock(&job.done.completions).push(completion);
        // The only failure is a count of 2^64 - 1, at which it is readable.
        let _ = job.done.eventfd.write(1);
    }
}

/// Does a transfer from its first step to its last.
pub(in crate::block) fn run(medium: &dyn Medium, transfer: &mut Transfer) -> io::Result<()> {
    while let Some(step) = transfer.step() {
        let answer = medium.call(&step);
        if let Some(result) = transfer.advance(answer) {
            return result;
        }
    }
    Ok(())
}
