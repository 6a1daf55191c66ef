//! What an entropy device counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one device since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RngCounters {
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes that the guest was given.
    pub bytes: u64,
    /// How often requests had to wait for a rate limit.
    pub throttled: u64,
    /// How often the host had nothing to give.
    pub failures: u64,
    /// Requests that the guest got wrong.
    pub bad_requests: u64,
}

/// The counters as the task shares them.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) requests: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) throttled: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) bad_requests: AtomicU64,
}

/// Adds one to a counter.
pub(super) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, number: u32) {
    counter.fetch_add(number.into(), Ordering::Relaxed);
}

impl Metrics {
    pub(super) fn counters(&self) -> RngCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RngCounters {
            requests: read(&self.requests),
            bytes: read(&self.bytes),
            throttled: read(&self.throttled),
            failures: read(&self.failures),
            bad_requests: read(&self.bad_requests),
        }
    }
}
