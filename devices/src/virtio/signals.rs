//! From a device to its driver: interrupts, and the request to be reset.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use vmm_sys_util::eventfd::EventFd;

use crate::Interrupt;
use crate::pci::{Msix, lock};

/// The vector number that means none.
pub(super) const NO_VECTOR: u16 = 0xffff;

/// A queue has something.
pub(super) const ISR_QUEUE: u8 = 1 << 0;
/// The configuration has changed.
pub(super) const ISR_CONFIG: u8 = 1 << 1;

/// What a guest did wrong, by count since the device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Registers written out of turn, or with values they cannot have.
    pub registers: u64,
    /// Sets of features that were refused.
    pub features: u64,
    /// Queues that were not enabled, for their addresses, alignment or size.
    pub queues: u64,
    /// Rings that broke while in use. One stops the device until it is reset.
    pub rings: u64,
}

/// What I/O workers share with the transport. Has no lock that is held for long: that of a vector, and that of whoever
/// wants to know of a queue's vector.
pub(super) struct Signals {
    pub(super) msix: Msix,
    config_vector: AtomicU16,
    queue_vectors: Vec<AtomicU16>,
    /// By queue: told when the driver gives it another vector.
    vector_watchers: Vec<Mutex<Option<Arc<EventFd>>>>,
    isr: AtomicU8,
    needs_reset: AtomicBool,
    /// The driver gave up the queues, and waits for the device to be reset.
    is_leaving: AtomicBool,
    registers: AtomicU64,
    features: AtomicU64,
    queues: AtomicU64,
    rings: AtomicU64,
}

impl Signals {
    pub(super) fn new(msix: Msix, queues: usize) -> Arc<Self> {
        Arc::new(Self {
            msix,
            config_vector: AtomicU16::new(NO_VECTOR),
            queue_vectors: (0..queues).map(|_| AtomicU16::new(NO_VECTOR)).collect(),
            vector_watchers: (0..queues).map(|_| Mutex::new(None)).collect(),
            isr: AtomicU8::new(0),
            needs_reset: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            registers: AtomicU64::new(0),
            features: AtomicU64::new(0),
            queues: AtomicU64::new(0),
            rings: AtomicU64::new(0),
        })
    }

    /// Tells the driver that a queue has something for it.
    pub(super) fn raise_queue(&self, queue: u16) {
        self.raise(self.queue_vector(queue), ISR_QUEUE);
    }

    /// Tells the driver that the configuration has changed.
    pub(super) fn raise_config(&self) {
        self.raise(self.config_vector(), ISR_CONFIG);
    }

    /// The ISR register is for drivers without MSI-X: those of ours must poll it.
    fn raise(&self, vector: u16, isr: u8) {
        if !self.msix.raise(vector) {
            self.isr.fetch_or(isr, Ordering::AcqRel);
        }
    }

    /// A ring broke: nothing is taken from any until the driver resets the device.
    pub(super) fn break_ring(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        self.request_reset();
    }

    /// Asks the driver to reset the device.
    pub(super) fn request_reset(&self) {
        if !self.needs_reset.swap(true, Ordering::AcqRel) {
            self.raise_config();
        }
    }

    pub(super) fn needs_reset(&self) -> bool {
        self.needs_reset.load(Ordering::Acquire)
    }

    /// The driver gave up the queues: nothing is taken from any until the device was reset, however often it rings.
    pub(super) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    pub(super) fn config_vector(&self) -> u16 {
        self.config_vector.load(Ordering::Acquire)
    }

    pub(super) fn queue_vector(&self, queue: u16) -> u16 {
        let vector = self.queue_vectors.get(usize::from(queue));
        vector.map_or(NO_VECTOR, |vector| vector.load(Ordering::Acquire))
    }

    /// Sets a vector number as the driver wrote it: one that is not there reads as none afterwards.
    pub(super) fn set_config_vector(&self, vector: u16) {
        self.config_vector.store(self.existing(vector), Ordering::Release);
    }

    pub(super) fn set_queue_vector(&self, queue: u16, vector: u16) {
        if let Some(place) = self.queue_vectors.get(usize::from(queue)) {
            place.store(self.existing(vector), Ordering::Release);
        }
        let watcher = self.vector_watchers.get(usize::from(queue)).map(lock);
        if let Some(watcher) = watcher.as_deref().and_then(Option::as_ref) {
            // The only failure is a count of 2^64 - 1, at which it is told already.
            let _ = watcher.write(1);
        }
    }

    /// What raises a queue's interrupt; none if the driver wants none.
    pub(super) fn queue_interrupt(&self, queue: u16) -> Option<Interrupt> {
        self.msix.interrupt(self.queue_vector(queue)).cloned()
    }

    /// From now on `watcher`, or nobody, is told when the driver gives the queue another vector.
    pub(super) fn watch_vector(&self, queue: u16, watcher: Option<Arc<EventFd>>) {
        if let Some(place) = self.vector_watchers.get(usize::from(queue)) {
            *lock(place) = watcher;
        }
    }

    fn existing(&self, vector: u16) -> u16 {
        if vector < self.msix.vectors() { vector } else { NO_VECTOR }
    }

    /// Whether a saved vector number is one that can be.
    pub(super) fn vector_can_be(&self, vector: u16) -> bool {
        self.existing(vector) == vector
    }

    /// Reading the register clears it.
    pub(super) fn take_isr(&self) -> u8 {
        self.isr.swap(0, Ordering::AcqRel)
    }

    pub(super) fn isr(&self) -> u8 {
        self.isr.load(Ordering::Acquire)
    }

    /// What a reset leaves: no vectors, nothing to tell. MSI-X belongs to PCI and stays.
    pub(super) fn reset(&self) {
        self.set_config_vector(NO_VECTOR);
        for vector in &self.queue_vectors {
            vector.store(NO_VECTOR, Ordering::Release);
        }
        self.is_leaving.store(false, Ordering::Release);
        self.load(0, false);
    }

    pub(super) fn load(&self, isr: u8, needs_reset: bool) {
        self.isr.store(isr, Ordering::Release);
        self.needs_reset.store(needs_reset, Ordering::Release);
    }

    pub(super) fn count_register(&self) {
        self.registers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_features(&self) {
        self.features.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_queue(&self) {
        self.queues.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn faults(&self) -> Faults {
        Faults {
            registers: self.registers.load(Ordering::Relaxed),
            features: self.features.load(Ordering::Relaxed),
            queues: self.queues.load(Ordering::Relaxed),
            rings: self.rings.load(Ordering::Relaxed),
        }
    }
}
