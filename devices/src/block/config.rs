//! What a disk is made with, and what it cannot be made with.

use std::io;

use thiserror::Error;

use super::backend::{Engine, ThreadStart};
use super::file::{DiskError, LockError};
use super::request::{ID_LENGTH, MAX_SEGMENTS};
use crate::RateLimits;
use crate::virtio::MAX_QUEUES;

/// What a disk is made with. What the guest sees of it is part of the blueprint: it stays the same for the machine's
/// life, on every host.
#[derive(Clone)]
pub struct BlockConfig {
    /// What the guest knows it by: at most 20 bytes of printable ASCII.
    pub serial: String,
    /// Refuses to be written.
    pub read_only: bool,
    /// How many queues it has.
    pub queues: u16,
    /// The largest size of each: a power of two, at most 256.
    pub queue_size: u16,
    /// What transfers are multiples of; none for what the file needs. A multiple of that.
    pub block_size: Option<u32>,
    /// What becomes of requests that the host fails.
    pub on_error: ErrorPolicy,
    /// How much it may be used.
    pub limits: RateLimits,
    /// What does its transfers.
    pub engine: Engine,
    /// Whether to lock a writable disk now. If not, it is [`Block::lock`](super::Block::lock)ed before the machine runs.
    pub lock: bool,
    /// Other machines may write to it at the same time, if they share it too.
    pub shared: bool,
    /// Called by each thread of a pool.
    pub thread_start: Option<ThreadStart>,
}

impl Default for BlockConfig {
    fn default() -> Self {
        Self {
            serial: String::new(),
            read_only: false,
            queues: 1,
            queue_size: 256,
            block_size: None,
            on_error: ErrorPolicy::Report,
            limits: RateLimits::default(),
            engine: Engine::Auto,
            lock: true,
            shared: false,
            thread_start: None,
        }
    }
}

/// What becomes of a request that the host fails. None vanishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// The guest gets an I/O error.
    #[default]
    Report,
    /// It is held, and the owner is told, to pause the machine. Done again at each resume.
    Stop,
}

/// Why there can be no such disk.
#[derive(Debug, Error)]
pub enum BlockError {
    /// Cannot be shown to a guest.
    #[error("the serial {0:?} is not at most 20 bytes of printable ASCII")]
    Serial(String),
    /// There are limits.
    #[error("no disk has {queues} queues of {size} descriptors")]
    Queues {
        /// How many.
        queues: u16,
        /// Of which size.
        size: u16,
    },
    /// Smaller blocks than the file takes, or none that can be.
    #[error(
        "the disk cannot be offered with blocks of {wanted} bytes: it needs multiples of {needed}"
    )]
    BlockSize {
        /// What was asked for.
        wanted: u32,
        /// What the file needs.
        needed: u32,
    },
    /// No disk.
    #[error("the descriptor cannot be used")]
    Disk(#[source] DiskError),
    /// Images are only read.
    #[error("a disk of images needs an overlay to be written to")]
    NoOverlay,
    /// Somebody else's.
    #[error("the disk cannot be written to")]
    Lock(#[source] LockError),
    /// Neither ring nor threads.
    #[error("cannot make the disk's backend")]
    Backend(#[source] io::Error),
}

impl BlockConfig {
    /// Whether a disk can be so, whatever it is on.
    pub(super) fn check(&self) -> Result<(), BlockError> {
        let serial = &self.serial;
        if serial.len() > ID_LENGTH || !serial.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(BlockError::Serial(serial.clone()));
        }
        let (queues, size) = (self.queues, self.queue_size);
        let largest = MAX_SEGMENTS + 2;
        let size_can_be = size.is_power_of_two() && size >= 4 && usize::from(size) <= largest;
        if queues == 0 || usize::from(queues) > MAX_QUEUES || !size_can_be {
            return Err(BlockError::Queues { queues, size });
        }
        Ok(())
    }
}
