//! Whatever a guest says and however it lays that out, while peers come and go: the worker comes to rest, what is saved can
//! be loaded, and a device that is gone leaves no socket open.
#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use corten_devices::console::{
    Console, ConsoleConfig, HostSide, PortConfig, PortEnd, TerminalSize,
};
use corten_devices::testing::{
    FakeDriver, FakeRing, copy_ram, give_back, hand_on, settle, take_up, wiring,
};
use corten_devices::virtio::{GuestRam, QueueTask, VirtioPci};
use libfuzzer_sys::fuzz_target;
use vm_memory::{Bytes, GuestAddress};

const QUEUES: u16 = 6;
const CONTROL_RECEIVE: usize = 2;
const CONTROL_TRANSMIT: usize = 3;
const BUFFERS: u64 = 0x8000;
const MESSAGE: GuestAddress = GuestAddress(0x7800);

/// What to do, bytes, and a number.
type Step = (u8, [u8; 12], u16);

struct Bench {
    function: Arc<VirtioPci<Console>>,
    driver: FakeDriver,
    ram: GuestRam,
    rings: Vec<FakeRing>,
    tasks: Vec<Box<dyn QueueTask>>,
    side: HostSide,
    /// Open as long as the device is there: a write to it would end the process otherwise, which nothing here prevents.
    terminal: UnixStream,
    peers: Vec<UnixStream>,
}

impl Bench {
    fn new() -> Self {
        let console = PortConfig { name: None, is_console: true };
        let agent = PortConfig { name: Some("org.qemu.guest_agent.0".into()), is_console: false };
        let size = TerminalSize { columns: 80, rows: 25 };
        let config = ConsoleConfig { ports: vec![console, agent], size };
        let (ours, terminal) = pair();
        let output = ours.try_clone().expect("a descriptor can be duplicated");
        let end = PortEnd::Terminal { output: output.into(), input: Some(ours.into()) };
        let console = Console::new(&config, vec![end, PortEnd::Nothing]).expect("it can be made");
        let side = console.host_side();
        let (wiring, _, _) = wiring(3, QUEUES.into());
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(console, wiring).expect("it can be wired");
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        let base = |queue: u16| GuestAddress(0x1000 * (u64::from(queue) + 1));
        let rings = (0..QUEUES).map(|queue| FakeRing::new(&ram, base(queue), 16)).collect();
        Self { function, driver, ram, rings, tasks: Vec::new(), side, terminal, peers: Vec::new() }
    }

    fn start(&mut self, is_multiport: bool) {
        let features = if is_multiport { self.driver.offered() } else { FakeDriver::VERSION_1 };
        assert!(self.driver.negotiate(features));
        for (queue, ring) in (0..).zip(&self.rings) {
            assert!(self.driver.set_up_queue(queue, ring, 0xffff));
        }
        let _ = self.driver.ready();
        for (queue, length) in [(CONTROL_RECEIVE, 0x40), (0, 0x400), (4, 0x400)] {
            for index in 0..16 {
                let buffer = (GuestAddress(BUFFERS + 0x400 * u64::from(index)), length);
                self.rings[queue].describe(index, buffer, FakeRing::WRITE, 0);
                self.rings[queue].offer(index);
            }
        }
        self.resume();
        self.settle();
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
        let mut next = Self::new();
        copy_ram(&self.ram, &next.ram);
        hand_on(&*self.function, &*next.function);
        std::mem::swap(&mut self.rings, &mut next.rings);
        next.rings.iter_mut().for_each(|ring| ring.move_to(&next.ram));
        next.resume();
        let before = std::mem::replace(self, next);
        before.finish();
    }

    fn take(&mut self, (what, bytes, number): Step) {
        let [a, b, c, d, address @ ..] = bytes;
        match what % 16 {
            0..4 => self.say([a % 3, 0, 0, 0, b % 9, 0, c & 1, 0]),
            4 => self.say([a, b, c, d, address[0], address[1], address[2], address[3]]),
            5..7 => {
                let (queue, index) = (usize::from(a % 6), u16::from(b % 16));
                let at =
                    if what & 0x80 == 0 { u64::from(number) } else { u64::from_le_bytes(address) };
                let length = u32::from(number) * (1 + u32::from(what & 0x40));
                let buffer = (GuestAddress(at), length);
                self.rings[queue].describe(index, buffer, u16::from(c % 8), u16::from(d % 17));
            }
            7..9 => {
                let queue = usize::from(a % 6);
                self.rings[queue].offer(u16::from(b % 17));
                self.driver.ring(u16::from(a % 6));
            }
            9 => {
                // The driver gives its buffers again.
                for queue in [0, CONTROL_RECEIVE, 4] {
                    for (head, _) in self.rings[queue].take_used() {
                        self.rings[queue].offer(u16::try_from(head).unwrap_or(0));
                    }
                    self.driver.ring(u16::try_from(queue).unwrap_or(0));
                }
            }
            10 => {
                let (ours, theirs) = pair();
                self.peers.push(theirs);
                let _ = self.side.attach(usize::from(a % 3), ours.into());
            }
            11 => drop(self.other_end(a).write(&vec![1; number.into()])),
            12 => drop(self.other_end(a).read(&mut vec![0; number.into()])),
            13 => drop(self.peers.pop()),
            14 if what & 0x80 == 0 => {
                let size = TerminalSize { columns: number, rows: a.into() };
                self.function.change_config(|console| console.set_size(size));
            }
            14 => self.driver.set_config(u64::from(a % 16), &[b, c, d]),
            _ => self.replace(),
        }
        self.settle();
    }

    fn other_end(&mut self, choice: u8) -> &mut UnixStream {
        match self.peers.last_mut() {
            Some(peer) if choice.is_multiple_of(2) => peer,
            _ => &mut self.terminal,
        }
    }

    fn say(&mut self, message: [u8; 8]) {
        self.ram.write_slice(&message, MESSAGE).expect("it is in memory");
        self.rings[CONTROL_TRANSMIT].describe(0, (MESSAGE, 8), 0, 0);
        self.rings[CONTROL_TRANSMIT].offer(0);
        self.driver.ring(3);
    }

    fn settle(&mut self) {
        settle(&mut self.tasks);
    }

    /// The device and the owner's side of it go.
    fn finish(self) {
        let Self { function, driver, tasks, side, peers, .. } = self;
        assert!(tasks.is_empty());
        drop((function, driver, side));
        for mut peer in peers {
            let _ = peer.read_to_end(&mut Vec::new());
            let open = peer.read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
            assert!(!open, "a socket is left open");
        }
    }
}

/// Two sockets, of which the second does not wait.
fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair can be made");
    theirs.set_nonblocking(true).expect("it can be set");
    (ours, theirs)
}

fuzz_target!(|input: (bool, Vec<Step>)| {
    let (is_multiport, steps) = input;
    let mut bench = Bench::new();
    bench.start(is_multiport);
    steps.into_iter().take(200).for_each(|step| bench.take(step));
    bench.pause();
    bench.finish();
});
