//! What is saved of a disk. Not its content.

use serde::{Deserialize, Serialize};

use super::request::{ID_LENGTH, Request};
use crate::State;

/// A disk as it was saved: what the guest was promised of it, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockState {
    /// Sectors of 512 bytes.
    pub capacity: u64,
    /// What its transfers are multiples of.
    pub block_size: u32,
    /// Whether it refuses to be written.
    pub read_only: bool,
    /// What the guest knows it by.
    pub serial: String,
    /// Whether writes wait for a flush, as the driver has set it.
    pub writeback: bool,
    /// Requests that the host has failed and that the guest has not been told of.
    pub held: Vec<HeldRequest>,
}

/// A request to be done again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldRequest {
    /// Queue that its chain is of.
    pub queue: u16,
    /// What it asks for.
    pub request: Request,
}

impl State for BlockState {
    const KIND: &'static str = "block";
    const VERSION: u16 = 1;
}

impl BlockState {
    /// Whether `saved` is of this disk: what it says that cannot be.
    pub(super) fn check(&self, saved: &Self, queue_sizes: &[u16]) -> Result<(), String> {
        let differs =
            |what, saved, here| Err(format!("its {what} was {saved}, this disk's is {here}"));
        if saved.capacity != self.capacity {
            return differs("capacity", saved.capacity, self.capacity);
        }
        if saved.block_size != self.block_size {
            return differs("block size", saved.block_size.into(), self.block_size.into());
        }
        if saved.read_only != self.read_only {
            let kind = |read_only| if read_only { "read-only" } else { "writable" };
            let (was, is) = (kind(saved.read_only), kind(self.read_only));
            return Err(format!("it was {was}, this disk is {is}"));
        }
        if saved.serial != self.serial {
            let (was, is) = (&saved.serial, &self.serial);
            return Err(format!("its serial was {was:?}, this disk's is {is:?}"));
        }
        for (queue, size) in (0_u16..).zip(queue_sizes) {
            let held = saved.held.iter().filter(|held| held.queue == queue).count();
            if held > usize::from(*size) {
                return Err(format!("queue {queue} of {size} descriptors holds {held} requests"));
            }
        }
        let missing = |held: &&HeldRequest| usize::from(held.queue) >= queue_sizes.len();
        match saved.held.iter().find(missing) {
            Some(held) => Err(format!("it holds a request of queue {}, which is not", held.queue)),
            None => Ok(()),
        }
    }
}

/// The serial number as GET_ID gives it: filled up with zeroes, not ended by one.
pub(super) fn id_of(serial: &str) -> [u8; ID_LENGTH] {
    let mut id = [0; ID_LENGTH];
    for (place, byte) in id.iter_mut().zip(serial.bytes()) {
        *place = byte;
    }
    id
}
