//! From the guest to the TAP.

use std::io;
use std::time::{Duration, Instant};

use super::buffers::{BadChain, ETHERNET, GuestBuffers, HEADER, Writer};
use super::metrics::count;
use super::tap::TapQueue;
use super::worker::{BATCH, BATCH_BYTES, Outcome, Shared};
use crate::pci::lock;
use crate::virtio::VirtQueue;

/// Takes what the guest sends.
pub(super) struct Transmitter {
    queue: VirtQueue,
    /// The chain at hand.
    buffers: GuestBuffers,
    /// Something was pushed that the driver was not told of.
    is_pushed: bool,
}

impl Transmitter {
    pub(super) fn new(queue: VirtQueue) -> Self {
        let buffers = GuestBuffers::new(queue.ram().clone());
        Self { queue, buffers, is_pushed: false }
    }

    pub(super) fn queue(&self) -> &VirtQueue {
        &self.queue
    }

    pub(super) fn queue_mut(&mut self) -> &mut VirtQueue {
        &mut self.queue
    }

    pub(super) fn into_queue(self) -> VirtQueue {
        self.queue
    }

    /// Transmits as much as there may be now.
    pub(super) fn run(&mut self, tap: &TapQueue, shared: &Shared) -> Outcome {
        let outcome = self.transmit(tap, shared);
        if std::mem::take(&mut self.is_pushed) {
            self.queue.signal();
        }
        outcome
    }

    fn transmit(&mut self, tap: &TapQueue, shared: &Shared) -> Outcome {
        let mut bytes = 0;
        for _ in 0..BATCH {
            if bytes >= BATCH_BYTES {
                return Outcome::More;
            }
            let Some(chain) = self.queue.pop() else {
                if self.queue.resume_doorbell() {
                    continue;
                }
                return Outcome::Idle;
            };
            let head = chain.head_index();
            self.buffers.clear();
            let length = match self.buffers.add(chain, Writer::Driver) {
                Ok(shape) if shape.length >= HEADER + ETHERNET => shape.length,
                Err(BadChain::Broken) => {
                    count(&shared.metrics.malformed);
                    self.queue.refuse();
                    return Outcome::Idle;
                }
                _ => {
                    count(&shared.metrics.malformed);
                    self.give_back(head);
                    continue;
                }
            };
            let frame = (length - HEADER) as u64;
            if let Err(wait) = may_transmit(shared, frame) {
                count(&shared.metrics.throttled);
                self.queue.put_back();
                return Outcome::Wait(wait);
            }
            match self.buffers.write_to(tap) {
                Ok(_) => {
                    shared.metrics.transmitted(frame);
                    spend(shared, frame);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.queue.put_back();
                    return Outcome::Blocked;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    self.queue.put_back();
                    continue;
                }
                // As a frame on a cable that is not plugged in.
                Err(_) => count(&shared.metrics.refused),
            }
            bytes += length;
            self.give_back(head);
        }
        Outcome::More
    }

    fn give_back(&mut self, head: u16) {
        self.queue.push(head, 0);
        self.is_pushed = true;
    }
}

fn may_transmit(shared: &Shared, bytes: u64) -> Result<(), Duration> {
    match &shared.transmit_limiter {
        Some(limiter) => lock(limiter).allows(bytes, Instant::now()),
        None => Ok(()),
    }
}

fn spend(shared: &Shared, bytes: u64) {
    if let Some(limiter) = &shared.transmit_limiter {
        lock(limiter).spend(bytes);
    }
}
