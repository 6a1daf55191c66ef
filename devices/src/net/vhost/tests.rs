//! What the kernel is told, and in which order, by a pair whose kernel only writes it down.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::{any::Any, io};

use vm_memory::{Bytes, GuestAddress};

use super::kernel::{Call, Ring, Vhost};
use super::pair::VhostPair;
use super::table::MemoryTable;
use crate::pci::lock;
use crate::testing::{FakeDriver, FakeRing, shared_guest_ram, wiring};
use crate::virtio::{
    ActivateError, Activation, Device, DrainError, GuestRam, QueueState, QueueTask, Transport,
    TransportState, VirtQueue, VirtioPci, Wakeup,
};
use crate::{Interrupt, RecordError, Records};

const MRG_RXBUF: u64 = 1 << 15;
const GUEST_CSUM: u64 = 1 << 1;
const STATUS: u64 = 1 << 16;
const TAP: i32 = 77;

/// Two queues, to be had by whoever activates it.
struct Pair;

/// One of them.
struct Caught(VirtQueue);

impl Device for Pair {
    type Task = Caught;

    fn device_type(&self) -> u16 {
        1
    }

    fn features(&self) -> u64 {
        MRG_RXBUF | GUEST_CSUM | STATUS
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![16; 2]
    }

    fn read_config(&self, _offset: u64, _data: &mut [u8]) {}

    fn write_config(&mut self, _offset: u64, _data: &[u8]) {}

    fn activate(&mut self, activation: Activation) -> Result<Vec<Caught>, ActivateError> {
        Ok(activation.queues.into_iter().map(Caught).collect())
    }

    fn reclaim(&mut self, tasks: Vec<Caught>) -> Vec<VirtQueue> {
        tasks.into_iter().map(|Caught(queue)| queue).collect()
    }

    fn reset(&mut self) {}

    fn save(&self, _instance: &str, _records: &mut Records) -> Result<(), RecordError> {
        Ok(())
    }

    fn load(&mut self, _instance: &str, _records: &mut Records) -> Result<(), RecordError> {
        Ok(())
    }
}

impl QueueTask for Caught {
    fn wakeups(&self) -> Vec<Wakeup> {
        Vec::new()
    }

    fn on_event(&mut self, _token: u32) {}

    fn drain(&mut self) -> Result<usize, DrainError> {
        Ok(0)
    }

    fn rearm(&mut self) {}
}

/// Writes down what it is asked; refuses one call, if there is one to refuse.
#[derive(Default)]
struct Notes {
    calls: Mutex<Vec<Call>>,
    refused: Option<Call>,
}

impl Vhost for Arc<Notes> {
    fn call(&self, call: &Call) -> io::Result<()> {
        lock(&self.calls).push(call.clone());
        if self.refused.as_ref() == Some(call) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }

    fn base(&self, ring: Ring) -> io::Result<u16> {
        Ok(if ring == Ring::Receive { 5 } else { 0x8007 })
    }
}

struct Bench {
    function: Arc<VirtioPci<Pair>>,
    driver: FakeDriver,
    interrupts: Vec<Interrupt>,
    ram: GuestRam,
    queues: [VirtQueue; 2],
    notes: Arc<Notes>,
    vhost: VhostPair<Arc<Notes>>,
}

impl Bench {
    /// A driver with its rings at these addresses.
    fn new(rings: [u64; 2], has_msix: bool, refused: Option<Call>) -> Self {
        let (mut wiring, interrupts, _) = wiring(3, 2);
        let halves = [(GuestAddress(0), 0x8000), (GuestAddress(0x8000), 0x8000)];
        wiring.ram = shared_guest_ram(&halves).0;
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(Pair, wiring).unwrap();
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        assert!(driver.negotiate(driver.offered()));
        if has_msix {
            driver.enable_msix(3);
        }
        for (queue, base) in (0..).zip(rings) {
            let ring = FakeRing::new(&ram, GuestAddress(base), 16);
            assert!(driver.set_up_queue(queue, &ring, queue + 1));
        }
        let _ = driver.ready();
        let caught = |task: Box<dyn QueueTask>| {
            let task: Box<dyn Any> = task;
            task.downcast::<Caught>().unwrap().0
        };
        let queues: Vec<VirtQueue> = function.activate().unwrap().into_iter().map(caught).collect();
        let queues = queues.try_into().ok().unwrap();
        let notes = Arc::new(Notes { refused, ..Notes::default() });
        let vhost = VhostPair::with(Arc::clone(&notes)).unwrap();
        Self { function, driver, interrupts, ram, queues, notes, vhost }
    }

    fn usual() -> Self {
        Self::new([0x1000, 0x2000], true, None)
    }

    fn set_up(&self, features: u64) -> io::Result<()> {
        let [receive, transmit] = &self.queues;
        self.vhost.set_up(features, [receive, transmit])
    }

    /// What vhost wrote to the used rings.
    fn given_back(&self, indices: [u16; 2]) {
        for (base, index) in [0x1000, 0x2000].into_iter().zip(indices) {
            let ring = FakeRing::new(&self.ram, GuestAddress(base), 16);
            self.ram.write_obj(index, GuestAddress(ring.used().0 + 2)).unwrap();
        }
    }

    /// What was asked since the last call.
    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *lock(&self.notes.calls))
    }

    fn interrupt(&self, vector: usize) -> Option<i32> {
        Some(self.interrupts[vector].eventfd().as_raw_fd())
    }

    fn doorbell(&self, queue: usize) -> Option<i32> {
        Some(self.queues[queue].doorbell().as_raw_fd())
    }
}

fn let_go() -> Vec<Call> {
    let (receive, transmit) = (Ring::Receive, Ring::Transmit);
    vec![
        Call::Backend(receive, None),
        Call::Backend(transmit, None),
        Call::Kick(receive, None),
        Call::Interrupt(receive, None),
        Call::Kick(transmit, None),
        Call::Interrupt(transmit, None),
    ]
}

#[test]
fn rings_are_told_of_features_and_memory_first() {
    let bench = Bench::usual();
    bench.set_up(bench.driver.offered()).unwrap();
    let errors = Some(bench.vhost.errors().as_raw_fd());
    let places = bench.queues.each_ref().map(|queue| queue.places().unwrap());
    let start = MemoryTable::of(&bench.ram);
    assert_eq!(
        bench.calls(),
        [
            // VERSION_1, EVENT_IDX, INDIRECT_DESC and MRG_RXBUF: the others are none of its business.
            Call::Features(1 << 32 | 1 << 29 | 1 << 28 | MRG_RXBUF),
            Call::Memory(start),
            Call::Size(Ring::Receive, 16),
            Call::Addresses(Ring::Receive, places[0]),
            Call::Error(Ring::Receive, errors),
            Call::Size(Ring::Transmit, 16),
            Call::Addresses(Ring::Transmit, places[1]),
            Call::Error(Ring::Transmit, errors),
        ]
    );
}

#[test]
fn features_that_a_driver_did_not_take_are_not_used() {
    let bench = Bench::usual();
    bench.set_up(1 << 32 | MRG_RXBUF | GUEST_CSUM).unwrap();
    assert_eq!(bench.calls()[0], Call::Features(1 << 32 | MRG_RXBUF));
}

#[test]
fn rings_get_the_tap_last_and_lose_it_first() {
    let mut bench = Bench::usual();
    bench.vhost.errors().write(1).unwrap();
    bench.vhost.start(&bench.queues, TAP).unwrap();
    assert!(bench.vhost.errors().read().is_err(), "what was wrong before is over");
    assert_eq!(
        bench.calls(),
        [
            Call::Base(Ring::Receive, 0),
            Call::Interrupt(Ring::Receive, bench.interrupt(1)),
            Call::Kick(Ring::Receive, bench.doorbell(0)),
            Call::Base(Ring::Transmit, 0),
            Call::Interrupt(Ring::Transmit, bench.interrupt(2)),
            Call::Kick(Ring::Transmit, bench.doorbell(1)),
            Call::Backend(Ring::Receive, Some(TAP)),
            Call::Backend(Ring::Transmit, Some(TAP)),
        ]
    );
    bench.given_back([5, 0x8007]);
    bench.vhost.stop(&mut bench.queues).unwrap();
    assert_eq!(bench.calls(), let_go());
    bench.vhost.start(&bench.queues, TAP).unwrap();
    let calls = bench.calls();
    assert!(calls.contains(&Call::Base(Ring::Receive, 5)), "{calls:?}");
    assert!(calls.contains(&Call::Base(Ring::Transmit, 0x8007)), "{calls:?}");
}

#[test]
fn positions_of_vhost_are_saved_with_nothing_in_flight() {
    // As many chains as the used rings say, whether vhost kept some or the driver wrote there.
    for (used, rings, saved) in [
        ([5, 0x8007], 0, [5, 0x8007]),
        ([5, 0x7ff7], 0, [5, 0x7ff7]),
        ([5, 0x7ff6], 1, [5, 0x8007]),
        ([6, 0x8007], 1, [5, 0x8007]),
    ] {
        let mut bench = Bench::usual();
        bench.given_back(used);
        bench.vhost.stop(&mut bench.queues).unwrap();
        let tasks = bench.queues.into_iter().map(|queue| Box::new(Caught(queue)) as _).collect();
        bench.function.reclaim(tasks).unwrap();
        assert_eq!(bench.function.faults().rings, rings);
        let mut records = Records::default();
        bench.function.save("net1", &mut records).unwrap();
        let state: TransportState = records.take("net1").unwrap();
        let position = |queue: &QueueState| (queue.next_available, queue.next_used);
        let positions: Vec<_> = state.queues.iter().map(position).collect();
        assert_eq!(positions, saved.map(|next| (next, next)));
    }
}

#[test]
fn start_that_fails_leaves_nothing_with_vhost() {
    for refused in [Call::Base(Ring::Transmit, 0), Call::Backend(Ring::Transmit, Some(TAP))] {
        let bench = Bench::new([0x1000, 0x2000], true, Some(refused.clone()));
        bench.vhost.start(&bench.queues, TAP).unwrap_err();
        let calls = bench.calls();
        let at = calls.iter().position(|call| *call == refused).unwrap();
        assert_eq!(calls[at + 1..], let_go());
    }
}

#[test]
fn driver_that_vhost_cannot_serve_is_refused_before_it_is_told_anything() {
    let bench = Bench::usual();
    let all = bench.driver.offered();
    for features in [all & !MRG_RXBUF, all & !GUEST_CSUM] {
        bench.set_up(features).unwrap_err();
    }
    assert_eq!(bench.calls(), []);
    let without_interrupts = Bench::new([0x1000, 0x2000], false, None);
    without_interrupts.set_up(all).unwrap_err();
    assert_eq!(without_interrupts.calls(), []);
}

#[test]
fn ring_that_is_not_in_one_piece_is_refused() {
    for base in [0x7f80, 0x8000 - 0x400 - 0x10, 0x8000 - 0x800 - 0x40] {
        let bench = Bench::new([0x1000, base], true, None);
        bench.set_up(bench.driver.offered()).unwrap_err();
    }
    Bench::new([0x1000, 0x7700], true, None).set_up(u64::MAX).unwrap();
}

#[test]
fn queue_with_another_vector_raises_another_interrupt() {
    let bench = Bench::usual();
    let [receive, _] = &bench.queues;
    receive.watch_interrupt(Some(Arc::clone(bench.vhost.moved())));
    for (vector, expected) in [(0, bench.interrupt(0)), (0xffff, None), (2, bench.interrupt(2))] {
        let _ = bench.driver.set_common(0x16, 2, 0);
        let _ = bench.driver.set_common(0x1a, 2, vector);
        assert!(bench.vhost.moved().read().is_ok());
        bench.vhost.reconnect(&bench.queues).unwrap();
        let [receive, transmit] = bench.calls().try_into().unwrap();
        assert_eq!(receive, Call::Interrupt(Ring::Receive, expected));
        assert_eq!(transmit, Call::Interrupt(Ring::Transmit, bench.interrupt(2)));
    }
    // The other queue, and nobody.
    let _ = bench.driver.set_common(0x16, 2, 1);
    let _ = bench.driver.set_common(0x1a, 2, 0);
    receive.watch_interrupt(None);
    let _ = bench.driver.set_common(0x16, 2, 0);
    let _ = bench.driver.set_common(0x1a, 2, 1);
    assert!(bench.vhost.moved().read().is_err());
}
