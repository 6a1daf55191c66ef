//! Virtio balloon (virtio 1.2, section 5.5): memory that a guest can spare goes back to the host.
//!
//! ```text
//!   inflate: page numbers ─┐
//!   reporting: buffers ────┴▶ request ─▶ runs: sorted, merged ─▶ GuestRam::discard ─▶ hole in the memfd
//!   deflate: page numbers ──▶ counted
//!   statistics: tags ───────▶ request ─▶ kept for the owner; the chain is held, and given back to ask again
//! ```
//!
//! **Queues**: inflate, deflate, statistics, and reporting twice. By the specification reporting is queue 4, as 3 is
//! for hints; Linux leaves no gaps, so where hints are not offered it uses 3, or 2 if it took no statistics. Without
//! hints every queue behind those of the other features can only be for reporting, so each is served as such.
//!
//! **Features**: statistics always; DEFLATE_ON_OOM and reporting as wanted. Not MUST_TELL_HOST: a page that is touched
//! comes back by itself, so a driver, perhaps one short of memory, has nothing to wait for. Neither hints nor
//! PAGE_POISON: what was given back reads as zeros, which a guest that fills its free pages with something else could
//! not bear. Linux knows, and then does not report.
//!
//! **Guests that break the rules.** What cannot be (pages that are not memory, cut numbers, buffers of the wrong
//! direction, more than fits a request) is left out and counted, the rest is done, and every chain comes back. A guest
//! can give back any memory of its own, rings included: it reads zeros then, and so does the device. A wake-up takes
//! a bounded part of the work, and leaves the rest for the next.
//!
//! **Huge pages.** A hole in a part of one splits it on the host. That is right, as the memory is wanted back, but not
//! for free: it is counted.
//!
//! **Threads.** One task has all queues. **System calls.** When made, before lock-in: timerfd_create. At work: read,
//! write, timerfd_settime, fallocate, clock_gettime, and futex where the owner looks at the same moment. The owner:
//! timerfd_settime, to set the interval.
//!
//! **Pause** waits for nothing: no request outlives the wake-up that took it. **Saved** are what the owner wants, what
//! the driver said it gave, how often statistics are asked for, and the chain that is held for them. Not saved: which
//! pages are in the balloon (the guest knows, and their memory is holes), the last statistics, counters.

mod device;
mod layout;
mod metrics;
mod poll;
mod request;
mod run;
mod state;
mod statistics;
mod worker;

pub use self::device::{Balloon, BalloonConfig};
pub use self::layout::PAGE_SIZE;
pub use self::metrics::BalloonCounters;
pub use self::state::BalloonState;
pub use self::statistics::Statistics;
pub use self::worker::BalloonTask;

#[cfg(test)]
mod tests;
