//! What a network interface counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one interface since it was made, over all of its queues. Received is what the guest received. Frames that
/// vhost moves are not in them: the TAP counts those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounters {
    /// Frames given to the guest.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames for addresses that the driver does not listen to.
    pub filtered: u64,
    /// Frames larger than the guest's buffers can ever hold.
    pub oversized: u64,
    /// Frames that need an offload which the driver did not take.
    pub unfit: u64,
    /// Times that the TAP could not be read.
    pub receive_errors: u64,
    /// Frames taken from the guest.
    pub transmitted: u64,
    /// Their bytes.
    pub transmitted_bytes: u64,
    /// Frames that the TAP refused: it is down or gone, or their header is wrong.
    pub refused: u64,
    /// Chains of the guest's that are no frame, and commands that are none.
    pub malformed: u64,
    /// Times that a queue waited for its rate limit.
    pub throttled: u64,
    /// Drivers that were not served by vhost although there is one.
    pub vhost_refused: u64,
    /// Times that vhost found a ring broken, or failed.
    pub vhost_errors: u64,
}

/// The counters as the queues' tasks share them.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    received: AtomicU64,
    received_bytes: AtomicU64,
    transmitted: AtomicU64,
    transmitted_bytes: AtomicU64,
    pub(super) filtered: AtomicU64,
    pub(super) oversized: AtomicU64,
    pub(super) unfit: AtomicU64,
    pub(super) receive_errors: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) throttled: AtomicU64,
    pub(super) vhost_refused: AtomicU64,
    pub(super) vhost_errors: AtomicU64,
}

/// Adds one to a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Metrics {
    /// The guest has got a frame.
    pub(super) fn received(&self, bytes: u64) {
        count(&self.received);
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The TAP has got a frame.
    pub(super) fn transmitted(&self, bytes: u64) {
        count(&self.transmitted);
        self.transmitted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn counters(&self) -> NetCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NetCounters {
            received: read(&self.received),
            received_bytes: read(&self.received_bytes),
            filtered: read(&self.filtered),
            oversized: read(&self.oversized),
            unfit: read(&self.unfit),
            receive_errors: read(&self.receive_errors),
            transmitted: read(&self.transmitted),
            transmitted_bytes: read(&self.transmitted_bytes),
            refused: read(&self.refused),
            malformed: read(&self.malformed),
            throttled: read(&self.throttled),
            vhost_refused: read(&self.vhost_refused),
            vhost_errors: read(&self.vhost_errors),
        }
    }
}
