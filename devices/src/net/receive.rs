//! From the TAP to the guest.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::buffers::{ETHERNET, GuestBuffers, HEADER, MAX_PACKET, Shape, Writer};
use super::filter::ReceiveFilter;
use super::mac::MacAddress;
use super::metrics::count;
use super::offload::Offloads;
use super::tap::TapQueue;
use super::worker::{BATCH, BATCH_BYTES, Outcome, RETRY, Shared, Terms};
use crate::pci::lock;
use crate::virtio::VirtQueue;

/// What is decided upon before the guest gets it: header and Ethernet header. It is read into memory of our own, where
/// the guest cannot change it under our hands.
const FRONT: usize = HEADER + ETHERNET;

/// How often in one turn the driver may offer a chain just when there was none.
const MAX_LOOKS: usize = 64;

/// Memory of our own for one packet: its front, and whatever the guest's buffers do not hold.
///
/// A byte has the same place here as in the packet, so that a packet that came in parts is put together by copying the
/// missing ones.
pub(super) struct Packet {
    /// One byte more than a packet can have, so as to see one that is longer. Pages that are not used are not there.
    bytes: Vec<u8>,
    /// It was read and waits for buffers.
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    length: usize,
    /// The bytes from [`FRONT`] to here are in the guest's buffers, the others in ours.
    direct: usize,
}

impl Packet {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; MAX_PACKET + 1], waiting: None }
    }

    /// Drops the packet that waits.
    pub(super) fn forget(&mut self) {
        self.waiting = None;
    }

    fn header(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or_default()
    }

    fn set_header(&mut self, at: usize, value: u8) {
        if let Some(place) = self.bytes.get_mut(at) {
            *place = value;
        }
    }

    fn destination(&self) -> MacAddress {
        let bytes = self.bytes.get(HEADER..HEADER + 6).unwrap_or_default();
        MacAddress(bytes.try_into().unwrap_or_default())
    }
}

/// How far the driver's buffers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    /// As far as is wanted.
    Enough,
    /// Not as far, but the driver may add some.
    Short,
    /// Not as far, and never will: these are all that can be.
    Never,
}

/// A chain taken and not used yet.
#[derive(Clone, Copy, Debug)]
struct Held {
    head: u16,
    shape: Shape,
}

/// Gives the guest what comes.
pub(super) struct Receiver {
    queue: VirtQueue,
    buffers: GuestBuffers,
    /// The chains in `buffers`, in order. Kept from packet to packet, as a large one needs many and a small one few.
    held: VecDeque<Held>,
    /// Bytes of theirs.
    room: usize,
    /// Descriptors of theirs.
    segments: usize,
    offloads: Offloads,
    is_mergeable: bool,
    /// Room to have before reading: what most packets need at most.
    wanted: usize,
    /// Something was pushed that the driver was not told of.
    is_pushed: bool,
}

impl Receiver {
    pub(super) fn new(queue: VirtQueue, terms: Terms) -> Self {
        let buffers = GuestBuffers::new(queue.ram().clone());
        let wanted = if !terms.is_mergeable {
            1
        } else if terms.offloads.has_large_frames() {
            MAX_PACKET
        } else {
            FRONT + 4 + usize::from(terms.mtu)
        };
        Self {
            queue,
            buffers,
            held: VecDeque::new(),
            room: 0,
            segments: 0,
            offloads: terms.offloads,
            is_mergeable: terms.is_mergeable,
            wanted,
            is_pushed: false,
        }
    }

    pub(super) fn queue(&self) -> &VirtQueue {
        &self.queue
    }

    pub(super) fn queue_mut(&mut self) -> &mut VirtQueue {
        &mut self.queue
    }

    /// Its queue, after [`Self::give_back`].
    pub(super) fn into_queue(self) -> VirtQueue {
        self.queue
    }

    /// Puts all chains back. A packet that waits stays, in memory of our own.
    pub(super) fn give_back(&mut self, packet: &mut Packet) {
        if let Some(waiting) = &mut packet.waiting {
            let direct = waiting.direct.min(waiting.length);
            if let Some(bytes) = packet.bytes.get_mut(FRONT..direct) {
                self.buffers.read(FRONT, bytes);
            }
            waiting.direct = FRONT;
        }
        for _ in self.held.drain(..) {
            self.queue.put_back();
        }
        self.buffers.clear();
        (self.room, self.segments) = (0, 0);
    }

    /// Receives as much as there may be now.
    pub(super) fn run(
        &mut self,
        tap: &TapQueue,
        packet: &mut Packet,
        filter: &ReceiveFilter,
        shared: &Shared,
    ) -> Outcome {
        let outcome = self.receive(tap, packet, filter, shared);
        if std::mem::take(&mut self.is_pushed) {
            self.queue.signal();
        }
        outcome
    }

    fn receive(
        &mut self,
        tap: &TapQueue,
        packet: &mut Packet,
        filter: &ReceiveFilter,
        shared: &Shared,
    ) -> Outcome {
        let mut bytes = 0;
        for _ in 0..BATCH {
            if bytes >= BATCH_BYTES {
                return Outcome::More;
            }
            if packet.waiting.is_none() {
                self.fill(self.wanted);
                if self.held.is_empty() {
                    return Outcome::NoBuffers;
                }
                if let Err(wait) = may_receive(shared) {
                    count(&shared.metrics.throttled);
                    return Outcome::Wait(wait);
                }
                // Up to here the guest's memory is used, and past it ours.
                let direct = self.reach().clamp(FRONT, MAX_PACKET);
                match self.buffers.read_from(tap, &mut packet.bytes, FRONT..direct) {
                    Ok(length) => {
                        bytes += length;
                        if !self.accepts(packet, length, filter, shared) {
                            continue;
                        }
                        spend(shared, length);
                        packet.waiting = Some(Waiting { length, direct });
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Outcome::Idle;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // The TAP is gone, or not there for a moment: it is asked again, but not all the time.
                    Err(_) => {
                        count(&shared.metrics.receive_errors);
                        return Outcome::Wait(RETRY);
                    }
                }
            }
            if let Some(waiting) = packet.waiting {
                match self.supply(waiting.length) {
                    Supply::Enough => {
                        self.deliver(packet, waiting);
                        shared.metrics.received((waiting.length - HEADER) as u64);
                    }
                    Supply::Short => return Outcome::NoBuffers,
                    Supply::Never => count(&shared.metrics.oversized),
                }
                packet.waiting = None;
            }
        }
        Outcome::More
    }

    /// Whether the guest is to have the packet that was just read.
    fn accepts(
        &self,
        packet: &Packet,
        length: usize,
        filter: &ReceiveFilter,
        shared: &Shared,
    ) -> bool {
        let metrics = &shared.metrics;
        let refusal = if length > MAX_PACKET {
            &metrics.oversized
        } else if length < FRONT || !self.offloads.take(packet.header(0), packet.header(1)) {
            &metrics.unfit
        } else if !filter.accepts(packet.destination()) {
            &metrics.filtered
        } else {
            return true;
        };
        count(refusal);
        false
    }

    /// Bytes that one packet can have in the chains held.
    fn reach(&self) -> usize {
        if self.is_mergeable {
            self.room
        } else {
            self.held.front().map_or(0, |held| held.shape.length)
        }
    }

    /// Takes chains until a packet of `length` bytes fits, if there are as many.
    fn supply(&mut self, length: usize) -> Supply {
        let supply = self.fill(if self.is_mergeable { length } else { 1 });
        if self.reach() >= length {
            return Supply::Enough;
        }
        // Without merging, every buffer must hold every packet (5.1.6.3.1): what does not fit never will.
        if !self.is_mergeable && !self.held.is_empty() { Supply::Never } else { supply }
    }

    fn fill(&mut self, wanted: usize) -> Supply {
        let mut looks = 0;
        while self.room < wanted {
            // With every descriptor in hand there is none left for the driver to add. Those of an indirect table count as
            // well, though they take only one: such a driver loses a packet where it could have added room for it.
            if !self.buffers.has_room() || self.segments >= usize::from(self.queue.size()) {
                return Supply::Never;
            }
            let Some(chain) = self.queue.pop() else {
                // A driver that takes its index back and forth makes it look as if there were always one more: what it offers
                // after some looks, it has to ring for once more.
                looks += 1;
                if looks < MAX_LOOKS && self.queue.resume_doorbell() {
                    continue;
                }
                if looks == MAX_LOOKS {
                    self.queue.ring_doorbell();
                }
                return Supply::Short;
            };
            let head = chain.head_index();
            match self.buffers.add(chain, Writer::Device) {
                Ok(shape) if shape.length >= HEADER => {
                    self.held.push_back(Held { head, shape });
                    self.room += shape.length;
                    self.segments += shape.segments;
                }
                // What is received cannot be refused with a status: the driver has to start anew.
                _ => {
                    self.buffers.clear();
                    self.queue.put_back();
                    self.held.drain(..).for_each(|_| self.queue.put_back());
                    (self.room, self.segments) = (0, 0);
                    self.queue.fail();
                    return Supply::Short;
                }
            }
        }
        Supply::Enough
    }

    /// Completes a packet for which there is room, and gives it to the driver.
    fn deliver(&mut self, packet: &mut Packet, waiting: Waiting) {
        let Waiting { length, direct } = waiting;
        let mut used = Vec::new();
        let mut left = length;
        for held in &self.held {
            if left == 0 {
                break;
            }
            let written = held.shape.length.min(left);
            left -= written;
            used.push((held.head, u32::try_from(written).unwrap_or(u32::MAX)));
        }
        packet.set_header(0, self.offloads.visible(packet.header(0)));
        let [low, high] = u16::try_from(used.len()).unwrap_or(u16::MAX).to_le_bytes();
        packet.set_header(HEADER - 2, low);
        packet.set_header(HEADER - 1, high);
        self.buffers.write(0, packet.bytes.get(..FRONT).unwrap_or_default());
        self.buffers.mark_written(FRONT..direct.min(length));
        self.buffers.write(direct, packet.bytes.get(direct..length).unwrap_or_default());
        for held in self.held.drain(..used.len()) {
            self.room -= held.shape.length;
            self.segments -= held.shape.segments;
            self.buffers.remove(held.shape);
        }
        self.queue.push_all(&used);
        self.is_pushed = true;
    }
}

/// How large a packet is shows when it has been read.
fn may_receive(shared: &Shared) -> Result<(), Duration> {
    match &shared.receive_limiter {
        Some(limiter) => lock(limiter).allows(1, Instant::now()),
        None => Ok(()),
    }
}

fn spend(shared: &Shared, length: usize) {
    if let Some(limiter) = &shared.receive_limiter {
        lock(limiter).spend((length - HEADER) as u64);
    }
}
