//! Whatever a guest has in its memory and describes, no reader of network chains and commands goes past it; and whatever it then
//! rings for, with frames coming in, the interface comes to rest, can be saved and goes on in another process, or is reset.
#![no_main]

use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock};

use corten_devices::net::{MacAddress, Net, NetConfig, look_at_chain};
use corten_devices::testing::{
    FakeDriver, FakeRing, Wire, copy_ram, give_back, guest_ram, hand_on, settle, take_up, wiring,
};
use corten_devices::virtio::{GuestRam, QueueTask, Transport, VirtioPci};
use corten_net::Tap;
use libfuzzer_sys::fuzz_target;
use nix::sched::{CloneFlags, unshare};
use vm_memory::{Bytes, GuestAddress};

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
/// Two pairs and the control queue.
const QUEUES: usize = 5;
const CONTROL: usize = 4;

/// Address, length and flags.
type Descriptor = (u64, u32, u16);
/// What to do, two numbers for it, an address, a length, and flags.
type Step = (u8, u8, u8, u64, u32, u16);

/// The host's side, made once in a network of this thread's own: an interface takes longer to make than all else. None
/// without the rights for it.
struct Host {
    queues: Vec<OwnedFd>,
    wire: Wire,
}

static HOST: LazyLock<Option<Host>> = LazyLock::new(|| {
    let made = unshare(CloneFlags::CLONE_NEWNET).is_ok();
    let Some(tap) = made.then(|| Tap::create("tap0", 2).ok()).flatten() else {
        eprintln!("no TAP can be made here: only chains are looked at");
        return None;
    };
    Some(Host { queues: tap.into_queues(), wire: Wire::new() })
});

struct Bench {
    host: &'static Host,
    function: Arc<VirtioPci<Net>>,
    driver: FakeDriver,
    ram: GuestRam,
    rings: Vec<FakeRing>,
    tasks: Vec<Box<dyn QueueTask>>,
}

impl Bench {
    fn new(host: &'static Host) -> Self {
        let queue = |fd: &OwnedFd| fd.try_clone().expect("a descriptor can be duplicated");
        let taps = host.queues.iter().map(queue).collect();
        let net = Net::new(&NetConfig { queue_size: 16, ..NetConfig::new(MAC) }, taps);
        let (wiring, _, _) = wiring(3, QUEUES);
        let ram = wiring.ram.clone();
        let function =
            VirtioPci::new(net.expect("it can be made"), wiring).expect("it can be wired");
        let driver = FakeDriver::new(Arc::clone(&function) as _, Arc::clone(&function) as _);
        Self { host, function, driver, rings: rings(&ram), ram, tasks: Vec::new() }
    }

    fn start(&mut self, left_out: u64) {
        let features = self.driver.offered() & !left_out | FakeDriver::VERSION_1;
        assert!(self.driver.negotiate(features));
        for (queue, ring) in (0..).zip(&self.rings) {
            assert!(self.driver.set_up_queue(queue, ring, 0xffff));
        }
        let _ = self.driver.ready();
        // Some of them cannot do without each other: it asks for a reset.
        self.tasks = self.function.activate().unwrap_or_default();
        self.tasks.iter_mut().for_each(|task| task.rearm());
    }

    fn pause(&mut self) {
        give_back(&*self.function, std::mem::take(&mut self.tasks));
    }

    /// Goes on as one that was saved.
    fn replace(&mut self) {
        self.pause();
        let mut next = Self::new(self.host);
        copy_ram(&self.ram, &next.ram);
        hand_on(&*self.function, &*next.function);
        std::mem::swap(&mut self.rings, &mut next.rings);
        next.rings.iter_mut().for_each(|ring| ring.move_to(&next.ram));
        next.tasks = take_up(&*next.function);
        *self = next;
    }

    /// The driver gives up, and asks for more while it waits.
    fn reset(&mut self, head: u16, left_out: u64) {
        let _ = self.driver.reset();
        for (queue, ring) in (0..).zip(&mut self.rings) {
            ring.offer(head % 17);
            self.driver.ring(queue);
        }
        settle(&mut self.tasks);
        self.pause();
        self.function.deactivated().expect("no task is out");
        assert_eq!(self.driver.status(), 0);
        let rings = vec![0; 0x1000 * QUEUES];
        self.ram.write_slice(&rings, GuestAddress(0x1000)).expect("it is in memory");
        self.rings = self::rings(&self.ram);
        self.start(left_out);
    }

    fn offer(&mut self, queue: usize, head: u16) {
        self.rings[queue].offer(head);
        self.driver.ring(u16::try_from(queue).unwrap_or(0));
    }

    fn command(&mut self, bytes: &[u8]) {
        self.ram.write_slice(bytes, GuestAddress(0xf000)).expect("it is in memory");
        let length = u32::try_from(bytes.len()).unwrap_or(0);
        let ring = &self.rings[CONTROL];
        ring.describe(0, (GuestAddress(0xf000), length), FakeRing::NEXT, 1);
        ring.describe(1, (GuestAddress(0xfff0), 1), FakeRing::WRITE, 0);
        self.offer(CONTROL, 0);
    }

    fn take(&mut self, (what, a, b, address, length, flags): Step) {
        let queue = usize::from(a) % QUEUES;
        match what % 16 {
            0..3 => {
                let address = if what & 0x80 == 0 { address % 0x1_1000 } else { address };
                let (index, next) = (u16::from(b & 15), u16::from(b >> 4));
                self.rings[queue].describe(index, (GuestAddress(address), length), flags, next);
            }
            3..7 => {
                // One buffer as it should be, of a queue that carries packets.
                let (queue, index) = (usize::from(a & 3), u16::from(b & 15));
                let direction = if queue.is_multiple_of(2) { FakeRing::WRITE } else { 0 };
                let buffer = (GuestAddress(0x6000 + address % 0x8000), length % 0x2000);
                self.rings[queue].describe(index, buffer, direction, 0);
                self.offer(queue, index);
            }
            7..9 => self.offer(queue, u16::from(b) % 17),
            9..11 => {
                let mut frame = vec![b; 60 + usize::from(flags % 1400)];
                frame[..6].copy_from_slice(&if a & 1 == 0 { MAC.0 } else { [0xff; 6] });
                frame[12..14].copy_from_slice(&[0x88, 0xb5]);
                self.host.wire.send(&frame);
            }
            11..13 => {
                let [c, d, ..] = address.to_le_bytes();
                self.command(
                    &[&[a % 5, b % 6, c, d][..], &length.to_le_bytes()].concat()
                        [..usize::from(flags) % 9],
                );
            }
            13 if what & 0x80 == 0 => self.rings[queue].set_available_index(flags),
            13 => drop(self.function.change_config(Net::announce)),
            14 => self.reset(flags, address),
            _ => self.replace(),
        }
        settle(&mut self.tasks);
        while self.host.wire.try_receive().is_some() {}
    }
}

fn rings(ram: &GuestRam) -> Vec<FakeRing> {
    let base = |queue: u64| GuestAddress(0x1000 * (queue + 1));
    (0..QUEUES as u64).map(|queue| FakeRing::new(ram, base(queue), 16)).collect()
}

fuzz_target!(|input: (u64, Vec<Step>, Vec<Descriptor>, &[u8])| {
    let (features, steps, descriptors, memory) = input;
    let ram = guest_ram();
    // 64 KiB, and so are the longest inputs.
    let _ = ram.write(memory, GuestAddress(0));
    look_at_chain(&ram, &descriptors, features);
    let Some(host) = &*HOST else { return };
    let mut bench = Bench::new(host);
    bench.start(if features & 3 == 0 { features } else { 0 });
    steps.into_iter().take(100).for_each(|step| bench.take(step));
    bench.replace();
    settle(&mut bench.tasks);
    bench.pause();
});
