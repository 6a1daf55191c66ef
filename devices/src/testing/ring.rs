//! The driver's side of a queue.

use vm_memory::{Bytes, GuestAddress};

use crate::virtio::GuestRam;

/// A split queue in guest memory, as a driver has it. Takes 4 KiB and at most 64 descriptors.
pub struct FakeRing {
    ram: GuestRam,
    base: GuestAddress,
    size: u16,
    offered: u16,
    seen: u16,
}

impl FakeRing {
    /// The descriptor has a successor.
    pub const NEXT: u16 = 1;
    /// The device writes there.
    pub const WRITE: u16 = 2;
    /// The descriptor is a table of descriptors.
    pub const INDIRECT: u16 = 4;

    /// An empty queue at `base`.
    pub fn new(ram: &GuestRam, base: GuestAddress, size: u16) -> Self {
        Self { ram: ram.clone(), base, size, offered: 0, seen: 0 }
    }

    /// Goes on in other memory, which has the same content.
    pub fn move_to(&mut self, ram: &GuestRam) {
        self.ram = ram.clone();
    }

    /// How many descriptors it has.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Address of the descriptor table.
    pub fn descriptors(&self) -> GuestAddress {
        self.base
    }

    /// Address of the available ring.
    pub fn available(&self) -> GuestAddress {
        GuestAddress(self.base.0 + 0x400)
    }

    /// Address of the used ring.
    pub fn used(&self) -> GuestAddress {
        GuestAddress(self.base.0 + 0x800)
    }

    /// Fills a descriptor.
    pub fn describe(&self, index: u16, buffer: (GuestAddress, u32), flags: u16, next: u16) {
        let (address, length) = buffer;
        let at = self.base.0 + 16 * u64::from(index);
        self.put(at, address.0);
        self.put(at + 8, length);
        self.put(at + 12, flags);
        self.put(at + 14, next);
    }

    /// Makes a chain available by its head.
    pub fn offer(&mut self, head: u16) {
        self.put(self.available().0 + 4 + 2 * u64::from(self.offered % self.size), head);
        self.set_available_index(self.offered.wrapping_add(1));
    }

    /// Says how many chains were ever made available, true or not.
    pub fn set_available_index(&mut self, index: u16) {
        self.offered = index;
        self.put(self.available().0 + 2, index);
    }

    /// Head and length of the chains that came back since the last call.
    pub fn take_used(&mut self) -> Vec<(u32, u32)> {
        let end: u16 = self.get(self.used().0 + 2);
        let mut used = Vec::new();
        while self.seen != end {
            let at = self.used().0 + 4 + 8 * u64::from(self.seen % self.size);
            used.push((self.get(at), self.get(at + 4)));
            self.seen = self.seen.wrapping_add(1);
        }
        used
    }

    /// Without EVENT_IDX: no interrupt is wanted.
    pub fn set_no_interrupt(&self, no_interrupt: bool) {
        self.put(self.available().0, u16::from(no_interrupt));
    }

    /// Without EVENT_IDX: the device does not want to be rung for.
    pub fn is_doorbell_paused(&self) -> bool {
        self.get::<u16>(self.used().0) != 0
    }

    /// With EVENT_IDX: an interrupt is wanted for this chain.
    pub fn set_used_event(&self, index: u16) {
        self.put(self.available().0 + 4 + 2 * u64::from(self.size), index);
    }

    /// With EVENT_IDX: the device wants to be rung for this chain.
    pub fn available_event(&self) -> u16 {
        self.get(self.used().0 + 4 + 8 * u64::from(self.size))
    }

    fn put<T: vm_memory::ByteValued>(&self, at: u64, value: T) {
        self.ram.write_obj(value, GuestAddress(at)).expect("the ring is in memory");
    }

    fn get<T: vm_memory::ByteValued>(&self, at: u64) -> T {
        self.ram.read_obj(GuestAddress(at)).expect("the ring is in memory")
    }
}
