//! What a disk counts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::request::Action;

/// Counts of one disk since it was made, over all of its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes they gave the guest.
    pub read_bytes: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes they took from the guest.
    pub written_bytes: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Requests to discard that succeeded.
    pub discards: u64,
    /// Requests to write zeroes that succeeded.
    pub write_zeroes: u64,
    /// Requests that the host failed, whether the guest was told or the request is held.
    pub errors: u64,
    /// Requests that the guest got wrong.
    pub bad_requests: u64,
    /// Times that a queue waited for its rate limit.
    pub throttled: u64,
    /// Transfers whose buffers the disk could not take as they were.
    pub bounced: u64,
}

/// The counters as the queues' tasks share them.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    write_zeroes: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) bad_requests: AtomicU64,
    pub(super) throttled: AtomicU64,
    pub(super) bounced: AtomicU64,
}

/// Adds one to a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Metrics {
    /// A request succeeded.
    pub(super) fn done(&self, action: &Action) {
        match action {
            Action::Read { .. } => {
                count(&self.reads);
                self.read_bytes.fetch_add(action.length(), Ordering::Relaxed);
            }
            Action::Write { .. } => {
                count(&self.writes);
                self.written_bytes.fetch_add(action.length(), Ordering::Relaxed);
            }
            Action::Flush => count(&self.flushes),
            Action::Discard { .. } => count(&self.discards),
            Action::WriteZeroes { .. } => count(&self.write_zeroes),
            Action::GetId { .. } => {}
        }
    }

    pub(super) fn counters(&self) -> BlockCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BlockCounters {
            reads: read(&self.reads),
            read_bytes: read(&self.read_bytes),
            writes: read(&self.writes),
            written_bytes: read(&self.written_bytes),
            flushes: read(&self.flushes),
            discards: read(&self.discards),
            write_zeroes: read(&self.write_zeroes),
            errors: read(&self.errors),
            bad_requests: read(&self.bad_requests),
            throttled: read(&self.throttled),
            bounced: read(&self.bounced),
        }
    }
}
