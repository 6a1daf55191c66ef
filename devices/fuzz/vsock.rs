//! Whatever packets a guest sends and however it lays them out, while an owner answers and sockets come and go: the worker
//! comes to rest, and a reset of the device leaves no socket open.
#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corten_devices::testing::{FakeDriver, FakeRing, give_back, settle, take_up, wiring};
use corten_devices::virtio::{GuestRam, QueueTask, Transport, VirtioPci};
use corten_devices::vsock::{Ask, HostSide, Vsock, VsockConfig};
use libfuzzer_sys::fuzz_target;
use vm_memory::{Bytes, GuestAddress};

const OUTGOING: GuestAddress = GuestAddress(0x4000);
const RECEIVE_BUFFERS: u64 = 0x8000;
const RECEIVE_COUNT: u16 = 8;

/// What to do, a header, and a number.
type Step = (u8, [u8; 44], u16);

struct Bench {
    function: Arc<VirtioPci<Vsock>>,
    driver: FakeDriver,
    ram: GuestRam,
    rings: [FakeRing; 3],
    tasks: Vec<Box<dyn QueueTask>>,
    asks: Arc<Mutex<Vec<Ask>>>,
    side: HostSide,
    sockets: Vec<UnixStream>,
}

impl Bench {
    fn new() -> Self {
        let asks = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asks);
        let config = VsockConfig { guest_cid: 3, patience: Duration::from_secs(60) };
        let report = move |ask| seen.lock().expect("nobody panics").push(ask);
        let vsock = Vsock::new(config, Arc::new(report)).expect("it can be made");
        let side = vsock.host_side();
        let (wiring, _, _) = wiring(3, 3);
        let ram = wiring.ram.clone();
        let function = VirtioPci::new(vsock, wiring).expect("it can be wired");
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        let rings =
            [0x1000, 0x2000, 0x3000].map(|base| FakeRing::new(&ram, GuestAddress(base), 16));
        assert!(driver.negotiate(driver.offered()));
        for (queue, ring) in (0..3).zip(&rings) {
            assert!(driver.set_up_queue(queue, ring, 0xffff));
        }
        let _ = driver.ready();
        let mut tasks = function.activate().expect("all queues are there");
        tasks.iter_mut().for_each(|task| task.rearm());
        let sockets = Vec::new();
        let mut bench = Self { function, driver, ram, rings, tasks, asks, side, sockets };
        (0..RECEIVE_COUNT).for_each(|index| {
            let buffer = (GuestAddress(RECEIVE_BUFFERS + 0x1000 * u64::from(index)), 0x1000);
            bench.rings[0].describe(index, buffer, FakeRing::WRITE, 0);
            bench.rings[0].offer(index);
        });
        bench
    }

    fn take(&mut self, step: Step) {
        let (action, header, number) = step;
        match action % 16 {
            // A packet that is nearly right.
            0..6 => self.send(likely(header, number), number),
            6 => self.send(header, number),
            7 => {
                for (head, _) in self.rings[0].take_used() {
                    self.rings[0].offer(u16::try_from(head).unwrap_or(0));
                }
                self.driver.ring(0);
            }
            8..10 => {
                let ask = self.asks.lock().expect("nobody panics").pop();
                if let Some(ask) = ask {
                    let socket = self.pair();
                    let _ = self.side.grant(ask.ticket, socket.into());
                }
            }
            10 => {
                let socket = self.pair();
                let _ = self.side.connect(socket.into(), u32::from(number % 4));
            }
            11 => {
                if let Some(socket) = self.sockets.last_mut() {
                    let _ = socket.write(&vec![1; number.into()]);
                }
            }
            12 => {
                if let Some(socket) = self.sockets.last_mut() {
                    let _ = socket.read(&mut vec![0; number.into()]);
                }
            }
            13 => {
                self.sockets.pop();
            }
            14 => {
                let [queue, index, flags, next, address @ ..] = header;
                let queue = usize::from(queue % 3);
                let mut at = [0; 8];
                at[..3].copy_from_slice(&address[..3]);
                let buffer = (GuestAddress(u64::from_le_bytes(at)), number.into());
                let (index, next) = (u16::from(index % 16), u16::from(next % 16));
                self.rings[queue].describe(index, buffer, flags.into(), next);
                self.rings[queue].offer(index);
                self.driver.ring(u16::try_from(queue).unwrap_or(0));
            }
            _ => {
                self.pause();
                self.tasks = take_up(&*self.function);
            }
        }
        self.settle();
    }

    fn send(&mut self, header: [u8; 44], length: u16) {
        self.ram.write_slice(&header, OUTGOING).expect("it is in memory");
        let split = u32::from(header[35] % 45);
        let rest = GuestAddress(OUTGOING.0 + u64::from(split));
        let length = 44 - split + u32::from(length % 0x3000);
        self.rings[1].describe(0, (OUTGOING, split), FakeRing::NEXT, 1);
        self.rings[1].describe(1, (rest, length), 0, 0);
        self.rings[1].offer(0);
        self.driver.ring(1);
    }

    fn pair(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("a pair can be made");
        theirs.set_nonblocking(true).expect("it can be set");
        self.sockets.push(theirs);
        ours
    }

    fn settle(&mut self) {
        settle(&mut self.tasks);
    }

    fn pause(&mut self) {
        give_back(&*self.function, std::mem::take(&mut self.tasks));
    }

    fn finish(mut self) {
        self.pause();
        let _ = self.driver.reset();
        self.function.deactivated().expect("no task is out");
        for socket in &mut self.sockets {
            let _ = socket.read_to_end(&mut Vec::new());
            let open = socket.read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
            assert!(!open, "a socket is left open");
        }
    }
}

/// Between the right ends, of the right type, on few ports, with credit.
fn likely(mut header: [u8; 44], length: u16) -> [u8; 44] {
    let [guest_port, host_port] = [header[16], header[20]];
    let [operation, credit] = [header[30], header[37]];
    // Services of the host's, or the first ports that it connects from.
    let high = if host_port & 0x80 == 0 { 0 } else { 0x40 };
    header[0..16].copy_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    header[16..20].copy_from_slice(&[guest_port % 4, 0, 0, 0]);
    header[20..24].copy_from_slice(&[host_port % 4, 0, 0, high]);
    header[24..28].copy_from_slice(&u32::from(length % 0x3000).to_le_bytes());
    header[28..32].copy_from_slice(&[1, 0, operation % 8, 0]);
    header[36..40].copy_from_slice(&[0, credit, 0, 0]);
    header[40..44].copy_from_slice(&[0; 4]);
    header
}

fuzz_target!(|steps: Vec<Step>| {
    let mut bench = Bench::new();
    bench.settle();
    steps.into_iter().take(200).for_each(|step| bench.take(step));
    bench.finish();
});
