//! Whatever a driver has in its rings and in its memory: a queue gives chains and takes them back, can be saved wherever it
//! is, and works again after a reset.
#![no_main]

use std::sync::Arc;

use corten_devices::testing::{Echo, FakeDriver, FakeRing, give_back, hand_on, take_up, wiring};
use corten_devices::virtio::{GuestRam, QueueTask, Transport, VirtioPci};
use libfuzzer_sys::fuzz_target;
use vm_memory::{Bytes, GuestAddress};

const SIZE: u16 = 64;
/// A driver can lay its rings on top of each other so that the device has work for ever; it just must not take it whole.
const TURNS: usize = 16;

/// Size, features and where the rings are.
type Shape = (u8, u8, u16, u16, u16);
/// What to do, a place and a number for it.
type Step = (u8, u16, u64);

struct Bench {
    function: Arc<VirtioPci<Echo>>,
    driver: FakeDriver,
    ram: GuestRam,
    tasks: Vec<Box<dyn QueueTask>>,
}

impl Bench {
    fn new(ram: Option<GuestRam>) -> Self {
        let (mut wiring, _, _) = wiring(3, 1);
        if let Some(ram) = ram {
            wiring.ram = ram;
        }
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(Echo::new(&[SIZE]), wiring).expect("it can be wired");
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        Self { function, driver, ram, tasks: Vec::new() }
    }

    /// False if the rings cannot be there.
    fn start(&mut self, (size, features, descriptors, available, used): Shape) -> bool {
        let event_idx = if features & 1 == 0 { 0 } else { FakeDriver::EVENT_IDX };
        assert!(self.driver.negotiate(FakeDriver::VERSION_1 | event_idx));
        let _ = self.driver.set_common(0x18, 2, 1 << (size % 7));
        for (register, address) in [(0x20, descriptors), (0x28, available), (0x30, used)] {
            let _ = self.driver.set_common(register, 8, u64::from(address));
        }
        let _ = self.driver.set_common(0x1c, 2, 1);
        let is_enabled = self.driver.common(0x1c, 2) == 1;
        let _ = self.driver.ready();
        self.resume();
        is_enabled
    }

    fn resume(&mut self) {
        self.tasks = take_up(&*self.function);
    }

    fn pause(&mut self) {
        give_back(&*self.function, std::mem::take(&mut self.tasks));
    }

    fn turn(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.on_event(0));
    }

    /// Goes on as one that was saved.
    fn replace(&mut self) {
        self.pause();
        let mut next = Self::new(Some(self.ram.clone()));
        hand_on(&*self.function, &*next.function);
        next.resume();
        *self = next;
    }

    fn take(&mut self, (_, _, _, available, _): Shape, (what, place, number): Step) {
        match what % 4 {
            // Where there is no memory, nothing is written.
            0 => drop(self.ram.write_obj(number, GuestAddress(place.into()))),
            1 => {
                let index = GuestAddress(u64::from(available) + 2);
                drop(self.ram.write_obj(place, index));
                self.turn();
            }
            2 => self.turn(),
            _ => self.replace(),
        }
    }

    /// As a driver does that comes after this one.
    fn start_over(&mut self) {
        let _ = self.driver.reset();
        self.pause();
        self.function.deactivated().expect("no task is out");
        self.ram.write_slice(&[0; 0x1000], GuestAddress(0x1000)).expect("it is in memory");
        let mut ring = FakeRing::new(&self.ram, GuestAddress(0x1000), 16);
        assert!(self.driver.negotiate(self.driver.offered()));
        assert!(self.driver.set_up_queue(0, &ring, 0xffff));
        let _ = self.driver.ready();
        self.resume();
        ring.describe(0, (GuestAddress(0x3000), 8), FakeRing::NEXT, 1);
        ring.describe(1, (GuestAddress(0x4000), 8), FakeRing::WRITE, 0);
        ring.offer(0);
        self.turn();
        assert_eq!(ring.take_used(), [(0, 8)]);
    }
}

fuzz_target!(|input: (Shape, Vec<Step>, &[u8])| {
    let (shape, steps, memory) = input;
    let mut bench = Bench::new(None);
    let _ = bench.ram.write(memory, GuestAddress(0));
    if bench.start(shape) {
        for step in steps {
            bench.take(shape, step);
        }
        (0..TURNS).for_each(|_| bench.turn());
        bench.replace();
    }
    bench.start_over();
});
