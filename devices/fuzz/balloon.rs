//! Whatever a driver puts into memory and rings, a balloon comes to rest, can be saved, and goes on in another process.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use corten_devices::balloon::{Balloon, BalloonConfig};
use corten_devices::testing::{
    FakeDriver, FakeRing, give_back, hand_on, settle, shared_guest_ram, take_up, turn, wiring,
};
use corten_devices::virtio::{GuestRam, QueueTask, VirtioPci};
use libfuzzer_sys::fuzz_target;
use vm_memory::{Bytes, GuestAddress};

const QUEUES: u16 = 5;
const LOW: usize = 2 << 20;
const HIGH: u64 = 4 << 20;

/// What to do, a number for it, a buffer, and bytes.
type Step = (u8, u16, u64, u32, Vec<u8>);

struct Bench {
    function: Arc<VirtioPci<Balloon>>,
    driver: FakeDriver,
    ram: GuestRam,
    tasks: Vec<Box<dyn QueueTask>>,
}

impl Bench {
    fn new(ram: GuestRam) -> Self {
        let (mut wiring, _, _) = wiring(3, QUEUES.into());
        wiring.ram = ram.clone();
        let config = BalloonConfig { deflate_on_oom: true, reporting: true };
        let balloon = Balloon::new(config).expect("a timer can be made");
        let function = VirtioPci::new(balloon, wiring).expect("a balloon is a function");
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        Self { function, driver, ram, tasks: Vec::new() }
    }

    fn start(&mut self, rings: &[FakeRing]) {
        assert!(self.driver.negotiate(self.driver.offered()));
        for (queue, ring) in (0..).zip(rings) {
            // Without vectors.
            assert!(self.driver.set_up_queue(queue, ring, 0xffff));
        }
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
    fn replace(&mut self) {
        self.pause();
        let mut next = Self::new(self.ram.clone());
        hand_on(&*self.function, &*next.function);
        next.resume();
        *self = next;
    }

    fn take(&mut self, rings: &mut [FakeRing], (what, number, address, length, bytes): Step) {
        let [low, high] = number.to_le_bytes();
        let queue = u16::from(high) % QUEUES;
        let ring = &mut rings[usize::from(queue)];
        match what % 8 {
            0 => {
                let [flags, next] = [0, 1].map(|at| u16::from(bytes.get(at).copied().unwrap_or(0)));
                let buffer = (GuestAddress(address), length);
                ring.describe(u16::from(low % 17), buffer, flags, next);
            }
            1 => {
                ring.offer(u16::from(low % 17));
                self.driver.ring(queue);
            }
            2 => ring.set_available_index(number),
            // Where there is no memory, nothing is written.
            3 => drop(self.ram.write_slice(&bytes, GuestAddress(address % LOW as u64))),
            4 => self.driver.set_config(u64::from(low % 16), &bytes[..bytes.len().min(4)]),
            5 => {
                let soon = Some(Duration::from_nanos(length.into()));
                self.function.device(|balloon| balloon.set_statistics_interval(soon));
                let _ = turn(&mut self.tasks);
                self.function.device(|balloon| balloon.set_statistics_interval(None));
            }
            6 => self.replace(),
            _ => {
                let _ = turn(&mut self.tasks);
            }
        }
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let (ram, _file) = shared_guest_ram(&[(GuestAddress(0), LOW), (GuestAddress(HIGH), 0x1_0000)]);
    let ring = |queue: u16| FakeRing::new(&ram, GuestAddress(0x1000 * (u64::from(queue) + 1)), 16);
    let mut rings: Vec<FakeRing> = (0..QUEUES).map(ring).collect();
    let mut bench = Bench::new(ram.clone());
    bench.start(&rings);
    for step in steps {
        bench.take(&mut rings, step);
    }
    settle(&mut bench.tasks);
    bench.replace();
});
