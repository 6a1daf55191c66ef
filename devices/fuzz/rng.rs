//! Whatever a driver describes and rings for, an entropy device comes to rest, can be saved, and goes on in another process.
#![no_main]

use std::num::NonZeroU64;
use std::sync::Arc;

use corten_devices::rng::Rng;
use corten_devices::testing::{
    FakeDriver, FakeRing, copy_ram, give_back, hand_on, settle, take_up, wiring,
};
use corten_devices::virtio::{GuestRam, QueueTask, VirtioPci};
use corten_devices::{RateLimit, RateLimits};
use libfuzzer_sys::fuzz_target;
use vm_memory::GuestAddress;

const RING: GuestAddress = GuestAddress(0x1000);

/// What to do, a number for it, an address, a length, and flags.
type Step = (u8, u16, u64, u32, u16);

struct Bench {
    function: Arc<VirtioPci<Rng>>,
    driver: FakeDriver,
    ram: GuestRam,
    tasks: Vec<Box<dyn QueueTask>>,
}

impl Bench {
    fn new(has_limit: bool) -> Self {
        let number = NonZeroU64::MIN.saturating_add(0x1_0000);
        let limit = has_limit.then_some(RateLimit { per_second: number, burst: number });
        let rng = Rng::new(RateLimits { bytes: limit, operations: None }).expect("it can be made");
        let (wiring, _, _) = wiring(3, 1);
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(rng, wiring).expect("it can be wired");
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        Self { function, driver, ram, tasks: Vec::new() }
    }

    fn start(&mut self, ring: &FakeRing) {
        assert!(self.driver.negotiate(self.driver.offered()));
        assert!(self.driver.set_up_queue(0, ring, 0xffff));
        let _ = self.driver.ready();
        self.resume();
    }

    fn resume(&mut self) {
        self.tasks = take_up(&*self.function);
    }

    fn pause(&mut self) {
        give_back(&*self.function, std::mem::take(&mut self.tasks));
    }

    /// Goes on as one that was saved.
    fn replace(&mut self, ring: &mut FakeRing) {
        self.pause();
        let mut next = Self::new(false);
        copy_ram(&self.ram, &next.ram);
        hand_on(&*self.function, &*next.function);
        next.resume();
        ring.move_to(&next.ram);
        *self = next;
    }

    fn settle(&mut self) {
        settle(&mut self.tasks);
    }

    fn take(&mut self, ring: &mut FakeRing, (what, number, address, length, flags): Step) {
        match what % 8 {
            0..3 => {
                let [index, next] = number.to_le_bytes().map(|byte| u16::from(byte % 17));
                let address = if what & 0x80 == 0 { address % 0x1_1000 } else { address };
                ring.describe(index, (GuestAddress(address), length), flags, next);
            }
            3..6 => {
                ring.offer(number % 17);
                self.driver.ring(0);
            }
            6 if what & 0x80 == 0 => self.replace(ring),
            6 => ring.set_available_index(number),
            _ => self.driver.set_config(number.into(), &length.to_le_bytes()),
        }
        self.settle();
    }
}

fuzz_target!(|input: (bool, Vec<Step>)| {
    let (has_limit, steps) = input;
    let mut bench = Bench::new(has_limit);
    let mut ring = FakeRing::new(&bench.ram, RING, 16);
    bench.start(&ring);
    steps.into_iter().take(200).for_each(|step| bench.take(&mut ring, step));
    bench.replace(&mut ring);
    bench.settle();
});
