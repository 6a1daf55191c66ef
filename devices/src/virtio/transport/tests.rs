//! The transport as a driver and the machine's owner drive it.

mod saved;

use vm_memory::Bytes;

use super::*;
use crate::pci::{Ecam, Root};
use crate::testing::{
    ECHO_FEATURE, Echo, FAKE_BAR, FakeDriver, FakeRing, FakeRoutes, was_raised, wiring,
};
use crate::{Bus, Range};

const SLOT: u8 = 3;
const FEATURES: u64 = FakeDriver::VERSION_1 | FakeDriver::EVENT_IDX | ECHO_FEATURE;
const ACTIVATE: Effect = Effect::Activate { slot: SLOT };
const DEACTIVATE: Effect = Effect::Deactivate { slot: SLOT };
const MOVE_BARS: Effect = Effect::MoveBars { slot: SLOT };

/// A function with two queues of up to 16 descriptors, its driver, and the owner with the tasks.
struct Bench {
    function: Arc<VirtioPci<Echo>>,
    driver: FakeDriver,
    ram: GuestRam,
    interrupts: Vec<Interrupt>,
    routes: Arc<FakeRoutes>,
    tasks: Vec<Box<dyn QueueTask>>,
}

impl Bench {
    fn new() -> Self {
        Self::with(Echo::new(&[16, 16]))
    }

    fn with(device: Echo) -> Self {
        let (wiring, interrupts, routes) = wiring(SLOT, 2);
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(device, wiring).unwrap();
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        Self { function, driver, ram, interrupts, routes, tasks: Vec::new() }
    }

    fn ring(&self, queue: u64) -> FakeRing {
        FakeRing::new(&self.ram, GuestAddress(0x1000 * (1 + queue)), 8)
    }

    /// Up to a driver that is ready and a device at work, with both queues.
    fn running() -> (Self, FakeRing) {
        let mut bench = Self::new();
        let ring = bench.set_up();
        assert_eq!(bench.driver.ready(), ACTIVATE);
        bench.resume();
        (bench, ring)
    }

    /// Up to a driver that is about to say it is ready.
    fn set_up(&self) -> FakeRing {
        assert!(self.driver.negotiate(FEATURES));
        self.driver.enable_msix(3);
        let _ = self.driver.set_common(0x10, 2, 0);
        let (first, second) = (self.ring(0), self.ring(1));
        assert!(self.driver.set_up_queue(0, &first, 1));
        assert!(self.driver.set_up_queue(1, &second, 2));
        first
    }

    /// As the owner and a worker do.
    fn resume(&mut self) {
        self.tasks = self.function.activate().unwrap();
        self.tasks.iter_mut().for_each(|task| task.rearm());
        self.function.resumed();
    }

    fn pause(&mut self) {
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.iter_mut().for_each(|task| assert_eq!(task.drain().unwrap(), 0));
        self.function.reclaim(tasks).unwrap();
    }

    /// A worker's turn.
    fn work(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.on_event(0));
    }

    fn raised(&self) -> [bool; 3] {
        [0, 1, 2].map(|vector| was_raised(&self.interrupts[vector]))
    }

    fn save(&self) -> Records {
        let mut records = Records::default();
        self.function.save("3", &mut records).unwrap();
        records
    }

    fn load(&self, records: &Records) -> Result<(), RecordError> {
        let mut records = records.clone();
        self.function.load("3", &mut records)?;
        records.finish()
    }

    fn state(&self) -> TransportState {
        self.function.state(&lock(&self.function.inner))
    }
}

/// Asks the device to repeat "corten" from 0x8000 to 0x9000.
fn ask(bench: &Bench, ring: &mut FakeRing) {
    bench.ram.write_slice(b"corten", GuestAddress(0x8000)).unwrap();
    ring.describe(0, (GuestAddress(0x8000), 6), FakeRing::NEXT, 1);
    ring.describe(1, (GuestAddress(0x9000), 16), FakeRing::WRITE, 0);
    ring.offer(0);
}

fn answer(bench: &Bench) -> [u8; 6] {
    bench.ram.read_obj(GuestAddress(0x9000)).unwrap()
}

#[test]
fn linux_finds_the_function_and_sizes_its_bar() {
    let bench = Bench::new();
    let root = Root::new(vec![Range::new(0xc000_0000, 0x1000_0000)]);
    root.insert(SLOT, Arc::clone(&bench.function) as _).unwrap();
    let ecam = Ecam(Arc::clone(&root));
    let at = |register| u64::from(SLOT) << 15 | register;
    let read = |register| {
        let mut data = [0; 4];
        ecam.read(at(register), &mut data);
        u32::from_le_bytes(data)
    };
    let write = |register, value: u32| ecam.write(at(register), &value.to_le_bytes());
    assert_eq!(read(0x00), 0x107f_1af4);
    assert_eq!(read(0x08), 0x00ff_0001);
    assert_eq!(read(0x0c) >> 16 & 0xff, 0, "one function, no bridge");
    assert_eq!(read(0x2c), 0x1100_1af4);
    assert_eq!(read(0x3c), 0, "no interrupt pin");
    assert_eq!(read(0x10), 0xc000_0000);
    assert!(root.bars().is_empty());
    assert_eq!(write(0x10, 0xffff_ffff), Effect::None);
    assert_eq!(read(0x10), 0xffff_8000);
    assert_eq!(write(0x10, 0xc000_0000), Effect::None);
    for register in [0x14, 0x18, 0x1c, 0x20, 0x24, 0x30] {
        assert_eq!(write(register, 0xffff_ffff), Effect::None);
        assert_eq!(read(register), 0);
    }
    assert_eq!(write(0x04, 0x0406), MOVE_BARS);
    let bars = root.bars();
    assert_eq!(bars.len(), 1);
    assert_eq!((bars[0].slot, bars[0].bar), (SLOT, BAR));
    assert_eq!(bars[0].range, Range::new(0xc000_0000, BAR_SIZE));
}

#[test]
fn capabilities_are_those_of_a_modern_device() {
    let bench = Bench::new();
    let kind = |(id, at)| (id, if id == 9 { bench.driver.configuration(at + 3, 1) } else { 0 });
    let found: Vec<_> = bench.driver.capabilities().into_iter().map(kind).collect();
    assert_eq!(found, [(0x11, 0), (9, 1), (9, 3), (9, 4), (9, 2), (9, 5)]);
    let msix = bench.driver.capabilities()[0].1;
    assert_eq!(bench.driver.configuration(msix + 2, 2), 2, "three vectors, disabled");
    let (_, notify) = bench.driver.capabilities()[4];
    assert_eq!(bench.driver.configuration(notify + 16, 4), NOTIFY_STEP);
}

#[test]
fn moved_bar_takes_its_doorbells_along() {
    let bench = Bench::new();
    let root = Root::new(vec![Range::new(0xc000_0000, 0x1000_0000)]);
    root.insert(SLOT, Arc::clone(&bench.function) as _).unwrap();
    assert_eq!(bench.driver.configure(4, 2, 2), MOVE_BARS);
    let addresses = || root.doorbells().iter().map(|bell| bell.address.0).collect::<Vec<_>>();
    assert_eq!(addresses(), [0xc000_3000, 0xc000_3004]);
    assert_eq!(bench.driver.configure(0x10, 4, 0xc100_0000), MOVE_BARS);
    assert_eq!(addresses(), [0xc100_3000, 0xc100_3004]);
    let mut bus = Bus::default();
    for bar in root.bars() {
        bus.insert(bar.range, bar.registers).unwrap();
    }
    assert_eq!(bus.write(0xc100_3004, &[1, 0]), Effect::None);
    let rang = root.doorbells().iter().map(|bell| bell.eventfd.read().is_ok()).collect::<Vec<_>>();
    assert_eq!(rang, [false, true]);
    assert_eq!(bench.driver.configure(0x10, 4, 0xffff_ffff), MOVE_BARS);
    assert_eq!(addresses(), [0; 0], "outside of the aperture");
    assert_eq!(bench.driver.configure(4, 2, 0), MOVE_BARS);
}

#[test]
fn driver_gets_an_answer() {
    let (mut bench, mut ring) = Bench::running();
    assert_eq!(bench.raised(), [false, true, true], "re-armed");
    ring.set_used_event(0);
    ask(&bench, &mut ring);
    bench.driver.ring(0);
    bench.work();
    assert_eq!(ring.take_used(), [(0, 6)]);
    assert_eq!(&answer(&bench), b"corten");
    assert_eq!(bench.raised(), [false, true, false]);
    assert_eq!(bench.driver.take_isr(), 0);
    assert_eq!(bench.function.faults(), Faults::default());
    assert_eq!(bench.routes.connected().len(), 3);
}

#[test]
fn features_that_cannot_be_are_refused() {
    let bench = Bench::new();
    assert_eq!(bench.driver.offered(), FEATURES | 1 << 28);
    assert!(!bench.driver.negotiate(ECHO_FEATURE), "without VERSION_1");
    assert!(!bench.driver.negotiate(FEATURES | 1 << 40), "never offered");
    assert_eq!(bench.function.faults().features, 2);
    let _ = bench.driver.set_common(0x00, 4, 7);
    assert_eq!(bench.driver.common(0x04, 4), 0);
    assert!(bench.driver.negotiate(FakeDriver::VERSION_1));
    let _ = bench.driver.set_common(0x0c, 4, 0);
    assert_eq!(bench.driver.common(0x0c, 4), 1, "settled");
}

#[test]
fn status_takes_its_steps_in_order() {
    let bench = Bench::new();
    assert_eq!(bench.driver.ready(), Effect::None);
    assert_eq!(bench.driver.status(), 0);
    let _ = bench.driver.add_status(FakeDriver::FEATURES_OK);
    assert_eq!(bench.driver.status(), 0);
    assert!(bench.driver.negotiate(FEATURES));
    let before = bench.driver.status();
    assert_eq!(bench.driver.set_common(0x14, 1, 1), Effect::None);
    assert_eq!(bench.driver.status(), before, "bits are only ever added");
    assert_eq!(bench.driver.ready(), ACTIVATE);
    assert_eq!(bench.driver.ready(), Effect::None, "once");
    assert!(bench.function.faults().registers >= 2);
}

#[test]
fn queues_that_cannot_be_are_not_enabled() {
    let bench = Bench::new();
    let ring_at = |address| FakeRing::new(&bench.ram, GuestAddress(address), 8);
    assert!(!bench.driver.set_up_queue(0, &bench.ring(0), 0xffff), "before features");
    assert!(bench.driver.negotiate(FEATURES));
    for (descriptors, available, used) in [
        (0x1008, 0x1400, 0x1800),
        (0x1000, 0x1401, 0x1800),
        (0x1000, 0x1400, 0x1802),
        (0x1000, 0, 0x1800),
        (0xff90, 0x1400, 0x1800),
        (0x1000, 0x1_0000, 0x1800),
        (0x1000, 0x1400, 0xffbc),
        (!0xf, 0x1400, 0x1800),
        (0x1000, !1, 0x1800),
        (0x1000, 0x1400, !3),
    ] {
        let _ = bench.driver.set_common(0x18, 2, 8);
        let _ = bench.driver.set_common(0x20, 8, descriptors);
        let _ = bench.driver.set_common(0x28, 8, available);
        let _ = bench.driver.set_common(0x30, 8, used);
        let _ = bench.driver.set_common(0x1c, 2, 1);
        assert_eq!(bench.driver.common(0x1c, 2), 0, "{descriptors:#x} {available:#x} {used:#x}");
    }
    assert_eq!(bench.function.faults().queues, 11);
    assert!(!bench.driver.set_up_queue(2, &ring_at(0x1000), 0xffff), "no such queue");
    assert!(!bench.driver.set_up_queue(0, &ring_at(0x1000), 3), "no such vector");
    assert_eq!(bench.driver.common(0x1c, 2), 1);
    assert!(bench.driver.set_up_queue(1, &ring_at(0x2000), 2));
}

#[test]
fn queue_sizes_are_powers_of_two_up_to_the_largest() {
    let bench = Bench::new();
    assert_eq!(bench.driver.common(0x12, 2), 2);
    assert_eq!(bench.driver.common(0x18, 2), 16);
    for (written, read) in [(8, 8), (0, 8), (3, 8), (32, 8), (1, 1), (16, 16)] {
        let _ = bench.driver.set_common(0x18, 2, written);
        assert_eq!(bench.driver.common(0x18, 2), read, "{written}");
    }
    let _ = bench.driver.set_common(0x16, 2, 2);
    assert_eq!(bench.driver.common(0x18, 2), 0, "no such queue");
    assert_eq!(bench.driver.common(0x1a, 2), 0xffff);
}

#[test]
fn queue_is_not_enabled_by_a_driver_that_was_ready() {
    let bench = Bench::new();
    assert!(bench.driver.negotiate(FEATURES));
    assert_eq!(bench.driver.ready(), ACTIVATE);
    assert!(!bench.driver.set_up_queue(0, &bench.ring(0), 0xffff));
}

#[test]
fn reset_leaves_nothing_of_the_driver() {
    let bench = Bench::new();
    bench.set_up();
    bench.driver.set_config(0, b"greeting");
    bench.driver.ring(1);
    assert_eq!(bench.driver.reset(), Effect::None);
    let fresh = Bench::new().state();
    assert_eq!(
        bench.state(),
        TransportState { configuration: bench.state().configuration, ..fresh }
    );
    let mut config = [0xaa; 8];
    bench.driver.config(0, &mut config);
    assert_eq!(config, [0; 8]);
    assert!(bench.function.doorbells.iter().all(|doorbell| doorbell.read().is_err()));
}

#[test]
fn enabled_queue_cannot_be_changed() {
    let bench = Bench::new();
    bench.set_up();
    let before = bench.state().queues;
    let _ = bench.driver.set_common(0x18, 2, 2);
    let _ = bench.driver.set_common(0x20, 4, 0x5000);
    let _ = bench.driver.set_common(0x1c, 2, 0);
    assert_eq!(bench.state().queues, before);
}

#[test]
fn status_stays_until_the_owner_has_the_queues() {
    let (mut bench, _ring) = Bench::running();
    assert_eq!(bench.driver.reset(), DEACTIVATE);
    assert_ne!(bench.driver.status(), 0);
    assert_eq!(bench.driver.reset(), Effect::None);
    assert_eq!(bench.function.pending(), DEACTIVATE);
    assert_eq!(bench.function.deactivated(), Err(ReclaimError::StillOut));
    let _ = bench.driver.set_common(0x16, 2, 0);
    assert_eq!(bench.driver.common(0x16, 2), 1, "nothing changes meanwhile");
    bench.pause();
    assert_ne!(bench.driver.status(), 0);
    bench.function.deactivated().unwrap();
    assert_eq!(bench.driver.status(), 0);
    assert_eq!(bench.function.pending(), Effect::None);
    assert_eq!(bench.state().config_vector, 0xffff);
    assert!(bench.state().queues.iter().all(|queue| !queue.enabled && queue.vector == 0xffff));
    assert_eq!(bench.routes.connected().len(), 3, "MSI-X is PCI's");
}

#[test]
fn driver_can_start_again_after_a_reset() {
    let (mut bench, mut ring) = Bench::running();
    ask(&bench, &mut ring);
    bench.work();
    assert_eq!(bench.driver.reset(), DEACTIVATE);
    bench.pause();
    bench.function.deactivated().unwrap();
    ring = bench.set_up();
    ring.set_available_index(0);
    assert_eq!(bench.driver.ready(), ACTIVATE);
    bench.resume();
    ask(&bench, &mut ring);
    bench.work();
    assert_eq!(ring.take_used(), [(0, 6)]);
}

#[test]
fn driver_that_changed_its_mind_before_the_owner_looked_is_reset() {
    let bench = Bench::new();
    bench.set_up();
    assert_eq!(bench.driver.ready(), ACTIVATE);
    assert_eq!(bench.driver.reset(), DEACTIVATE);
    assert!(bench.function.activate().unwrap().is_empty());
    bench.function.reclaim(Vec::new()).unwrap();
    bench.function.deactivated().unwrap();
    assert_eq!(bench.driver.status(), 0);
}

#[test]
fn broken_ring_asks_for_a_reset() {
    let (mut bench, mut ring) = Bench::running();
    assert_eq!(bench.raised(), [false, true, true]);
    ring.set_available_index(9);
    bench.work();
    assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0);
    assert_eq!(bench.raised(), [true, false, false]);
    assert_eq!(bench.function.faults().rings, 1);
    bench.pause();
    let records = bench.save();
    let mut loaded = Bench::new();
    loaded.load(&records).unwrap();
    assert_eq!(loaded.save(), records);
    loaded.resume();
    assert!(loaded.tasks.is_empty());
    assert_eq!(loaded.raised(), [true, false, false], "told again");
    assert_eq!(loaded.driver.reset(), DEACTIVATE);
    loaded.pause();
    loaded.function.deactivated().unwrap();
    assert_eq!(loaded.driver.status(), 0);
}

#[test]
fn device_that_cannot_start_asks_for_a_reset() {
    let mut device = Echo::new(&[16, 16]);
    device.needed = 1;
    let bench = Bench::with(device);
    assert!(bench.driver.negotiate(FEATURES));
    assert_eq!(bench.driver.ready(), ACTIVATE);
    let refused = bench.function.activate().map(|tasks| tasks.len());
    assert!(matches!(refused, Err(ActivateError::MissingQueue { queue: 0 })));
    assert_ne!(bench.driver.status() & FakeDriver::NEEDS_RESET, 0);
    assert_eq!(bench.driver.reset(), DEACTIVATE);
    bench.function.reclaim(Vec::new()).unwrap();
    bench.function.deactivated().unwrap();
    assert_eq!(bench.driver.status(), 0);
}

#[test]
fn paused_device_goes_on_where_it_was() {
    let (mut bench, mut ring) = Bench::running();
    for _ in 0..11 {
        ask(&bench, &mut ring);
        bench.work();
        bench.pause();
        assert_eq!(ring.take_used(), [(0, 6)]);
        assert_eq!(bench.function.pending(), ACTIVATE);
        bench.resume();
    }
    bench.pause();
    assert_eq!(bench.function.device(Echo::served), 11);
    assert_eq!(bench.state().queues[0].next_available, 11);
}

#[test]
fn loaded_device_sees_a_request_whose_doorbell_was_lost() {
    let (mut bench, mut ring) = Bench::running();
    ask(&bench, &mut ring);
    bench.work();
    ring.take_used();
    bench.driver.set_config(2, b"x");
    ask(&bench, &mut ring);
    bench.driver.ring(0);
    bench.pause();
    let records = bench.save();

    let mut loaded = Bench::new();
    let mut memory = vec![0; 0x1_0000];
    bench.ram.read_slice(&mut memory, GuestAddress(0)).unwrap();
    loaded.ram.write_slice(&memory, GuestAddress(0)).unwrap();
    loaded.load(&records).unwrap();
    assert_eq!(loaded.save(), records);
    assert_eq!(loaded.function.pending(), ACTIVATE);
    assert_eq!(loaded.routes.connected(), bench.routes.connected());
    loaded.resume();
    assert_eq!(loaded.raised(), [false, true, true]);
    loaded.work();
    let mut config = [0; 4];
    loaded.driver.config(0, &mut config);
    assert_eq!(&config, b"\0\0x\0");
    loaded.pause();
    assert_eq!(loaded.function.device(Echo::served), 2);
    assert_eq!(loaded.state().queues[0].next_used, 2);
}

#[test]
fn reset_that_was_under_way_is_ended_after_a_load() {
    let (mut bench, _ring) = Bench::running();
    assert_eq!(bench.driver.reset(), DEACTIVATE);
    bench.pause();
    let records = bench.save();
    let loaded = Bench::new();
    loaded.load(&records).unwrap();
    assert_ne!(loaded.driver.status(), 0);
    assert_eq!(loaded.function.pending(), DEACTIVATE);
    loaded.function.deactivated().unwrap();
    assert_eq!(loaded.driver.status(), 0);
}

#[test]
fn device_at_work_is_neither_saved_nor_loaded() {
    let (mut bench, _ring) = Bench::running();
    let error = bench.function.save("3", &mut Records::default()).unwrap_err();
    let text = "the record virtio-pci 3 is impossible: its queues are at work";
    assert_eq!(error.to_string(), text);
    bench.pause();
    let records = bench.save();
    assert!(bench.load(&records).is_err());
}

#[test]
fn owner_that_mixes_tasks_up_is_told() {
    let (mut bench, _ring) = Bench::running();
    let (mut other, _ring) = Bench::running();
    let one = bench.tasks.split_off(1);
    let given = vec![0, 1];
    let expected = Err(ReclaimError::Queues { given, back: vec![1] });
    assert_eq!(bench.function.reclaim(one), expected);
    let idle = Bench::new();
    assert_eq!(idle.function.reclaim(std::mem::take(&mut other.tasks)), Err(ReclaimError::NotOut));
}

#[test]
fn changed_configuration_is_told() {
    let (bench, _ring) = Bench::running();
    bench.raised();
    assert_eq!(bench.driver.common(0x15, 1), 0);
    bench.function.change_config(|echo| echo.state().config[0] = 9);
    assert_eq!(bench.driver.common(0x15, 1), 1);
    assert_eq!(bench.raised(), [true, false, false]);
    let mut config = [0];
    bench.driver.config(0, &mut config);
    assert_eq!(config, [9]);
}

#[test]
fn driver_without_msix_can_poll() {
    let mut bench = Bench::new();
    assert!(bench.driver.negotiate(FakeDriver::VERSION_1));
    let mut ring = bench.ring(0);
    assert!(bench.driver.set_up_queue(0, &ring, 0xffff));
    assert_eq!(bench.driver.ready(), ACTIVATE);
    bench.resume();
    assert_eq!(bench.driver.take_isr(), 1);
    ask(&bench, &mut ring);
    bench.work();
    assert_eq!(bench.driver.take_isr(), 1);
    assert_eq!(bench.driver.take_isr(), 0);
    bench.function.change_config(|_| ());
    assert_eq!(bench.driver.take_isr(), 2);
}

#[test]
fn masked_queue_vector_pends_over_a_load() {
    let (mut bench, mut ring) = Bench::running();
    bench.raised();
    bench.driver.set_vector(1, 3, 1);
    ring.set_used_event(0);
    ask(&bench, &mut ring);
    bench.work();
    assert_eq!(bench.raised(), [false; 3]);
    bench.pause();
    let loaded = Bench::new();
    loaded.load(&bench.save()).unwrap();
    assert_eq!(loaded.raised(), [false; 3]);
    loaded.driver.set_vector(1, 3, 0);
    assert_eq!(loaded.raised(), [false, true, false]);
}

#[test]
fn window_in_configuration_space_reaches_the_bar() {
    let bench = Bench::new();
    let (_, window) = bench.driver.capabilities()[5];
    let aim = |bar, offset, length| {
        let _ = bench.driver.configure(window + 4, 1, bar);
        let _ = bench.driver.configure(window + 8, 4, offset);
        let _ = bench.driver.configure(window + 12, 4, length);
    };
    aim(0, 0x12, 2);
    assert_eq!(bench.driver.configuration(window + 16, 2), 2, "number of queues");
    aim(0, 0x14, 1);
    assert_eq!(bench.driver.configure(window + 16, 1, 3), Effect::None);
    assert_eq!(bench.driver.status(), 3);
    for (bar, offset, length) in [(1, 0x14, 1), (0, 0x14, 3), (0, 0x15, 2), (0, !3, 4), (0, 0, 0)] {
        aim(bar, offset, length);
        assert_eq!(bench.driver.configuration(window + 16, 4), !0);
        assert_eq!(bench.driver.configure(window + 16, 4, 0), Effect::None);
    }
    assert_eq!(bench.driver.status(), 3);
    bench.set_up();
    aim(0, 0x14, 1);
    assert_eq!(bench.driver.configure(window + 16, 1, 15), ACTIVATE);
}

#[test]
fn wiring_that_does_not_fit_is_refused() {
    let make = |sizes: &[u16], queues, bar| {
        let (wiring, _, _) = wiring(SLOT, queues);
        VirtioPci::new(Echo::new(sizes), Wiring { bar, ..wiring }).map(|_| ())
    };
    assert!(make(&[16], 1, FAKE_BAR).is_ok());
    assert!(matches!(make(&[12], 1, FAKE_BAR), Err(WiringError::Queues(_))));
    assert!(matches!(make(&[0], 1, FAKE_BAR), Err(WiringError::Queues(_))));
    assert!(matches!(make(&[2; 256], 256, FAKE_BAR), Err(WiringError::Queues(_))));
    assert!(matches!(make(&[16], 2, FAKE_BAR), Err(WiringError::Interrupts { .. })));
    let misplaced = make(&[16], 1, GuestAddress(0x1000));
    assert!(matches!(misplaced, Err(WiringError::Configuration(_))));
}
