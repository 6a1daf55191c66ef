//! What serves the three queues: packets from the guest, packets to it, and the one event there is.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::credit::KEPT;
use super::metrics::{Metrics, count};
use super::packet::{HEADER, Header, Operation};
use super::switchboard::Switchboard;
use crate::virtio::{BadChain, Buffers, Direction, DrainError, QueueTask, VirtQueue, Wakeup};

/// The queue of packets to the guest.
pub(super) const RECEIVE: u16 = 0;
/// The queue of packets from the guest.
pub(super) const TRANSMIT: u16 = 1;
/// The queue of events.
pub(super) const EVENTS: u16 = 2;

/// Chains taken from a queue before other tasks of the worker have their turn.
const BATCH: usize = 64;
/// The event that all connections are gone: VIRTIO_VSOCK_EVENT_TRANSPORT_RESET.
const TRANSPORT_RESET: u32 = 0;

/// The queues of the device.
pub(super) struct Queues {
    pub(super) receive: VirtQueue,
    pub(super) transmit: VirtQueue,
    pub(super) events: VirtQueue,
}

/// What the device has apart from its queues.
pub(super) struct Core {
    pub(super) switchboard: Switchboard,
    /// The guest has to be told that all its connections are gone.
    pub(super) owes_reset: bool,
    /// The bytes of one packet, on their way.
    pub(super) buffer: Vec<u8>,
    pub(super) metrics: Arc<Metrics>,
}

/// Serves a socket device.
pub struct VsockTask {
    queues: Queues,
    core: Box<Core>,
    /// Packets from the guest wait for it to take answers.
    is_choked: bool,
}

impl VsockTask {
    pub(super) fn new(queues: Queues, core: Box<Core>) -> Self {
        Self { queues, core, is_choked: false }
    }

    pub(super) fn into_parts(self) -> (Queues, Box<Core>) {
        (self.queues, self.core)
    }

    #[cfg(test)]
    pub(super) fn switchboard(&self) -> &Switchboard {
        &self.core.switchboard
    }

    /// Takes packets from the guest.
    fn take_packets(&mut self) {
        let mut is_pushed = false;
        let mut taken = 0;
        while taken < BATCH {
            self.is_choked = self.core.switchboard.is_choked();
            if self.is_choked {
                break;
            }
            let Some(chain) = self.queues.transmit.pop() else {
                if self.queues.transmit.resume_doorbell() {
                    taken += 1;
                    continue;
                }
                break;
            };
            let head = chain.head_index();
            let ram = self.queues.transmit.ram();
            match Buffers::of(chain, Direction::FromGuest, ram) {
                Ok(buffers) => self.core.take_packet(&buffers),
                Err(BadChain::Broken) => {
                    count(&self.core.metrics.bad_packets);
                    self.queues.transmit.refuse();
                    break;
                }
                Err(BadChain::Useless) => count(&self.core.metrics.bad_packets),
            }
            self.queues.transmit.push(head, 0);
            is_pushed = true;
            taken += 1;
        }
        if taken == BATCH {
            // There may be more.
            self.queues.transmit.ring_doorbell();
        }
        if is_pushed {
            self.queues.transmit.signal();
        }
    }

    /// Gives the guest what there is for it, as long as it has buffers.
    fn give_packets(&mut self) {
        let mut is_pushed = false;
        let mut taken = 0;
        while taken < BATCH && self.core.switchboard.has_to_tell() {
            let Some(chain) = self.queues.receive.pop() else {
                if self.queues.receive.resume_doorbell() {
                    taken += 1;
                    continue;
                }
                break;
            };
            let head = chain.head_index();
            let ram = self.queues.receive.ram();
            let written = match Buffers::of(chain, Direction::ToGuest, ram) {
                // Without room for a byte of data, a connection could hold up all others.
                Ok(buffers) if buffers.length() > HEADER => self.core.give_packet(&buffers),
                Err(BadChain::Broken) => {
                    count(&self.core.metrics.bad_packets);
                    self.queues.receive.refuse();
                    break;
                }
                _ => {
                    count(&self.core.metrics.bad_packets);
                    Some(0)
                }
            };
            let Some(written) = written else {
                self.queues.receive.put_back();
                break;
            };
            self.queues.receive.push(head, written);
            is_pushed = true;
            taken += 1;
        }
        if taken == BATCH {
            self.queues.receive.ring_doorbell();
        }
        if is_pushed {
            self.queues.receive.signal();
        }
    }

    /// Tells the guest of what it lost, as soon as it has a buffer for that.
    fn give_event(&mut self) {
        let mut is_pushed = false;
        let mut taken = 0;
        while taken < BATCH && self.core.owes_reset {
            let Some(chain) = self.queues.events.pop() else {
                if self.queues.events.resume_doorbell() {
                    taken += 1;
                    continue;
                }
                break;
            };
            let head = chain.head_index();
            let event = TRANSPORT_RESET.to_le_bytes();
            let buffers = Buffers::of(chain, Direction::ToGuest, self.queues.events.ram());
            let written = match buffers {
                Ok(buffers) if buffers.write(0, &event) => {
                    self.core.owes_reset = false;
                    4
                }
                Err(BadChain::Broken) => {
                    count(&self.core.metrics.bad_packets);
                    self.queues.events.refuse();
                    break;
                }
                _ => {
                    count(&self.core.metrics.bad_packets);
                    0
                }
            };
            self.queues.events.push(head, written);
            is_pushed = true;
            taken += 1;
        }
        if taken == BATCH {
            self.queues.events.ring_doorbell();
        }
        if is_pushed {
            self.queues.events.signal();
        }
    }

    /// What any event may have made possible.
    fn settle(&mut self) {
        self.give_packets();
        if self.is_choked && !self.core.switchboard.is_choked() {
            self.is_choked = false;
            self.queues.transmit.ring_doorbell();
        }
    }
}

impl Core {
    fn take_packet(&mut self, buffers: &Buffers<'_>) {
        let mut header = [0; HEADER];
        if !buffers.read(0, &mut header) {
            count(&self.metrics.bad_packets);
            return;
        }
        let header = Header::from_bytes(&header);
        // Only data has bytes; those of other packets are not looked at.
        let payload = if header.operation() == Some(Operation::Data) {
            let length = usize::try_from(header.length).unwrap_or(usize::MAX);
            let bytes = self.buffer.get_mut(..length);
            bytes.and_then(|bytes| buffers.read(HEADER, bytes).then_some(&*bytes))
        } else {
            None
        };
        self.switchboard.take(&header, payload);
    }

    /// How many bytes were written; none if there is nothing to tell.
    fn give_packet(&mut self, buffers: &Buffers<'_>) -> Option<u32> {
        let room = (buffers.length() - HEADER).min(self.buffer.len());
        let header = self.switchboard.next_packet(&mut self.buffer[..room])?;
        let length = usize::try_from(header.length).unwrap_or(0).min(room);
        // The buffers are in memory, and memory stays.
        let _ = buffers.write(0, &header.to_bytes());
        let _ = buffers.write(HEADER, &self.buffer[..length]);
        u32::try_from(HEADER + length).ok()
    }

    /// A buffer for the bytes of any packet: no more than [`KEPT`] are taken from the guest or given to it at once.
    pub(super) fn packet_buffer() -> Vec<u8> {
        vec![0; KEPT]
    }
}

impl QueueTask for VsockTask {
    fn wakeups(&self) -> Vec<Wakeup> {
        let Queues { receive, transmit, events } = &self.queues;
        let doorbell = |queue: &VirtQueue| {
            Wakeup::while_readable(queue.doorbell().as_raw_fd(), queue.index().into())
        };
        let doorbells = [receive, transmit, events].map(doorbell);
        doorbells.into_iter().chain(self.core.switchboard.wakeups()).collect()
    }

    fn on_event(&mut self, token: u32) {
        match u16::try_from(token) {
            Ok(RECEIVE) => self.queues.receive.answer_doorbell(),
            Ok(TRANSMIT) => {
                self.queues.transmit.answer_doorbell();
                self.take_packets();
            }
            Ok(EVENTS) => {
                self.queues.events.answer_doorbell();
                self.give_event();
            }
            _ => self.core.switchboard.on_event(token),
        }
        self.settle();
    }

    /// Nothing is ever in flight: a chain that is taken is given back before the call returns.
    fn drain(&mut self) -> Result<usize, DrainError> {
        Ok(0)
    }

    fn rearm(&mut self) {
        self.core.switchboard.resume();
        self.queues.receive.rearm();
        self.queues.transmit.rearm();
        self.queues.events.rearm();
    }
}
