//! Whatever a guest has in its memory and describes is a request that can be done, or is refused; and whatever it then rings for,
//! with requests under way for as long as it takes, the disk can be saved and goes on in another process, or is reset.
#![no_main]

use std::sync::Arc;
use std::time::{Duration, Instant};

use corten_devices::block::{Block, Gate, gated_disk, look_at_request};
use corten_devices::testing::{
    FakeDriver, FakeRing, copy_ram, drain, guest_ram, hand_on, settle, take_up, wiring,
};
use corten_devices::virtio::{GuestRam, QueueTask, Transport, VirtioPci};
use libfuzzer_sys::fuzz_target;
use vm_memory::{Bytes, GuestAddress};

const QUEUES: usize = 2;
const HEADERS: u64 = 0x4000;
const STATUSES: u64 = 0x4800;
/// More than any request of these takes.
const LONG: Duration = Duration::from_secs(20);

/// Address, length and flags.
type Descriptor = (u64, u32, u16);
/// What to do, two numbers for it, an address, a length, and flags.
type Step = (u8, u8, u8, u64, u32, u16);

struct Bench {
    kind: u8,
    function: Arc<VirtioPci<Block>>,
    driver: FakeDriver,
    ram: GuestRam,
    rings: Vec<FakeRing>,
    gates: Vec<Arc<Gate>>,
    tasks: Vec<Box<dyn QueueTask>>,
}

impl Bench {
    fn new(kind: u8) -> Self {
        let (block, gates) = gated_disk(kind);
        let (wiring, _, _) = wiring(3, QUEUES);
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(block, wiring).expect("it can be wired");
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        Self { kind, function, driver, rings: rings(&ram), ram, gates, tasks: Vec::new() }
    }

    fn start(&mut self) {
        assert!(self.driver.negotiate(self.driver.offered()));
        for (queue, ring) in (0..).zip(&self.rings) {
            assert!(self.driver.set_up_queue(queue, ring, 0xffff));
        }
        let _ = self.driver.ready();
        self.tasks = take_up(&*self.function);
    }

    /// Nothing is begun from now on: what is under way is all there is to wait for.
    fn pause(&mut self) {
        self.gates.iter().for_each(|gate| gate.open(64));
        for task in &mut self.tasks {
            drain(task, Instant::now() + LONG).expect("it comes to rest");
        }
        self.function.reclaim(std::mem::take(&mut self.tasks)).expect("they are its own");
    }

    /// Goes on as one that was saved.
    fn replace(&mut self) {
        self.pause();
        let mut next = Self::new(self.kind);
        copy_ram(&self.ram, &next.ram);
        hand_on(&*self.function, &*next.function);
        std::mem::swap(&mut self.rings, &mut next.rings);
        next.rings.iter_mut().for_each(|ring| ring.move_to(&next.ram));
        next.tasks = take_up(&*next.function);
        *self = next;
    }

    /// The driver gives up, with requests under way, and asks for more while it waits.
    fn reset(&mut self, head: u16) {
        let _ = self.driver.reset();
        for (queue, ring) in (0..).zip(&mut self.rings) {
            ring.offer(head % 17);
            self.driver.ring(queue);
        }
        self.tasks.iter_mut().for_each(|task| task.rearm());
        settle(&mut self.tasks);
        self.pause();
        self.function.deactivated().expect("no task is out");
        assert_eq!(self.driver.status(), 0);
        let rings = vec![0; 0x1000 * QUEUES];
        self.ram.write_slice(&rings, GuestAddress(0x1000)).expect("it is in memory");
        self.rings = self::rings(&self.ram);
        self.start();
    }

    /// A request as a driver lays it out, from descriptor `first` on.
    fn ask(&mut self, queue: usize, first: u16, (kind, sector, length): (u8, u64, u32)) {
        let (header, status) = (HEADERS + 0x10 * u64::from(first), STATUSES + u64::from(first));
        let bytes = [&u32::from(kind).to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.ram.write_slice(&bytes, GuestAddress(header)).expect("it is in memory");
        let direction = if kind == 0 { FakeRing::WRITE } else { 0 };
        let ring = &self.rings[queue];
        ring.describe(first, (GuestAddress(header), 16), FakeRing::NEXT, first + 1);
        let data = (GuestAddress(0x5000), length);
        ring.describe(first + 1, data, FakeRing::NEXT | direction, first + 2);
        ring.describe(first + 2, (GuestAddress(status), 1), FakeRing::WRITE, 0);
        self.offer(queue, first);
    }

    fn offer(&mut self, queue: usize, head: u16) {
        self.rings[queue].offer(head);
        self.driver.ring(u16::from(queue == 1));
    }

    fn take(&mut self, (what, a, b, address, length, flags): Step) {
        let queue = usize::from(a & 1);
        match what % 16 {
            0..3 => {
                let address = if what & 0x80 == 0 { address % 0x1_1000 } else { address };
                let (index, next) = (u16::from(a >> 1) % 17, u16::from(b) % 17);
                self.rings[queue].describe(index, (GuestAddress(address), length), flags, next);
            }
            3..8 => {
                let kinds = [0, 1, 4, 8, 11, 13];
                let kind = kinds[usize::from(b) % kinds.len()];
                self.ask(queue, u16::from(a >> 1) % 13, (kind, address % 2050, length % 0x4001));
            }
            8..10 => self.offer(queue, u16::from(b) % 17),
            10..13 => self.gates[queue].open(usize::from(b) % 4),
            13 if what & 0x80 == 0 => self.rings[queue].set_available_index(flags),
            13 => self.driver.set_config(u64::from(a), &length.to_le_bytes()),
            14 => self.reset(flags),
            _ => self.replace(),
        }
        settle(&mut self.tasks);
    }
}

fn rings(ram: &GuestRam) -> Vec<FakeRing> {
    let base = |queue: u64| GuestAddress(0x1000 * (queue + 1));
    (0..QUEUES as u64).map(|queue| FakeRing::new(ram, base(queue), 16)).collect()
}

fn look(disk: u8, mut descriptors: Vec<Descriptor>, memory: &[u8]) {
    let ram = guest_ram();
    // 64 KiB, and so are the longest inputs.
    let _ = ram.write(memory, GuestAddress(0));
    // Most chains as they should be: in memory, linked, with a status.
    if disk & 0x80 == 0 {
        let last = descriptors.len().saturating_sub(1);
        for (at, (address, length, flags)) in descriptors.iter_mut().enumerate() {
            *address &= 0xffff;
            *length &= 0xffff;
            *flags = *flags & 2 | u16::from(at != last);
        }
    }
    look_at_request(&ram, &descriptors, disk);
}

fuzz_target!(|input: (u8, Vec<Step>, Vec<Descriptor>, &[u8])| {
    let (disk, steps, descriptors, memory) = input;
    look(disk, descriptors, memory);
    let mut bench = Bench::new(disk);
    bench.start();
    steps.into_iter().take(100).for_each(|step| bench.take(step));
    bench.replace();
    settle(&mut bench.tasks);
    bench.pause();
});
