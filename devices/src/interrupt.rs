//! How a device asks for the guest's attention.

use std::io;
use std::sync::Arc;

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// One interrupt of one device: an eventfd that KVM turns into an interrupt without a thread of ours.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<EventFd>);

impl Interrupt {
    /// An interrupt that nothing listens to yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?)))
    }

    /// Raises it. Raised twice before the guest looked, it may be seen once.
    pub fn raise(&self) {
        // The only failure is a count of 2^64 - 1, at which the interrupt is as raised as it can be.
        let _ = self.0.write(1);
    }

    /// What KVM listens to.
    pub fn eventfd(&self) -> &EventFd {
        &self.0
    }
}
