//! The device between a driver, and sockets that the owner hands in.

mod connecting;
mod ending;
mod flow;
mod hostile;
mod saved;

use std::any::Any;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vm_memory::{Bytes, GuestAddress};

use super::credit::KEPT;
use super::packet::{HEADER, Header, Operation, SHUT_BOTH, SHUT_RECEIVE, SHUT_SEND, STREAM};
use super::*;
use crate::testing::{FakeDriver, FakeRing, turn, was_raised, wiring};
use crate::virtio::{GuestRam, QueueTask, Transport, VirtioPci};
use crate::{Interrupt, RecordError, Records};

const GUEST_CID: u64 = 5;
const HOST_CID: u64 = 2;
/// Of the guest's end, in most tests.
const GUEST_PORT: u32 = 40_000;
/// What the guest connects to, in most tests.
const HOST_PORT: u32 = 80;
/// The guest's buffer, in most tests.
const GUEST_BUFFER: u32 = 0x2000;

const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;
const EVENTS: usize = 2;

const EVENT_BUFFER: u64 = 0x800;
const RECEIVE_BUFFERS: u64 = 0x4000;
const RECEIVE_BUFFER: u32 = 0x1000;
const RECEIVE_COUNT: u16 = 8;
const OUTGOING: u64 = 0xc000;
/// Bytes that fit into one packet of the tests' driver.
const MOST: usize = 0x3c00;

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device with a driver, and the owner with the task and the other ends.
struct Bench {
    function: Arc<VirtioPci<Vsock>>,
    driver: FakeDriver,
    ram: GuestRam,
    interrupts: Vec<Interrupt>,
    rings: Vec<FakeRing>,
    tasks: Vec<Box<dyn QueueTask>>,
    asks: Arc<Mutex<Vec<Ask>>>,
    side: HostSide,
}

impl Bench {
    /// Without a driver.
    fn new(patience: Duration) -> Self {
        let asks = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asks);
        let config = VsockConfig { guest_cid: GUEST_CID, patience };
        let vsock = Vsock::new(config, Arc::new(move |ask| seen.lock().unwrap().push(ask)));
        let vsock = vsock.unwrap();
        let side = vsock.host_side();
        let (wiring, interrupts, _) = wiring(3, 3);
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(vsock, wiring).unwrap();
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        let rings =
            [0x1000, 0x2000, 0x3000].map(|base| FakeRing::new(&ram, GuestAddress(base), 16));
        let (rings, tasks) = (rings.into(), Vec::new());
        Self { function, driver, ram, interrupts, rings, tasks, asks, side }
    }

    /// With a driver that has given no buffers.
    fn without_buffers(patience: Duration) -> Self {
        let mut bench = Self::new(patience);
        bench.start();
        bench
    }

    /// With a driver that has given all its buffers, and much time for all.
    fn running() -> Self {
        let mut bench = Self::without_buffers(PATIENCE);
        bench.give_buffers();
        bench
    }

    fn start(&mut self) {
        assert!(self.driver.negotiate(self.driver.offered()));
        self.driver.enable_msix(4);
        for (queue, ring) in (0..3).zip(&self.rings) {
            assert!(self.driver.set_up_queue(queue, ring, queue + 1));
        }
        let _ = self.driver.ready();
        self.resume();
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

    fn give_buffers(&mut self) {
        (0..RECEIVE_COUNT).for_each(|index| self.give_buffer(index));
        self.driver.ring(0);
    }

    fn give_buffer(&mut self, index: u16) {
        let at = RECEIVE_BUFFERS + u64::from(index) * u64::from(RECEIVE_BUFFER);
        let buffer = (GuestAddress(at), RECEIVE_BUFFER);
        self.rings[RECEIVE].describe(index, buffer, FakeRing::WRITE, 0);
        self.rings[RECEIVE].offer(index);
    }

    /// Whether anything woke the worker.
    fn turn(&mut self) -> bool {
        let woken = turn(&mut self.tasks) > 0;
        self.check();
        woken
    }

    /// Turns until nothing wakes the worker: one that spins does not get there.
    fn settle(&mut self) {
        let turns = (0..1000).take_while(|_| self.turn()).count();
        assert!(turns < 1000, "the worker spins");
    }

    fn check(&self) {
        self.tasks.iter().for_each(|task| task_of(&**task).switchboard().check());
    }

    fn connections(&self) -> usize {
        self.tasks.iter().map(|task| task_of(&**task).switchboard().connections()).sum()
    }

    /// The driver sends a packet: the header in one descriptor, what follows in another.
    fn send(&mut self, header: Header, payload: &[u8]) {
        self.post(header, payload);
        self.settle();
    }

    fn post(&mut self, header: Header, payload: &[u8]) {
        let data = OUTGOING + 0x100;
        self.ram.write_slice(&header.to_bytes(), GuestAddress(OUTGOING)).unwrap();
        self.ram.write_slice(payload, GuestAddress(data)).unwrap();
        let ring = &mut self.rings[TRANSMIT];
        ring.describe(0, (GuestAddress(OUTGOING), 44), FakeRing::NEXT, 1);
        ring.describe(1, (GuestAddress(data), u32::try_from(payload.len()).unwrap()), 0, 0);
        ring.offer(0);
        self.driver.ring(1);
    }

    /// Packets that the driver got since it looked last. Their buffers are given again.
    fn received(&mut self) -> Vec<(Header, Vec<u8>)> {
        let used = self.rings[RECEIVE].take_used();
        let packet = |(head, written): &(u32, u32)| {
            let at = RECEIVE_BUFFERS + u64::from(*head) * u64::from(RECEIVE_BUFFER);
            let mut header = [0; HEADER];
            self.ram.read_slice(&mut header, GuestAddress(at)).unwrap();
            let header = Header::from_bytes(&header);
            let mut payload = vec![0; header.length as usize];
            self.ram.read_slice(&mut payload, GuestAddress(at + 44)).unwrap();
            assert_eq!(*written as usize, HEADER + payload.len());
            assert_eq!((header.source_cid, header.target_cid), (HOST_CID, GUEST_CID));
            (header, payload)
        };
        let packets = used.iter().map(packet).collect();
        used.iter().for_each(|(head, _)| self.give_buffer(u16::try_from(*head).unwrap()));
        self.driver.ring(0);
        packets
    }

    /// All packets that come until nothing more happens.
    fn receive(&mut self) -> Vec<(Header, Vec<u8>)> {
        let mut packets = Vec::new();
        loop {
            self.settle();
            let more = self.received();
            if more.is_empty() {
                return packets;
            }
            packets.extend(more);
        }
    }

    /// The only packet there is, which has to be for this.
    fn receive_one(&mut self, operation: Operation) -> Header {
        let packets = self.receive();
        assert_eq!(operations(&packets), [operation]);
        packets[0].0
    }

    /// Waits for packets that time brings.
    fn wait_for_packets(&mut self) -> Vec<(Header, Vec<u8>)> {
        let end = Instant::now() + PATIENCE;
        loop {
            let packets = self.receive();
            if !packets.is_empty() {
                return packets;
            }
            assert!(Instant::now() < end, "no packet comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn asks(&self) -> Vec<Ask> {
        std::mem::take(&mut *self.asks.lock().unwrap())
    }

    /// The guest connects, and gets one end of a pair.
    fn connect(&mut self, guest_port: u32, host_port: u32) -> UnixStream {
        self.send(packet(Operation::Request, (guest_port, host_port)), &[]);
        let asks = self.asks();
        assert_eq!(asks.len(), 1);
        assert_eq!(asks[0].port, host_port);
        let (ours, theirs) = pair();
        self.side.grant(asks[0].ticket, ours.into()).unwrap();
        let response = self.receive_one(Operation::Response);
        assert_eq!((response.source_port, response.target_port), (host_port, guest_port));
        assert_eq!((response.buffer as usize, response.forwarded), (KEPT, 0));
        theirs
    }

    fn connected(&mut self) -> UnixStream {
        self.connect(GUEST_PORT, HOST_PORT)
    }

    /// The guest sends bytes on its only connection.
    fn send_data(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap();
        self.send(Header { length, ..usual(Operation::Data) }, bytes);
    }

    fn counters(&self) -> VsockCounters {
        self.function.device(Vsock::counters)
    }
}

fn task_of(task: &dyn QueueTask) -> &VsockTask {
    (task as &dyn Any).downcast_ref().unwrap()
}

/// Two sockets that do not wait.
fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, theirs)
}

/// From a port of the guest's to one of the host's, with the usual credit.
fn packet(operation: Operation, (guest_port, host_port): (u32, u32)) -> Header {
    Header {
        source_cid: GUEST_CID,
        target_cid: HOST_CID,
        source_port: guest_port,
        target_port: host_port,
        length: 0,
        kind: STREAM,
        operation: operation.number(),
        flags: 0,
        buffer: GUEST_BUFFER,
        forwarded: 0,
    }
}

/// On the connection that most tests have.
fn usual(operation: Operation) -> Header {
    packet(operation, (GUEST_PORT, HOST_PORT))
}

fn operations(packets: &[(Header, Vec<u8>)]) -> Vec<Operation> {
    packets.iter().map(|(header, _)| header.operation().unwrap()).collect()
}

fn payloads(packets: &[(Header, Vec<u8>)]) -> Vec<u8> {
    packets.iter().flat_map(|(_, payload)| payload.clone()).collect()
}

/// What can be read from a socket now.
fn read(socket: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // It ends where the socket does, or by an error where nothing more is there now.
    let _ = socket.read_to_end(&mut bytes);
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
fn guest_reads_its_address() {
    let bench = Bench::new(PATIENCE);
    let mut cid = [0xaa; 12];
    bench.driver.config(0, &mut cid);
    assert_eq!(cid, [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bench.driver.set_config(0, &[9; 8]);
    bench.driver.config(0, &mut cid);
    assert_eq!(cid[0], 5);
    assert_eq!(bench.driver.configuration(2, 2), 0x1040 + 19);
    assert_eq!(bench.driver.offered() & 0xff, 1);
}

#[test]
fn address_that_is_reserved_is_refused() {
    for guest_cid in [0, 1, 2, 0xffff_ffff, 1 << 32, u64::MAX] {
        let config = VsockConfig { guest_cid, patience: PATIENCE };
        let error = Vsock::new(config, Arc::new(|_| {})).err().unwrap().to_string();
        assert!(error.contains(&format!("the CID {guest_cid}: it is from 3")), "{error}");
    }
    for guest_cid in [3, 0xffff_fffe] {
        let config = VsockConfig { guest_cid, patience: PATIENCE };
        assert!(Vsock::new(config, Arc::new(|_| {})).is_ok());
    }
}

#[test]
fn device_that_cannot_wait_is_refused() {
    let config = VsockConfig { guest_cid: 3, patience: Duration::ZERO };
    assert!(matches!(Vsock::new(config, Arc::new(|_| {})), Err(VsockError::Patience(_))));
}

#[test]
fn driver_that_leaves_out_a_queue_is_not_served() {
    let bench = Bench::new(PATIENCE);
    assert!(bench.driver.negotiate(bench.driver.offered()));
    for queue in [0, 1] {
        assert!(bench.driver.set_up_queue(queue, &bench.rings[usize::from(queue)], 0xffff));
    }
    let _ = bench.driver.ready();
    let error = bench.function.activate().err().unwrap();
    assert_eq!(error.to_string(), "the driver did not enable queue 2");
}
