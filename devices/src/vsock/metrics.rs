//! What a socket device counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one device since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VsockCounters {
    /// Connections that the guest asked for and the owner granted.
    pub from_guest: u64,
    /// Connections that the host asked for and the guest accepted.
    pub from_host: u64,
    /// Connections, asked for by either, that came to nothing.
    pub refused: u64,
    /// Bytes that the guest sent.
    pub sent_bytes: u64,
    /// Bytes that the guest was sent.
    pub received_bytes: u64,
    /// Packets and buffers that the guest got wrong.
    pub bad_packets: u64,
}

/// The counters as the task shares them.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) from_guest: AtomicU64,
    pub(super) from_host: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) bad_packets: AtomicU64,
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
    pub(super) fn counters(&self) -> VsockCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        VsockCounters {
            from_guest: read(&self.from_guest),
            from_host: read(&self.from_host),
            refused: read(&self.refused),
            sent_bytes: read(&self.sent_bytes),
            received_bytes: read(&self.received_bytes),
            bad_packets: read(&self.bad_packets),
        }
    }
}
