//! What a slot holds.

use std::sync::Arc;

use vm_memory::GuestAddress;
use vmm_sys_util::eventfd::EventFd;

use crate::{Effect, Range, Registers};

/// A PCI function, number 0 of the device in its slot.
///
/// Configuration accesses come on vCPU threads, by several at once, and follow the rules of [`Registers`]. They are of
/// 1, 2 or 4 bytes within one aligned group of four, below 256.
pub trait Function: Send + Sync {
    /// Fills `data` from `register` on.
    fn read_configuration(&self, register: usize, data: &mut [u8]);

    /// Takes `data` at `register`. [`Effect::MoveBars`] if [`Self::bars`] gives something else from now on.
    fn write_configuration(&self, register: usize, data: &[u8]) -> Effect;

    /// The BARs that are decoded, wherever the guest put them. Called by the machine's owner.
    fn bars(self: Arc<Self>) -> Vec<MappedBar>;
}

/// A BAR that answers at a range of addresses.
#[derive(Clone)]
pub struct MappedBar {
    /// Device number on bus 0.
    pub slot: u8,
    /// Number of the BAR; of its first half, if it has two.
    pub bar: u8,
    /// Where it is.
    pub range: Range,
    /// What answers there.
    pub registers: Arc<dyn Registers>,
    /// Addresses in it at which a write is nothing but a signal.
    pub doorbells: Vec<Doorbell>,
}

/// An address at which the guest rings for a queue. A write that reaches the registers does the same: the eventfd
/// bound to the address only makes it cheaper.
#[derive(Clone, Debug)]
pub struct Doorbell {
    /// Where a write of any value and width rings.
    pub address: GuestAddress,
    /// Which queue it is for.
    pub queue: u16,
    /// What rings.
    pub eventfd: Arc<EventFd>,
}
