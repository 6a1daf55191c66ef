//! Virtio entropy device (virtio 1.2, section 5.4): random bytes of the host's for the guest.
//!
//! ```text
//!   chain ─▶ buffers ─▶ limiter ── may pass ──▶ getrandom(2) ─▶ the first of the buffers' bytes ─▶ used
//!                          └────── not yet ───▶ timer, the chain stays where it is
//! ```
//!
//! **How much.** A request gets at most 4 KiB, whatever room it has: a driver is told how many bytes it got and asks
//! again. A wake-up serves at most 64 requests, then others of its worker have their turn. How much is asked for in a
//! second is the guest's choice, and each byte costs the host time: the owner sets [limits](crate::RateLimits).
//!
//! **Where it comes from.** The kernel's generator, by a call that does not wait. A host that has just booted may have
//! nothing to give, until its generator is seeded: the request waits then, and is tried again every second.
//!
//! **Guests that break the rules.** Chains with a buffer that is not the device's to write, that is not memory, or without
//! a byte of room come back empty and are counted.
//!
//! **To put it into a machine**: [`Rng::new`] before lock-in. There is no handle to keep; [`Rng::counters`] is asked by
//! [`VirtioPci::device`](crate::virtio::VirtioPci::device).
//!
//! **System calls.** When made, before lock-in: timerfd_create. At work: getrandom, read, write, timerfd_settime,
//! clock_gettime. It is the call itself and not the C library's function: the latter may map memory of its own.
//!
//! **Pause** waits for nothing: no request outlives the wake-up that took it. **Saved** is nothing but the transport's part:
//! the device has no memory of its guest. The levels of rate limits are not saved.

mod device;
mod metrics;
mod source;
mod worker;

pub use self::device::Rng;
pub use self::metrics::RngCounters;
pub use self::worker::RngTask;

#[cfg(test)]
mod tests;
