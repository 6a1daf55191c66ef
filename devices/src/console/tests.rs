//! The device between a driver and the host's ends of its ports.

mod consoles;
mod hostile;
mod saved;
mod streams;

use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SndBuf;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::legacy::nonblocking;
use crate::testing::{FakeDriver, FakeRing, turn, was_raised, wiring};
use crate::virtio::{Device, GuestRam, QueueTask, Transport, VirtioPci};
use crate::{Interrupt, RecordError, Records};

/// The port of the guest agent.
const AGENT: usize = 1;
const NAME: &str = "org.qemu.guest_agent.0";
const QUEUES: u16 = 6;
/// What no port is called by.
const NO_PORT: u32 = u32::MAX;

const DEVICE_READY: u16 = 0;
const DEVICE_ADD: u16 = 1;
const PORT_READY: u16 = 3;
const CONSOLE_PORT: u16 = 4;
const RESIZE: u16 = 5;
const PORT_OPEN: u16 = 6;
const PORT_NAME: u16 = 7;

const CONTROL_RECEIVE: usize = 2;
const CONTROL_TRANSMIT: usize = 3;
/// By port.
const RECEIVE: [usize; 2] = [0, 4];
const TRANSMIT: [usize; 2] = [1, 5];

const CONTROL_BUFFERS: u64 = 0x7000;
const CONTROL_BUFFER: u32 = 0x40;
const MESSAGE: u64 = 0x7800;
const RECEIVE_BUFFERS: [u64; 2] = [0x8000, 0xa000];
const RECEIVE_BUFFER: u32 = 0x400;
const RECEIVE_COUNT: u16 = 8;
const OUTGOING: [u64; 2] = [0xc000, 0xe000];
/// Bytes that the tests' driver sends at once.
const MOST: usize = 0x2000;

/// Bytes of a chain that nobody takes at once.
const LONG_CHAIN: usize = 15 * 0x8000;

/// A control message: port, event, value, and what follows.
type Message = (u32, u16, u16, Vec<u8>);

fn message(port: usize, event: u16, value: u16) -> Message {
    (u32::try_from(port).unwrap(), event, value, Vec::new())
}

fn name() -> Message {
    (1, PORT_NAME, 1, NAME.into())
}

fn config() -> ConsoleConfig {
    let console = PortConfig { name: None, is_console: true };
    let agent = PortConfig { name: Some(NAME.into()), is_console: false };
    ConsoleConfig { ports: vec![console, agent], size: TerminalSize::default() }
}

/// What the other end of a console's terminal is.
struct Terminal {
    output: PipeReader,
    input: Option<PipeWriter>,
}

impl Terminal {
    fn new() -> (Self, PortEnd) {
        let (output, their_output) = pipe().unwrap();
        let (their_input, input) = pipe().unwrap();
        let output = OwnedFd::from(nonblocking(output.into()).unwrap()).into();
        let end =
            PortEnd::Terminal { output: their_output.into(), input: Some(their_input.into()) };
        (Self { output, input: Some(input) }, end)
    }

    /// What was shown since it was looked at last.
    fn shown(&mut self) -> Vec<u8> {
        read(&mut self.output)
    }

    fn type_in(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }
}

/// A device with a driver, and the owner with the task and the other ends.
struct Bench {
    function: Arc<VirtioPci<Console>>,
    driver: FakeDriver,
    ram: GuestRam,
    interrupts: Vec<Interrupt>,
    rings: Vec<FakeRing>,
    tasks: Vec<Box<dyn QueueTask>>,
    side: HostSide,
    terminal: Terminal,
}

impl Bench {
    /// Without a driver.
    fn new(config: &ConsoleConfig) -> Self {
        let (terminal, end) = Terminal::new();
        let console = Console::new(config, vec![end, PortEnd::Nothing]).unwrap();
        let side = console.host_side();
        let (wiring, interrupts, _) = wiring(3, QUEUES.into());
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(console, wiring).unwrap();
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        let ring =
            |queue: u16| FakeRing::new(&ram, GuestAddress(0x1000 * (u64::from(queue) + 1)), 16);
        let rings = (0..QUEUES).map(ring).collect();
        Self { function, driver, ram, interrupts, rings, tasks: Vec::new(), side, terminal }
    }

    /// With a driver that has given all its buffers and has said nothing.
    fn started() -> Self {
        let mut bench = Self::new(&config());
        bench.start(bench.driver.offered());
        bench.give_buffers();
        bench
    }

    /// With a driver that has both ports, of which the console is open.
    fn running() -> Self {
        let mut bench = Self::started();
        bench.say(NO_PORT, DEVICE_READY, 1);
        bench.say(0, PORT_READY, 1);
        bench.say(1, PORT_READY, 1);
        bench.say(0, PORT_OPEN, 1);
        bench.messages();
        bench
    }

    /// With the agent's port open, and the other end of its socket.
    fn with_agent() -> (Self, UnixStream) {
        let mut bench = Self::running();
        let peer = bench.attach(AGENT);
        bench.say(1, PORT_OPEN, 1);
        assert_eq!(bench.messages(), [message(AGENT, PORT_OPEN, 1)]);
        (bench, peer)
    }

    fn start(&mut self, features: u64) {
        assert!(self.driver.negotiate(features));
        self.driver.enable_msix(QUEUES + 1);
        for (queue, ring) in (0..).zip(&self.rings) {
            assert!(self.driver.set_up_queue(queue, ring, queue + 1));
        }
        let _ = self.driver.ready();
        self.resume();
        self.settle();
    }

    fn resume(&mut self) {
        self.tasks = self.function.activate().unwrap();
        self.tasks.iter_mut().for_each(|task| task.rearm());
    }

    fn pause(&mut self) {
        let mut tasks = std::mem::take(&mut self.tasks);
        for task in &mut tasks {
            assert_eq!(task.drain().unwrap(), 0);
        }
        self.function.reclaim(tasks).unwrap();
    }

    /// Whether anything woke the worker.
    fn turn(&mut self) -> bool {
        turn(&mut self.tasks) > 0
    }

    /// Turns until nothing wakes the worker: one that spins does not get there.
    fn settle(&mut self) {
        let turns = (0..1000).take_while(|_| self.turn()).count();
        assert!(turns < 1000, "the worker spins");
    }

    fn give_buffers(&mut self) {
        (0..16).for_each(|index| self.give_control_buffer(index));
        for port in [0, AGENT] {
            (0..RECEIVE_COUNT).for_each(|index| self.give_buffer(port, index));
        }
        [0, 2, 4].into_iter().for_each(|queue| self.driver.ring(queue));
        self.settle();
    }

    fn give_control_buffer(&mut self, index: u16) {
        let at = CONTROL_BUFFERS + u64::from(index) * u64::from(CONTROL_BUFFER);
        let buffer = (GuestAddress(at), CONTROL_BUFFER);
        self.rings[CONTROL_RECEIVE].describe(index, buffer, FakeRing::WRITE, 0);
        self.rings[CONTROL_RECEIVE].offer(index);
    }

    fn give_buffer(&mut self, port: usize, index: u16) {
        let at = RECEIVE_BUFFERS[port] + u64::from(index) * u64::from(RECEIVE_BUFFER);
        let ring = &mut self.rings[RECEIVE[port]];
        ring.describe(index, (GuestAddress(at), RECEIVE_BUFFER), FakeRing::WRITE, 0);
        ring.offer(index);
    }

    /// The driver says something of a port.
    fn say(&mut self, port: u32, event: u16, value: u16) {
        let mut bytes = port.to_le_bytes().to_vec();
        bytes.extend(event.to_le_bytes());
        bytes.extend(value.to_le_bytes());
        self.ram.write_slice(&bytes, GuestAddress(MESSAGE)).unwrap();
        self.offer(CONTROL_TRANSMIT, &[(GuestAddress(MESSAGE), 8, 0)]);
        self.rings[CONTROL_TRANSMIT].take_used();
    }

    /// The driver makes a chain available.
    fn offer(&mut self, queue: usize, chain: &[(GuestAddress, u32, u16)]) {
        self.post(queue, chain);
        self.settle();
    }

    fn post(&mut self, queue: usize, chain: &[(GuestAddress, u32, u16)]) {
        for (index, (address, length, flags)) in (0_u16..).zip(chain) {
            self.rings[queue].describe(index, (*address, *length), *flags, index + 1);
        }
        self.rings[queue].offer(0);
        self.driver.ring(u16::try_from(queue).unwrap());
    }

    /// Control messages that the driver gets until nothing more happens. Their buffers are given again.
    fn messages(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            self.settle();
            let used = self.rings[CONTROL_RECEIVE].take_used();
            if used.is_empty() {
                return messages;
            }
            for (head, length) in used {
                let at = CONTROL_BUFFERS + u64::from(head) * u64::from(CONTROL_BUFFER);
                let mut bytes = vec![0; length as usize];
                self.ram.read_slice(&mut bytes, GuestAddress(at)).unwrap();
                let [a, b, c, d, e, f, g, h] = bytes[..8].try_into().unwrap();
                let (port, event) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]));
                messages.push((port, event, u16::from_le_bytes([g, h]), bytes[8..].to_vec()));
                self.give_control_buffer(u16::try_from(head).unwrap());
            }
            self.driver.ring(2);
        }
    }

    /// The driver sends bytes through a port.
    fn send(&mut self, port: usize, bytes: &[u8]) {
        self.ram.write_slice(bytes, GuestAddress(OUTGOING[port])).unwrap();
        let length = u32::try_from(bytes.len()).unwrap();
        self.offer(TRANSMIT[port], &[(GuestAddress(OUTGOING[port]), length, 0)]);
    }

    /// Whether what the driver sent last was taken.
    fn is_sent(&mut self, port: usize) -> bool {
        !self.rings[TRANSMIT[port]].take_used().is_empty()
    }

    /// Bytes that the driver gets of a port until nothing more happens. Their buffers are given again.
    fn received(&mut self, port: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            self.settle();
            let used = self.rings[RECEIVE[port]].take_used();
            if used.is_empty() {
                return bytes;
            }
            for (head, length) in used {
                let at = RECEIVE_BUFFERS[port] + u64::from(head) * u64::from(RECEIVE_BUFFER);
                let mut part = vec![0; length as usize];
                self.ram.read_slice(&mut part, GuestAddress(at)).unwrap();
                bytes.extend(part);
                self.give_buffer(port, u16::try_from(head).unwrap());
            }
            self.driver.ring(u16::try_from(RECEIVE[port]).unwrap());
        }
    }

    /// Attaches one end of a pair.
    fn attach(&mut self, port: usize) -> UnixStream {
        let (ours, theirs) = pair();
        self.side.attach(port, ours.into()).unwrap();
        self.settle();
        theirs
    }

    fn counters(&self) -> ConsoleCounters {
        self.function.device(Console::counters)
    }
}

/// The same 32 KiB, 15 times.
fn long_chain() -> Vec<(GuestAddress, u32, u16)> {
    let part = |flags| (GuestAddress(0x8000), 0x8000, flags);
    [vec![part(FakeRing::NEXT); 14], vec![part(0)]].concat()
}

/// Two sockets, of which the first holds little and the second does not wait.
fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    setsockopt(&ours, SndBuf, &0x8000).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, theirs)
}

/// What can be read now.
fn read(from: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // It ends where the other side does, or by an error where nothing more is there now.
    let _ = from.read_to_end(&mut bytes);
    bytes
}

/// Whether the other side has closed.
fn is_at_end(socket: &mut UnixStream) -> bool {
    match socket.read(&mut [0; 1]) {
        Ok(0) => true,
        Ok(_) => panic!("there is something to read"),
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn guest_reads_size_and_number_of_ports() {
    let size = TerminalSize { columns: 80, rows: 25 };
    let bench = Bench::new(&ConsoleConfig { size, ..config() });
    assert_eq!(bench.driver.configuration(2, 2), 0x1040 + 3);
    assert_eq!(bench.driver.offered() & 0xff, 0b111);
    let mut bytes = [0xaa; 14];
    bench.driver.config(0, &mut bytes);
    assert_eq!(bytes, [80, 0, 25, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bench.driver.set_config(0, &[9; 8]);
    bench.driver.config(0, &mut bytes);
    assert_eq!(bytes[..8], [80, 0, 25, 0, 2, 0, 0, 0]);
}

#[test]
fn driver_is_told_of_its_ports() {
    let mut bench = Bench::started();
    assert_eq!(bench.messages(), []);
    bench.say(NO_PORT, DEVICE_READY, 1);
    assert_eq!(bench.messages(), [message(0, DEVICE_ADD, 1), message(AGENT, DEVICE_ADD, 1)]);
    assert!(was_raised(&bench.interrupts[3]));
    bench.say(0, PORT_READY, 1);
    assert_eq!(bench.messages(), [message(0, CONSOLE_PORT, 1), message(0, PORT_OPEN, 1)]);
    bench.say(1, PORT_READY, 1);
    assert_eq!(bench.messages(), [name()]);
    assert!(!bench.side.is_open(AGENT));
    bench.say(1, PORT_OPEN, 1);
    assert!(bench.side.is_open(AGENT));
    assert_eq!(bench.counters(), ConsoleCounters::default());
}

#[test]
fn driver_that_begins_anew_is_told_all_again() {
    let (mut bench, _peer) = Bench::with_agent();
    bench.say(NO_PORT, DEVICE_READY, 1);
    assert!(!bench.side.is_open(AGENT));
    assert_eq!(bench.messages(), [message(0, DEVICE_ADD, 1), message(AGENT, DEVICE_ADD, 1)]);
    bench.say(1, PORT_READY, 1);
    assert_eq!(bench.messages(), [name(), message(AGENT, PORT_OPEN, 1)]);
}

#[test]
fn port_that_the_driver_cannot_have_is_not_told_of() {
    let mut bench = Bench::started();
    bench.say(NO_PORT, DEVICE_READY, 1);
    bench.say(1, PORT_READY, 0);
    bench.messages();
    let mut peer = bench.attach(AGENT);
    assert_eq!(bench.messages(), []);
    peer.write_all(b"x").unwrap();
    assert_eq!(bench.received(AGENT), b"");
}

#[test]
fn driver_that_leaves_out_a_queue_is_not_served() {
    for (features, left_out, missing) in [(0, 1, 1), (0b010, 3, 3), (0b010, 5, 5), (0b010, 4, 4)] {
        let bench = Bench::new(&config());
        assert!(bench.driver.negotiate(FakeDriver::VERSION_1 | features));
        for queue in (0..QUEUES).filter(|queue| *queue != left_out) {
            assert!(bench.driver.set_up_queue(queue, &bench.rings[usize::from(queue)], 0xffff));
        }
        let _ = bench.driver.ready();
        let error = bench.function.activate().err().unwrap();
        assert_eq!(error.to_string(), format!("the driver did not enable queue {missing}"));
    }
}

#[test]
fn host_ends_that_do_not_fit_are_refused() {
    let new = |ends| Console::new(&config(), ends).err().unwrap().to_string();
    assert_eq!(new(vec![PortEnd::Nothing]), "1 host ends for the 2 ports of a console device");
    let (_terminal, end) = Terminal::new();
    let error = new(vec![PortEnd::Nothing, end]);
    assert_eq!(error, "port 1 of a console device is no console and cannot have a terminal");
    let (_, output) = pipe().unwrap();
    let input = Some(tempfile::tempfile().unwrap().into());
    let error = new(vec![PortEnd::Terminal { output: output.into(), input }, PortEnd::Nothing]);
    assert_eq!(error, "port 0 of a console device cannot use the input that it was given");
}
