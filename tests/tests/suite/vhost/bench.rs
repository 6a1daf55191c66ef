//! A driver, a worker and the host, around an interface.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corten_devices::net::{MacAddress, Net, NetConfig, NetCounters};
use corten_devices::testing::{EXPERIMENT, FakeDriver, FakeRing, Wire, shared_guest_ram, wiring};
use corten_devices::virtio::{Device, GuestRam, QueueTask, Transport, VirtioPci};
use corten_devices::{Interrupt, Records};
use corten_net::Tap;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vm_memory::{Bytes, GuestAddress};

pub(super) const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
/// Bytes of the header before a frame.
pub(super) const HEADER: usize = 12;
/// Descriptors of each ring.
pub(super) const SIZE: u16 = 32;

/// Where a queue's buffers are: one of 2 KiB for each descriptor. In the second range of memory; the rings are in the first.
const BUFFERS: u64 = 0x1_0000_0000;
const BUFFER: u32 = 0x800;
const COMMAND: u64 = 0xe000;
const ANSWER: u64 = 0xf000;

/// Long enough for an emulated machine with others on it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Who moves packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    Vhost,
    Process,
}

/// An Ethernet frame of this many bytes with a number in it.
pub(super) fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(length);
    frame.extend(MAC.0);
    frame.extend(PEER.0);
    frame.extend(EXPERIMENT.to_be_bytes());
    frame.extend(number.to_le_bytes());
    frame.extend((frame.len()..length).map(|at| (at * 31 % 251).to_le_bytes()[0]));
    frame
}

pub(super) fn vhosts(count: usize) -> Vec<OwnedFd> {
    let open = || File::options().read(true).write(true).open("/dev/vhost-net");
    (0..count).map(|_| open().expect("these tests run in a node, as root").into()).collect()
}

/// An interface with a driver, a worker with its tasks, and the host.
pub(super) struct Bench {
    pub(super) function: Arc<VirtioPci<Net>>,
    pub(super) driver: FakeDriver,
    pub(super) interrupts: Vec<Interrupt>,
    pub(super) wire: Wire,
    pub(super) rings: Vec<FakeRing>,
    tasks: Vec<Box<dyn QueueTask>>,
    ram: GuestRam,
    taps: Vec<OwnedFd>,
    /// By queue: chains that came back.
    seen: Vec<u16>,
}

impl Bench {
    /// With a driver that does not know of it yet.
    pub(super) fn new(path: Path, pairs: u16) -> Self {
        let taps = Tap::create("tap0", pairs).expect("a TAP can be made by root").into_queues();
        let (ram, _file) =
            shared_guest_ram(&[(GuestAddress(0), 0x1_0000), (GuestAddress(BUFFERS), 0x10_0000)]);
        let (function, interrupts) = function(path, &taps, &ram);
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        let queues = 2 * u64::from(pairs) + 1;
        let ring = |queue| FakeRing::new(&ram, GuestAddress(0x1000 * (queue + 1)), SIZE);
        let rings: Vec<FakeRing> = (0..queues).map(ring).collect();
        let seen = vec![0; rings.len()];
        let (wire, tasks) = (Wire::new(), Vec::new());
        Self { function, driver, interrupts, wire, rings, tasks, ram, taps, seen }
    }

    /// With a driver that took all features.
    pub(super) fn running(path: Path, pairs: u16) -> Self {
        let mut bench = Self::new(path, pairs);
        bench.start(u64::MAX);
        bench
    }

    /// The driver starts with the features on offer that are among these.
    pub(super) fn start(&mut self, features: u64) {
        assert!(self.driver.negotiate(self.driver.offered() & features));
        let count = queues(&self.rings);
        self.driver.enable_msix(count + 1);
        // The configuration's vector.
        let _ = self.driver.set_common(0x10, 2, 0);
        for (queue, ring) in (0..count).zip(&self.rings) {
            assert!(self.driver.set_up_queue(queue, ring, queue + 1));
        }
        let _ = self.driver.ready();
        self.resume();
    }

    /// The driver starts anew with empty rings.
    pub(super) fn restart(&mut self) {
        let _ = self.driver.reset();
        self.pause();
        self.function.deactivated().expect("the tasks are back");
        self.fill(0x1000, &[0; 0xd000]);
        let ring = |queue| FakeRing::new(&self.ram, GuestAddress(0x1000 * (queue + 1)), SIZE);
        self.rings = (0..self.rings.len() as u64).map(ring).collect();
        self.seen.fill(0);
        self.start(u64::MAX);
    }

    pub(super) fn resume(&mut self) {
        self.tasks = self.function.activate().expect("the device starts");
        self.tasks.iter_mut().for_each(|task| task.rearm());
    }

    pub(super) fn pause(&mut self) {
        let mut tasks = std::mem::take(&mut self.tasks);
        for task in &mut tasks {
            assert_eq!(task.drain().expect("the task stops"), 0);
        }
        self.function.reclaim(tasks).expect("the tasks are its own");
    }

    pub(super) fn save(&self) -> Records {
        let mut records = Records::default();
        self.function.save("net1", &mut records).expect("it can be saved");
        records
    }

    /// A paused interface goes on as another one, on the same TAP and in the same memory.
    pub(super) fn move_to(&mut self, path: Path) {
        let records = self.save();
        let (function, interrupts) = function(path, &self.taps, &self.ram);
        let mut loaded = records.clone();
        function.load("net1", &mut loaded).expect("it can be loaded");
        loaded.finish().expect("nothing else was saved");
        self.driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        (self.function, self.interrupts) = (function, interrupts);
        assert_eq!(self.save(), records);
        self.resume();
    }

    /// A worker's turn: how many wake-ups it answered.
    pub(super) fn turn(&mut self) -> usize {
        let mut woken = 0;
        for task in &mut self.tasks {
            for wakeup in task.wakeups() {
                if is_readable(&[wakeup.fd], Duration::ZERO) {
                    task.on_event(wakeup.token);
                    woken += 1;
                }
            }
        }
        woken
    }

    /// Waits until one of these, or a task, has something to do, and has the tasks do it.
    fn wait(&mut self, fds: &[RawFd], end: Instant) {
        let wakeups = self.tasks.iter().flat_map(|task| task.wakeups());
        let all: Vec<RawFd> = wakeups.map(|wakeup| wakeup.fd).chain(fds.iter().copied()).collect();
        assert!(is_readable(&all, end.saturating_duration_since(Instant::now())), "nothing comes");
        self.turn();
    }

    /// Chains of a queue that came back since the last call.
    pub(super) fn take_used(&mut self, queue: u16) -> Vec<(u32, u32)> {
        let used = self.rings[usize::from(queue)].take_used();
        let seen = &mut self.seen[usize::from(queue)];
        *seen = seen.wrapping_add(u16::try_from(used.len()).expect("a ring is short"));
        used
    }

    /// Waits until `count` chains of a queue came back.
    pub(super) fn used(&mut self, queue: u16, count: usize) -> Vec<(u32, u32)> {
        let end = Instant::now() + PATIENCE;
        let interrupt = self.interrupts[usize::from(queue) + 1].clone();
        let mut used = Vec::new();
        loop {
            // First the wish, then the look: what comes in between raises the interrupt.
            self.rings[usize::from(queue)].set_used_event(self.seen[usize::from(queue)]);
            used.extend(self.take_used(queue));
            if used.len() >= count {
                return used;
            }
            self.wait(&[interrupt.eventfd().as_raw_fd()], end);
            let _ = interrupt.eventfd().read();
        }
    }

    /// Waits for a frame of the guest's.
    pub(super) fn receive(&mut self) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.wire.try_receive() {
                Some(frame) => return frame,
                None => self.wait(&[self.wire.as_raw_fd()], end),
            }
        }
    }

    /// Waits until the device asks for a reset.
    pub(super) fn needs_reset(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.driver.status() & FakeDriver::NEEDS_RESET == 0 {
            self.wait(&[], end);
        }
    }

    /// Where descriptor `index` of a queue has its buffer.
    pub(super) fn buffer(queue: u16, index: u16) -> u64 {
        BUFFERS + 0x2_0000 * u64::from(queue) + u64::from(BUFFER) * u64::from(index)
    }

    /// Offers a chain of one descriptor, as long as said, and rings.
    pub(super) fn offer(&mut self, queue: u16, index: u16, length: u32, flags: u16) {
        let address = GuestAddress(Self::buffer(queue, index));
        let ring = &mut self.rings[usize::from(queue)];
        ring.describe(index, (address, length), flags, 0);
        ring.offer(index);
        self.driver.ring(queue);
    }

    /// Offers a buffer to receive into.
    pub(super) fn post(&mut self, queue: u16, index: u16) {
        self.offer(queue, index, BUFFER, FakeRing::WRITE);
    }

    /// Offers a frame to be sent.
    pub(super) fn send(&mut self, queue: u16, index: u16, frame: &[u8]) {
        let bytes = [&[0; HEADER][..], frame].concat();
        self.fill(Self::buffer(queue, index), &bytes);
        self.offer(queue, index, u32::try_from(bytes.len()).expect("it is short"), 0);
    }

    /// Gives a command and has it answered.
    pub(super) fn command(&mut self, bytes: &[u8]) -> u8 {
        let queue = queues(&self.rings) - 1;
        self.fill(COMMAND, bytes);
        self.fill(ANSWER, &[0xaa]);
        let ring = &mut self.rings[usize::from(queue)];
        let length = u32::try_from(bytes.len()).expect("it is short");
        ring.describe(0, (GuestAddress(COMMAND), length), FakeRing::NEXT, 1);
        ring.describe(1, (GuestAddress(ANSWER), 1), FakeRing::WRITE, 0);
        ring.offer(0);
        self.driver.ring(queue);
        assert_eq!(self.used(queue, 1), [(0, 1)]);
        self.memory(ANSWER, 1)[0]
    }

    pub(super) fn fill(&self, address: u64, bytes: &[u8]) {
        self.ram.write_slice(bytes, GuestAddress(address)).expect("there is memory");
    }

    pub(super) fn memory(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.ram.read_slice(&mut bytes, GuestAddress(address)).expect("there is memory");
        bytes
    }

    pub(super) fn counters(&self) -> NetCounters {
        self.function.device(Net::counters)
    }
}

fn function(path: Path, taps: &[OwnedFd], ram: &GuestRam) -> (Arc<VirtioPci<Net>>, Vec<Interrupt>) {
    let copies: Vec<OwnedFd> =
        taps.iter().map(|tap| tap.try_clone().expect("a descriptor can be duplicated")).collect();
    let mut net = Net::new(&NetConfig::new(MAC), copies).expect("the TAP is good");
    if path == Path::Vhost {
        net.use_vhost(vhosts(taps.len())).expect("there is vhost");
    }
    let (mut wiring, interrupts, _) = wiring(3, net.queue_sizes().len());
    wiring.ram = ram.clone();
    (VirtioPci::new(net, wiring).expect("it can be a function"), interrupts)
}

/// Waits until one of them is readable; false if none is in time.
pub(super) fn is_readable(fds: &[RawFd], limit: Duration) -> bool {
    // SAFETY: the caller has them open.
    let borrowed = fds.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) });
    let mut polled: Vec<PollFd> = borrowed.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let limit = PollTimeout::try_from(limit).expect("it is short");
    poll(&mut polled, limit).expect("the descriptors are open") > 0
}

fn queues(rings: &[FakeRing]) -> u16 {
    u16::try_from(rings.len()).expect("there are few")
}
