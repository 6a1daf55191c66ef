//! What a console device counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one device since it was made, over all of its ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleCounters {
    /// Bytes of the guest's that a host's end took.
    pub sent_bytes: u64,
    /// Bytes that the guest was given.
    pub received_bytes: u64,
    /// Bytes of the guest's that nobody took: output of a console that was not read, or for a host's end that is not there.
    pub dropped_bytes: u64,
    /// Sockets that became a host's end.
    pub attached: u64,
    /// Sockets that could not.
    pub refused: u64,
    /// Control messages that the guest got wrong.
    pub bad_messages: u64,
    /// Chains that the guest got wrong.
    pub bad_chains: u64,
}

/// The counters as the task shares them.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) dropped_bytes: AtomicU64,
    pub(super) attached: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) bad_messages: AtomicU64,
    pub(super) bad_chains: AtomicU64,
}

/// Adds one to a counter.
pub(super) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Metrics {
    pub(super) fn counters(&self) -> ConsoleCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConsoleCounters {
            sent_bytes: read(&self.sent_bytes),
            received_bytes: read(&self.received_bytes),
            dropped_bytes: read(&self.dropped_bytes),
            attached: read(&self.attached),
            refused: read(&self.refused),
            bad_messages: read(&self.bad_messages),
            bad_chains: read(&self.bad_chains),
        }
    }
}
