//! Whatever a guest does to configuration space and registers of two functions, in whatever order their owner gets to it:
//! their BARs never overlap, both can be saved and loaded, and work again after a reset.
#![no_main]

use std::sync::Arc;

use corten_devices::pci::{Ecam, Function, MappedBar, Ports, Root};
use corten_devices::testing::{Echo, FAKE_BAR, FakeDriver, FakeRing, guest_ram, wiring};
use corten_devices::virtio::{BAR_SIZE, GuestRam, QueueTask, Transport, VirtioPci};
use corten_devices::{Effect, Range, Records, Registers};
use libfuzzer_sys::fuzz_target;
use vm_memory::{Bytes, GuestAddress};

const SLOTS: [u8; 2] = [3, 4];
const QUEUES: [u16; 2] = [16, 64];
const APERTURE: Range = Range::new(0xc000_0000, 0x10_0000);
/// Where a driver's rings are, 4 KiB for each queue of each function.
const RINGS: u64 = 0x4000;

/// What to do, where, how long and with which value.
type Step = (u8, u32, u8, u64);

struct Place {
    function: Arc<VirtioPci<Echo>>,
    driver: FakeDriver,
    tasks: Vec<Box<dyn QueueTask>>,
}

struct Bench {
    root: Arc<Root>,
    ecam: Ecam,
    ports: Ports,
    places: Vec<Place>,
    ram: GuestRam,
    /// What the owner has not got to yet.
    effects: Vec<Effect>,
    bars: Vec<MappedBar>,
}

impl Bench {
    fn new(ram: GuestRam) -> Self {
        let root = Root::new(vec![APERTURE]);
        let place = |slot: u8| {
            let (mut wiring, _, _) = wiring(slot, QUEUES.len());
            wiring.ram = ram.clone();
            wiring.bar = GuestAddress(FAKE_BAR.0 + BAR_SIZE * u64::from(slot));
            let function = VirtioPci::new(Echo::new(&QUEUES), wiring).expect("it can be wired");
            root.insert(slot, Arc::clone(&function) as Arc<dyn Function>).expect("it is empty");
            let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
            Place { function, driver, tasks: Vec::new() }
        };
        let places = SLOTS.map(place).into();
        let (ecam, ports) = (Ecam(Arc::clone(&root)), Ports(Arc::clone(&root)));
        Self { root, ecam, ports, places, ram, effects: Vec::new(), bars: Vec::new() }
    }

    fn take(&mut self, (what, at, length, value): Step) {
        let bytes = value.to_le_bytes();
        let data = &bytes[..[1, 2, 4, 8][usize::from(length % 4)]];
        let slot = SLOTS[usize::from(length / 4 % 2)];
        match what % 9 {
            0 => self.access(at % 2 == 0, u64::from(at >> 1 & 0xf_ffff), data),
            // Mostly at registers of a function.
            1 => self.access(at % 2 == 0, u64::from(slot) << 15 | u64::from(at >> 1 & 0xff), data),
            2 => {
                let effect = self.ports.write(u64::from(at % 10), data);
                self.effects.push(effect);
                self.ports.read(u64::from(at % 10), &mut [0; 8][..data.len()]);
            }
            3 | 4 => {
                let Some(bar) = self.bars.get(usize::from(length / 4 % 2)) else { return };
                // More often than not in the common configuration.
                let offset = u64::from(at) % if what % 9 == 3 { 0x40 } else { BAR_SIZE };
                let effect = bar.registers.write(offset, data);
                bar.registers.read(offset, &mut [0; 8][..data.len()]);
                self.effects.push(effect);
            }
            5 => drop(self.ram.write_obj(value, GuestAddress(u64::from(at & 0xffff)))),
            6 => self.drive(usize::from(length / 4 % 2), at),
            7 => self.attend(),
            _ => self.replace(),
        }
    }

    fn access(&mut self, write: bool, offset: u64, data: &[u8]) {
        if write {
            let effect = self.ecam.write(offset, data);
            self.effects.push(effect);
        } else {
            self.ecam.read(offset, &mut [0; 8][..data.len()]);
        }
    }

    /// Something that a driver does right, whatever was before.
    fn drive(&mut self, place: usize, what: u32) {
        let driver = &self.places[place].driver;
        let ring = |queue: u16| ring_of(&self.ram, place, queue);
        let effect = match what % 6 {
            0 => driver.reset(),
            1 => {
                driver.negotiate(u64::from(what) << 24 & driver.offered() | FakeDriver::VERSION_1);
                // It begins with a reset.
                self.places[place].function.pending()
            }
            2 => {
                driver.set_up_queue(0, &ring(0), 1);
                Effect::None
            }
            3 => {
                driver.set_up_queue(1, &ring(1), 0xffff);
                Effect::None
            }
            4 => driver.ready(),
            _ => {
                driver.enable_msix(3);
                Effect::None
            }
        };
        self.effects.push(effect);
    }

    /// The owner's turn, and that of its workers.
    fn attend(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Activate { slot } => self.place(slot).activate(),
                Effect::Deactivate { slot } => self.place(slot).deactivate(),
                Effect::MoveBars { .. } => self.place_bars(),
                Effect::None => {}
                other => unreachable!("{other:?} is not a function's"),
            }
        }
        self.turn();
    }

    fn turn(&mut self) {
        self.places.iter_mut().flat_map(|place| &mut place.tasks).for_each(|task| task.on_event(0));
    }

    fn place(&mut self, slot: u8) -> &mut Place {
        let at = SLOTS.iter().position(|known| *known == slot).expect("it has a slot of these");
        &mut self.places[at]
    }

    fn place_bars(&mut self) {
        self.bars = self.root.bars();
        for (at, bar) in self.bars.iter().enumerate() {
            let (first, end) = (bar.range.base, bar.range.base + bar.range.size);
            assert!(first >= APERTURE.base && end <= APERTURE.base + APERTURE.size);
            let clear = |other: &MappedBar| {
                end <= other.range.base || other.range.base + other.range.size <= first
            };
            assert!(self.bars[..at].iter().all(clear), "{:?}", bar.range);
        }
    }

    fn save(&self) -> Records {
        let mut records = Records::default();
        self.root.save(&mut records).expect("a bus can be saved");
        for (place, slot) in self.places.iter().zip(SLOTS) {
            let saved = place.function.save(&slot.to_string(), &mut records);
            saved.expect("a function at rest can be saved");
        }
        records
    }

    /// Goes on as a machine that was saved. What the owner did not get to is lost.
    fn replace(&mut self) {
        self.places.iter_mut().for_each(Place::pause);
        let mut records = self.save();
        let mut next = Self::new(self.ram.clone());
        let before = records.clone();
        next.root.load(&mut records).expect("what was saved can be loaded");
        for (place, slot) in next.places.iter().zip(SLOTS) {
            let loaded = place.function.load(&slot.to_string(), &mut records);
            loaded.expect("what was saved can be loaded");
        }
        records.finish().expect("nothing is left");
        assert_eq!(next.save(), before);
        next.place_bars();
        next.places.iter_mut().for_each(Place::resume);
        *self = next;
    }

    /// As drivers do that come after this guest's.
    fn start_over(&mut self) {
        self.attend();
        for ((at, slot), place) in SLOTS.into_iter().enumerate().zip(&mut self.places) {
            if let Effect::Deactivate { .. } = place.driver.reset() {
                place.deactivate();
            }
            let _ = self.ram.write_slice(&[0; 0x1000], GuestAddress(RINGS + 0x2000 * at as u64));
            let mut ring = ring_of(&self.ram, at, 0);
            assert!(place.driver.negotiate(place.driver.offered()));
            assert!(place.driver.set_up_queue(0, &ring, 0xffff));
            assert_eq!(place.driver.ready(), Effect::Activate { slot });
            place.activate();
            ring.describe(0, (GuestAddress(0x1000), 8), FakeRing::NEXT, 1);
            ring.describe(1, (GuestAddress(0x2000), 8), FakeRing::WRITE, 0);
            ring.offer(0);
            place.tasks.iter_mut().for_each(|task| task.on_event(0));
            assert_eq!(ring.take_used(), [(0, 8)]);
        }
    }
}

impl Place {
    fn activate(&mut self) {
        let mut tasks = self.function.activate().expect("an echo needs nothing");
        tasks.iter_mut().for_each(|task| task.rearm());
        self.tasks.append(&mut tasks);
    }

    fn pause(&mut self) {
        let mut tasks = std::mem::take(&mut self.tasks);
        for task in &mut tasks {
            assert_eq!(task.drain().expect("an echo can be asked"), 0);
        }
        self.function.reclaim(tasks).expect("these are its tasks");
    }

    fn deactivate(&mut self) {
        if let Effect::Deactivate { .. } = self.function.pending() {
            self.pause();
            self.function.deactivated().expect("no task is out");
        }
    }

    fn resume(&mut self) {
        match self.function.pending() {
            Effect::Activate { .. } => self.activate(),
            Effect::Deactivate { .. } => {
                self.function.deactivated().expect("no task is out");
            }
            _ => {}
        }
        self.function.resumed();
    }
}

fn ring_of(ram: &GuestRam, place: usize, queue: u16) -> FakeRing {
    let base = RINGS + 0x2000 * place as u64 + 0x1000 * u64::from(queue);
    FakeRing::new(ram, GuestAddress(base), 16)
}

fuzz_target!(|input: (Vec<Step>, &[u8])| {
    let (steps, memory) = input;
    let ram = guest_ram();
    let _ = ram.write(memory, GuestAddress(0));
    let mut bench = Bench::new(ram);
    // As the machine's firmware would: both BARs answer.
    for slot in SLOTS {
        let _ = bench.ecam.write(u64::from(slot) << 15 | 4, &[6, 0]);
    }
    bench.place_bars();
    for step in steps {
        bench.take(step);
    }
    bench.attend();
    bench.replace();
    bench.start_over();
});
