//! A queue as a device type sees it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{DescriptorChain, Error, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};
use vmm_sys_util::eventfd::EventFd;

use super::GuestRam;
use super::signals::Signals;
use crate::Interrupt;

/// Bytes of flags and index before a used ring's elements.
const USED_HEADER: u64 = 4;
/// Bytes of one element.
const USED_ELEMENT: u64 = 8;
/// Bytes of one descriptor.
const DESCRIPTOR: u64 = 16;

/// What the driver made available: descriptors, to be looked at with care.
///
/// Its iterator ends at a descriptor that is not there, so a broken chain looks like a short one. It has as many
/// descriptors as the queue has, or as an indirect table says, 65535 at most.
pub type Chain = DescriptorChain<GuestRam>;

/// Addresses of a queue's rings in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingPlaces {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

/// A queue at work: rings in guest memory, the doorbell that the driver rings, the interrupt that answers.
///
/// Whoever has it is the only one to use it. Whenever the driver breaks the rings, the device asks for a reset, and
/// [`Self::pop`] gives nothing any more, on all queues of the device: none of the methods has an error to handle. Nor does it
/// once the driver has asked for a reset, so that a device is soon at rest whatever its driver goes on to ask for.
pub struct VirtQueue {
    index: u16,
    ring: Queue,
    ram: GuestRam,
    signals: Arc<Signals>,
    doorbell: Arc<EventFd>,
    /// Chains given back since the driver was last told, or not, of any.
    pushed: u16,
}

impl VirtQueue {
    /// `ring` has been checked against `ram`.
    pub(super) fn new(
        index: u16,
        ring: Queue,
        ram: GuestRam,
        signals: Arc<Signals>,
        doorbell: Arc<EventFd>,
    ) -> Self {
        Self { index, ring, ram, signals, doorbell, pushed: 0 }
    }

    /// Its number.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// How many descriptors it has.
    pub fn size(&self) -> u16 {
        self.ring.size()
    }

    /// The memory that its chains are in.
    pub fn ram(&self) -> &GuestRam {
        &self.ram
    }

    /// Readable when the driver has rung.
    pub fn doorbell(&self) -> &EventFd {
        &self.doorbell
    }

    /// Makes the doorbell unreadable again. To be called before [`Self::pop`], or a ring in between would be lost.
    pub fn answer_doorbell(&self) {
        // It fails if nobody rang, as after a stop between the event and its handling.
        let _ = self.doorbell.read();
    }

    /// Rings the doorbell itself: there is more to do, after others had their turn.
    pub fn ring_doorbell(&self) {
        // The only failure is a count of 2^64 - 1, at which it rings already.
        let _ = self.doorbell.write(1);
    }

    /// How many chains were taken and not yet given back.
    pub fn in_flight(&self) -> u16 {
        self.ring.next_avail().wrapping_sub(self.ring.next_used())
    }

    /// Takes the next chain, if there is one.
    pub fn pop(&mut self) -> Option<Chain> {
        if self.is_closed() {
            return None;
        }
        let (size, in_flight) = (self.ring.size(), self.in_flight());
        match self.ring.iter(self.ram.clone()).map(|mut chains| chains.next()) {
            // More chains than descriptors means that one is used twice: without this check we would hold as many as
            // the driver likes.
            Ok(Some(chain)) if in_flight >= size || chain.head_index() >= size => {
                self.ring.go_to_previous_position();
                self.fail();
                None
            }
            Ok(chain) => chain,
            Err(error) => {
                self.failed(&error);
                None
            }
        }
    }

    /// Puts the chain taken last back, to be taken again.
    pub fn put_back(&mut self) {
        if self.in_flight() > 0 {
            self.ring.go_to_previous_position();
        }
    }

    /// Gives a chain back by its head, `written` bytes of it written.
    pub fn push(&mut self, head: u16, written: u32) {
        self.push_all(&[(head, written)]);
    }

    /// Gives chains back that belong together, by head and bytes written: the driver sees all of them or none.
    pub fn push_all(&mut self, chains: &[(u16, u32)]) {
        let Some((last, before)) = chains.split_last() else {
            return;
        };
        let (Ok(count), Ok(skipped)) = (u16::try_from(chains.len()), u16::try_from(before.len()))
        else {
            return;
        };
        if count > self.in_flight() {
            return;
        }
        let first = self.ring.next_used();
        for (at, (head, written)) in (0..skipped).zip(before) {
            let place = u64::from(first.wrapping_add(at) % self.ring.size());
            let element = [u32::from(*head).to_le(), written.to_le()];
            let address = self.ring.used_ring().saturating_add(USED_HEADER + USED_ELEMENT * place);
            if let Err(error) = self.ram.write_obj(element, GuestAddress(address)) {
                return self.failed(&Error::GuestMemory(error));
            }
        }
        // Only the last one moves the index that the driver looks at.
        self.ring.set_next_used(first.wrapping_add(skipped));
        self.pushed = self.pushed.wrapping_add(count);
        if let Err(error) = self.ring.add_used(&*self.ram, last.0, last.1) {
            self.failed(&error);
        }
    }

    /// Raises the queue's interrupt, if the driver wants to know of what was pushed since the last call.
    pub fn signal(&mut self) {
        match self.wants_signal() {
            Ok(true) => self.signals.raise_queue(self.index),
            Ok(false) => {}
            Err(error) => self.failed(&error),
        }
    }

    /// Not asked of the ring, which knows nothing of NO_INTERRUPT, nor of chains that were pushed together.
    fn wants_signal(&mut self) -> Result<bool, Error> {
        let pushed = std::mem::take(&mut self.pushed);
        // What was pushed is seen before the driver's wish is read: it writes the one and reads the other.
        fence(Ordering::SeqCst);
        let load = |address: u64| {
            let value = self.ram.load::<u16>(GuestAddress(address), Ordering::Relaxed);
            value.map(u16::from_le).map_err(Error::GuestMemory)
        };
        let available = self.ring.avail_ring();
        if !self.ring.event_idx_enabled() {
            return Ok(u32::from(load(available)?) & VRING_AVAIL_F_NO_INTERRUPT == 0);
        }
        // Behind flags, index and entries.
        let wanted = load(available.saturating_add(4 + 2 * u64::from(self.ring.size())))?;
        let since = self.ring.next_used().wrapping_sub(wanted).wrapping_sub(1);
        Ok(since < pushed)
    }

    /// Asks the driver not to ring while the device looks at the queue anyway.
    pub fn pause_doorbell(&mut self) {
        if let Err(error) = self.ring.disable_notification(&*self.ram) {
            self.failed(&error);
        }
    }

    /// Asks the driver to ring again. True if there is a chain that it may not have rung for: look again.
    pub fn resume_doorbell(&mut self) -> bool {
        match self.ring.enable_notification(&*self.ram) {
            Ok(more) => more && !self.is_closed(),
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    /// Makes good whatever a stop may have lost: asks to be rung for, has the worker look once, raises the interrupt
    /// once. What the driver rang, or was about to be told, before the stop is in no saved state.
    pub fn rearm(&mut self) {
        self.resume_doorbell();
        self.ring_doorbell();
        self.signals.raise_queue(self.index);
    }

    /// Raises the queue's interrupt, whatever the driver said of wanting it.
    pub(crate) fn raise(&self) {
        self.signals.raise_queue(self.index);
    }

    /// Whether the driver takes interrupts at all. Without MSI-X it asks a register, which only this process can fill.
    pub(crate) fn has_interrupts(&self) -> bool {
        self.signals.msix.is_enabled()
    }

    /// What raises its interrupt now, for those that do without us; none if the driver gave it no vector.
    pub(crate) fn interrupt(&self) -> Option<Interrupt> {
        self.signals.queue_interrupt(self.index)
    }

    /// From now on `watcher`, or nobody, is told when [`Self::interrupt`] becomes another.
    pub(crate) fn watch_interrupt(&self, watcher: Option<Arc<EventFd>>) {
        self.signals.watch_vector(self.index, watcher);
    }

    /// Whether nothing is to be taken from any queue of the device: a ring broke, or the driver gave the queues up.
    pub(crate) fn is_closed(&self) -> bool {
        self.signals.needs_reset() || self.is_given_up()
    }

    /// Whether the driver gave the queues up, and waits for the device to be reset: nothing is begun any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.signals.is_leaving()
    }

    /// Where its rings are in this process, for those that use them without us; none where one of them lies in two
    /// mappings.
    pub(crate) fn places(&self) -> Option<RingPlaces> {
        let size = u64::from(self.ring.size());
        let place = |address: u64, length: u64| {
            let length = usize::try_from(length).ok()?;
            let slice = self.ram.get_slice(GuestAddress(address), length).ok()?;
            Some(slice.ptr_guard_mut().as_ptr().addr() as u64)
        };
        Some(RingPlaces {
            descriptors: place(self.ring.desc_table(), DESCRIPTOR * size)?,
            // With the index for EVENT_IDX behind each.
            available: place(self.ring.avail_ring(), 6 + 2 * size)?,
            used: place(self.ring.used_ring(), USED_HEADER + 2 + USED_ELEMENT * size)?,
        })
    }

    /// The next chain to take.
    pub(crate) fn next_available(&self) -> u16 {
        self.ring.next_avail()
    }

    /// Goes on where somebody else stopped who used the rings without us, in the order of chains, and has taken all up to
    /// `next`. Those that were not given back will be taken again.
    pub(crate) fn take_over(&mut self, next: u16) {
        let index = GuestAddress(self.ring.used_ring().saturating_add(2));
        let used = self.ram.load::<u16>(index, Ordering::Acquire).map_or(next, u16::from_le);
        let can_be = next.wrapping_sub(used) <= self.ring.size();
        if !can_be {
            // The index is the device's to write, but a driver can.
            self.fail();
        }
        let position = if can_be { used } else { next };
        self.ring.set_next_avail(position);
        self.ring.set_next_used(position);
        self.pushed = 0;
    }

    /// The driver broke the device's protocol in a way that no status can say: the device stops until it is reset.
    pub fn fail(&mut self) {
        self.signals.break_ring();
    }

    /// The chain taken last is none ([`BadChain::Broken`](super::BadChain::Broken)): it is put back, and the device stops.
    pub(crate) fn refuse(&mut self) {
        self.put_back();
        self.fail();
    }

    /// Where it is: the next chains to take and to give back.
    pub(super) fn position(&self) -> (u16, u16) {
        (self.ring.next_avail(), self.ring.next_used())
    }

    /// The rings are in memory that is there, so every error is a driver's.
    fn failed(&mut self, _error: &Error) {
        self.fail();
    }
}

#[cfg(test)]
mod tests {
    use vmm_sys_util::eventfd::EFD_NONBLOCK;

    use super::*;
    use crate::pci::Msix;
    use crate::testing::{FakeRing, FakeRoutes, guest_ram};

    const ENABLE: u16 = 1 << 15;

    struct Bench {
        queue: VirtQueue,
        ring: FakeRing,
        interrupt: Interrupt,
        signals: Arc<Signals>,
    }

    impl Bench {
        fn new(event_idx: bool) -> Self {
            let ram = guest_ram();
            let ring = FakeRing::new(&ram, GuestAddress(0x1000), 4);
            let interrupt = Interrupt::new().unwrap();
            let msix = Msix::new(vec![interrupt.clone()], Arc::new(FakeRoutes::default()));
            msix.set_control(ENABLE);
            msix.write_table(12, &[0; 4]);
            let signals = Signals::new(msix, 1);
            signals.set_queue_vector(0, 0);
            let state = virtio_queue::QueueState {
                max_size: 4,
                size: 4,
                ready: true,
                event_idx_enabled: event_idx,
                desc_table: ring.descriptors().0,
                avail_ring: ring.available().0,
                used_ring: ring.used().0,
                ..Default::default()
            };
            let doorbell = Arc::new(EventFd::new(EFD_NONBLOCK).unwrap());
            let queue = Queue::try_from(state).unwrap();
            let queue = VirtQueue::new(0, queue, ram, Arc::clone(&signals), doorbell);
            Self { queue, ring, interrupt, signals }
        }

        fn raised(&self) -> bool {
            self.interrupt.eventfd().read().is_ok()
        }

        fn rang(&self) -> bool {
            self.queue.doorbell().read().is_ok()
        }
    }

    #[test]
    fn chains_are_taken_in_order_and_given_back() {
        let mut bench = Bench::new(false);
        bench.ring.offer(2);
        bench.ring.offer(0);
        let heads = [bench.queue.pop(), bench.queue.pop()].map(|chain| chain.unwrap().head_index());
        assert_eq!(heads, [2, 0]);
        assert!(bench.queue.pop().is_none());
        assert_eq!(bench.queue.in_flight(), 2);
        bench.queue.push(0, 7);
        assert_eq!(bench.ring.take_used(), [(0, 7)]);
        bench.queue.signal();
        assert!(bench.raised());
        assert_eq!(bench.queue.position(), (2, 1));
    }

    #[test]
    fn chain_put_back_is_taken_again() {
        let mut bench = Bench::new(false);
        bench.ring.offer(3);
        assert_eq!(bench.queue.pop().unwrap().head_index(), 3);
        bench.queue.put_back();
        assert_eq!(bench.queue.in_flight(), 0);
        assert_eq!(bench.queue.pop().unwrap().head_index(), 3);
    }

    #[test]
    fn nothing_is_put_back_or_pushed_that_was_not_taken() {
        let mut bench = Bench::new(false);
        bench.queue.put_back();
        bench.queue.push(0, 0);
        assert_eq!(bench.queue.position(), (0, 0));
        assert_eq!(bench.ring.take_used(), []);
    }

    #[test]
    fn driver_that_wants_no_interrupt_gets_none() {
        let mut bench = Bench::new(false);
        bench.ring.set_no_interrupt(true);
        bench.ring.offer(0);
        bench.queue.pop().unwrap();
        bench.queue.push(0, 0);
        bench.queue.signal();
        assert!(!bench.raised());
        bench.ring.set_no_interrupt(false);
        bench.queue.signal();
        assert!(bench.raised());
    }

    #[test]
    fn chains_that_belong_together_come_back_around_the_end_of_the_ring() {
        let mut bench = Bench::new(true);
        for head in [0, 1, 2, 3, 2, 1] {
            bench.ring.offer(head);
            if bench.queue.in_flight() == 3 {
                bench.queue.push_all(&[(0, 10), (1, 11), (2, 12)]);
            }
            bench.queue.pop().unwrap();
        }
        bench.ring.set_used_event(4);
        bench.queue.signal();
        assert!(!bench.raised());
        assert_eq!(bench.ring.take_used(), [(0, 10), (1, 11), (2, 12)]);
        bench.queue.push_all(&[(3, 13), (2, 14), (1, 15)]);
        assert_eq!(bench.ring.take_used(), [(3, 13), (2, 14), (1, 15)]);
        bench.queue.signal();
        assert!(bench.raised(), "the chain wanted is neither the first nor the last");
        assert_eq!(bench.queue.in_flight(), 0);
        bench.queue.push_all(&[]);
        bench.queue.push_all(&[(0, 0), (1, 0)]);
        assert_eq!(bench.ring.take_used(), []);
    }

    #[test]
    fn event_index_holds_interrupts_back() {
        let mut bench = Bench::new(true);
        bench.ring.set_used_event(1);
        for expected in [false, true, false] {
            bench.ring.offer(0);
            bench.queue.pop().unwrap();
            bench.queue.push(0, 0);
            bench.queue.signal();
            assert_eq!(bench.raised(), expected);
        }
    }

    #[test]
    fn doorbell_is_asked_for_behind_the_last_chain_taken() {
        let mut bench = Bench::new(true);
        bench.ring.offer(0);
        assert!(bench.queue.resume_doorbell());
        bench.queue.pop().unwrap();
        assert!(!bench.queue.resume_doorbell());
        assert_eq!(bench.ring.available_event(), 1);
    }

    #[test]
    fn driver_is_asked_not_to_ring_for_a_while() {
        let mut bench = Bench::new(false);
        bench.queue.pause_doorbell();
        assert!(bench.ring.is_doorbell_paused());
        bench.queue.rearm();
        assert!(!bench.ring.is_doorbell_paused());
    }

    #[test]
    fn rearm_looks_once_and_raises_once() {
        for event_idx in [false, true] {
            let mut bench = Bench::new(event_idx);
            bench.ring.set_used_event(100);
            bench.queue.rearm();
            assert!(bench.rang());
            assert!(bench.raised());
            assert!(!bench.rang());
            assert!(!bench.raised());
        }
    }

    #[test]
    fn ring_that_runs_ahead_stops_the_device() {
        let mut bench = Bench::new(false);
        bench.ring.set_available_index(5);
        assert!(bench.queue.pop().is_none());
        assert!(bench.signals.needs_reset());
        assert_eq!(bench.signals.faults().rings, 1);
        bench.ring.set_available_index(1);
        assert!(bench.queue.pop().is_none());
    }

    #[test]
    fn queue_that_was_given_up_gives_nothing_until_the_reset() {
        let mut bench = Bench::new(false);
        bench.ring.offer(0);
        bench.queue.pop().unwrap();
        bench.signals.leave();
        bench.ring.offer(1);
        assert!(bench.queue.pop().is_none());
        assert!(!bench.queue.resume_doorbell());
        assert!(!bench.signals.needs_reset(), "the driver did nothing wrong");
        bench.queue.push(0, 7);
        assert_eq!(bench.ring.take_used(), [(0, 7)], "what is in flight comes back");
        bench.signals.reset();
        assert_eq!(bench.queue.pop().unwrap().head_index(), 1);
    }

    #[test]
    fn descriptor_offered_again_while_in_flight_stops_the_device() {
        let mut bench = Bench::new(false);
        for _ in 0..4 {
            bench.ring.offer(0);
            bench.queue.pop().unwrap();
        }
        bench.ring.offer(0);
        assert!(bench.queue.pop().is_none());
        assert!(bench.signals.needs_reset());
        assert_eq!(bench.queue.in_flight(), 4);
    }

    #[test]
    fn head_that_is_no_descriptor_stops_the_device() {
        let mut bench = Bench::new(false);
        bench.ring.offer(4);
        assert!(bench.queue.pop().is_none());
        assert!(bench.signals.needs_reset());
        assert_eq!(bench.queue.in_flight(), 0);
    }
}
