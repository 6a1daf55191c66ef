//! Where a queue's transfers are done: by the kernel's ring or by a few threads, with the same result.
//!
//! What a transfer consists of, and what each answer of the kernel means for it, is in [`Transfer`] alone. A backend
//! only brings its steps to the kernel and the answers back.

mod buffers;
mod pool;
mod ring;
pub(super) mod sys;
mod transfer;

use std::fs::File;
use std::io;

use libc::c_int;
use vmm_sys_util::eventfd::EventFd;

pub(super) use self::buffers::{AlignedBuffer, Alignment, GuestBuffers};
pub(super) use self::pool::Pool;
pub use self::pool::ThreadStart;
#[cfg(feature = "fuzz")]
pub(super) use self::pool::run;
pub(super) use self::ring::RingBackend;
pub(super) use self::transfer::{Step, Transfer};

/// Does transfers, in any order. Belongs to one queue, is used by one thread at a time.
pub(super) trait Backend: Send + 'static {
    /// Readable when there are [`Self::completions`].
    fn completed(&self) -> &EventFd;

    /// Takes a transfer, and all memory that belongs to it until it is done. It may wait for [`Self::kick`].
    fn submit(&mut self, transfer: Transfer);

    /// Starts what was submitted. After an error it has not all been started, and this is to be called again.
    fn kick(&mut self) -> io::Result<()>;

    /// Adds what has been done since the last call. The descriptor stays as it is: whoever makes it unreadable looks here
    /// once more afterwards.
    fn completions(&mut self, done: &mut Vec<Completion>) -> io::Result<()>;

    /// Transfers that were submitted and not among the completions yet.
    fn in_flight(&self) -> usize;
}

/// What the threads of a pool do steps on: a file, or something that is like one.
pub(super) trait Medium: Send + Sync {
    /// Does one step, or the first part of it: a number of bytes, or an error number.
    fn call(&self, step: &Step<'_>) -> Result<usize, c_int>;
}

impl Medium for File {
    fn call(&self, step: &Step<'_>) -> Result<usize, c_int> {
        sys::call(self, step)
    }
}

/// A transfer that is done.
#[derive(Debug)]
pub(super) struct Completion {
    /// That of the transfer.
    pub(super) token: u64,
    pub(super) result: io::Result<()>,
}

/// Which backend a disk has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// A ring if one can be made, else threads.
    #[default]
    Auto,
    /// A restricted io_uring for each queue.
    Ring,
    /// A few threads for all queues.
    Pool,
}
