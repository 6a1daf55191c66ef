//! Fakes that tests of several modules use: interrupt routes, memory, rings, a driver, a device, a worker, a network.

mod driver;
mod echo;
mod hand_worker;
mod network;
mod ring;

use std::fs::File;
use std::sync::{Arc, Mutex};

use nix::sys::memfd::{MFdFlags, memfd_create};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

pub use self::driver::FakeDriver;
pub use self::echo::{ECHO_FEATURE, ECHO_TYPE, Echo, EchoState, EchoTask};
pub use self::hand_worker::{drain, give_back, hand_on, settle, take_up, turn};
pub use self::network::{EXPERIMENT, Wire, in_new_network};
pub use self::ring::FakeRing;
use crate::Interrupt;
use crate::pci::{Message, VectorRoutes, lock};
use crate::virtio::{GuestRam, Wiring};

/// Where [`wiring`] puts the BAR.
pub const FAKE_BAR: GuestAddress = GuestAddress(0xc000_0000);

/// 64 KiB of guest memory at 0.
pub fn guest_ram() -> GuestRam {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1_0000)]);
    Arc::new(memory.expect("64 KiB can be mapped")).into()
}

/// All that [`guest_ram`] has.
pub fn copy_ram(from: &GuestRam, to: &GuestRam) {
    let mut memory = vec![0; 0x1_0000];
    from.read_slice(&mut memory, GuestAddress(0)).expect("it is in memory");
    to.write_slice(&memory, GuestAddress(0)).expect("it is in memory");
}

/// Guest memory on a memfd, as that of a machine is: these ranges, one after the other in the file.
pub fn shared_guest_ram(ranges: &[(GuestAddress, usize)]) -> (GuestRam, File) {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create("guest", flags).expect("a memfd can be made"));
    let mut end = 0;
    let mut with_files = Vec::new();
    for (address, length) in ranges {
        let part = file.try_clone().expect("a descriptor can be duplicated");
        with_files.push((*address, *length, Some(FileOffset::new(part, end))));
        end += *length as u64;
    }
    file.set_len(end).expect("a memfd can be sized");
    let memory = GuestMemoryMmap::from_ranges_with_files(with_files);
    (Arc::new(memory.expect("the ranges can be mapped")).into(), file)
}

/// What a function with that many queues is connected to, and both ends of it.
pub fn wiring(slot: u8, queues: usize) -> (Wiring, Vec<Interrupt>, Arc<FakeRoutes>) {
    let interrupt = |_| Interrupt::new().expect("an eventfd can be made");
    let interrupts: Vec<Interrupt> = (0..=queues).map(interrupt).collect();
    let routes = Arc::new(FakeRoutes::default());
    let wiring = Wiring {
        slot,
        bar: FAKE_BAR,
        ram: guest_ram(),
        interrupts: interrupts.clone(),
        routes: Arc::clone(&routes) as Arc<dyn VectorRoutes>,
    };
    (wiring, interrupts, routes)
}

/// Whether an interrupt was raised since the last call.
pub fn was_raised(interrupt: &Interrupt) -> bool {
    interrupt.eventfd().read().is_ok()
}

/// Remembers what it was told.
#[derive(Default)]
pub struct FakeRoutes(Mutex<Vec<(u16, Option<Message>)>>);

impl FakeRoutes {
    /// Everything it was told, in order.
    pub fn updates(&self) -> Vec<(u16, Option<Message>)> {
        lock(&self.0).clone()
    }

    /// The vectors that are connected now, by rising number.
    pub fn connected(&self) -> Vec<(u16, Message)> {
        let mut connected = std::collections::BTreeMap::new();
        for (vector, message) in self.updates() {
            match message {
                Some(message) => connected.insert(vector, message),
                None => connected.remove(&vector),
            };
        }
        connected.into_iter().collect()
    }

    /// Forgets what it was told.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }
}

impl VectorRoutes for FakeRoutes {
    fn update(&self, vector: u16, message: Option<Message>) {
        lock(&self.0).push((vector, message));
    }
}
