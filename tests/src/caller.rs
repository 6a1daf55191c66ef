//! Requests to a VM process beside those of the test that drives it: by whoever answers what the process tells.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use corten_link::{Event, Link, Request, Role};

/// Numbers from here on are those of requests whose replies nobody waits for.
const FIRST: u64 = 1 << 32;

/// Answers what a VM process tells by itself, in the thread that hears it. False if that is for the test.
pub type Answer = Arc<dyn Fn(&Caller, &Event) -> bool + Send + Sync>;

/// Sends requests without waiting for replies.
#[derive(Clone)]
pub struct Caller {
    link: Arc<Link>,
    next_id: Arc<AtomicU64>,
}

impl Caller {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, next_id: Arc::new(AtomicU64::new(FIRST)) }
    }

    /// Asks for something that takes these descriptors. It fails once the process is gone.
    pub fn ask(&self, request: Request, descriptors: &[(Role, BorrowedFd<'_>)]) -> Result<()> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Ok(self.link.send_request(id, request, descriptors)?)
    }

    /// Whether a reply is to one of these.
    pub(crate) fn asked(id: u64) -> bool {
        id >= FIRST
    }
}
