//! What a balloon counts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::PAGE_SIZE;
use super::run::Run;

/// Counts of one balloon since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalloonCounters {
    /// Pages put into the balloon: of memory that is there, each once for a request.
    pub inflated_pages: u64,
    /// Pages that the driver said it took out again. It need not say so of all.
    pub deflated_pages: u64,
    /// Bytes of free pages reported.
    pub reported_bytes: u64,
    /// Pieces of memory that were given back, of either.
    pub runs: u64,
    /// Huge pages of which a run covered only a part: split, where the host had them.
    pub partial_huge_pages: u64,
    /// Pieces of memory that the host did not take back. The guest is not told: it may go on.
    pub failures: u64,
    /// Requests with something in them that cannot be.
    pub bad_requests: u64,
    /// Lists of statistics that came.
    pub statistics: u64,
}

/// The counters as the task has them.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    inflated_pages: AtomicU64,
    deflated_pages: AtomicU64,
    reported_bytes: AtomicU64,
    runs: AtomicU64,
    partial_huge_pages: AtomicU64,
    failures: AtomicU64,
    bad_requests: AtomicU64,
    statistics: AtomicU64,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Metrics {
    pub(super) fn inflated(&self, bytes: u64) {
        add(&self.inflated_pages, bytes / PAGE_SIZE);
    }

    pub(super) fn deflated(&self, pages: u64) {
        add(&self.deflated_pages, pages);
    }

    pub(super) fn reported(&self, bytes: u64) {
        add(&self.reported_bytes, bytes);
    }

    pub(super) fn given_back(&self, run: Run) {
        add(&self.runs, 1);
        add(&self.partial_huge_pages, run.partial_huge_pages());
    }

    pub(super) fn failed(&self) {
        add(&self.failures, 1);
    }

    pub(super) fn wrong(&self, is_wrong: bool) {
        add(&self.bad_requests, u64::from(is_wrong));
    }

    pub(super) fn told(&self) {
        add(&self.statistics, 1);
    }

    pub(super) fn counters(&self) -> BalloonCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BalloonCounters {
            inflated_pages: read(&self.inflated_pages),
            deflated_pages: read(&self.deflated_pages),
            reported_bytes: read(&self.reported_bytes),
            runs: read(&self.runs),
            partial_huge_pages: read(&self.partial_huge_pages),
            failures: read(&self.failures),
            bad_requests: read(&self.bad_requests),
            statistics: read(&self.statistics),
        }
    }
}
