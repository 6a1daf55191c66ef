//! What a device type is, apart from its transport.

use std::any::Any;
use std::io;
use std::os::fd::RawFd;

use thiserror::Error;

use super::VirtQueue;
use crate::{RecordError, Records};

/// A type of virtio device: what it offers, its configuration, and tasks that serve its queues.
///
/// The transport calls it with the function's lock held, one call at a time: from vCPU threads for configuration and
/// [`Self::reset`], from the machine's owner for the rest. No call waits for anything, and none touches guest memory.
///
/// Save and load have no default: a device without state of its own says so by an empty body.
pub trait Device: Send + 'static {
    /// What serves its queues.
    type Task: QueueTask;

    /// Device type, as in section 5 of the specification.
    fn device_type(&self) -> u16;

    /// Features of this device type. Always the same: they are part of what the guest was promised. The transport adds
    /// its own (VERSION_1, EVENT_IDX, INDIRECT_DESC).
    fn features(&self) -> u64;

    /// The largest size of each queue, by number: powers of two. Always the same.
    fn queue_sizes(&self) -> Vec<u16>;

    /// Fills `data` from `offset` bytes into the device's configuration; see [`read_config`].
    fn read_config(&self, offset: u64, data: &mut [u8]);

    /// Takes what the guest writes at `offset` bytes into the device's configuration, of any length.
    fn write_config(&mut self, offset: u64, data: &[u8]);

    /// Makes the tasks that serve these queues, and gives them all it has: backends, rings, in-memory state.
    ///
    /// Called when a driver is ready, and after each pause and load. No task is out. Nothing runs yet: a worker calls
    /// [`QueueTask::rearm`] first. Chains in flight ([`VirtQueue::in_flight`]) are those that the device held at the
    /// last reclaim and has saved itself: a device that holds none refuses them, as they come of a damaged state. After
    /// an error the device has everything it had before, but for the queues.
    fn activate(&mut self, activation: Activation) -> Result<Vec<Self::Task>, ActivateError>;

    /// Takes back what [`Self::activate`] gave, drained, and gives the queues back, every one of them.
    fn reclaim(&mut self, tasks: Vec<Self::Task>) -> Vec<VirtQueue>;

    /// Forgets what the driver did. No task is out.
    fn reset(&mut self);

    /// Saves what changes in it while the machine runs. No task is out.
    fn save(&self, instance: &str, records: &mut Records) -> Result<(), RecordError>;

    /// Takes over what [`Self::save`] saved, whatever is in it: it may be damaged. Before the first activation.
    fn load(&mut self, instance: &str, records: &mut Records) -> Result<(), RecordError>;
}

/// What a device is activated with.
pub struct Activation {
    /// The queues that the driver enabled, by rising number.
    pub queues: Vec<VirtQueue>,
    /// The features that the driver took.
    pub features: u64,
}

/// Serves one queue or several of one device.
///
/// A worker owns it and calls it on its own thread only. Moved into the worker by the owner after
/// [`Transport::activate`](super::Transport::activate), moved out for
/// [`Transport::reclaim`](super::Transport::reclaim).
pub trait QueueTask: Any + Send {
    /// The descriptors that wake it when they are readable. Always the same while a worker has it.
    fn wakeups(&self) -> Vec<Wakeup>;

    /// The descriptor with this token is readable, or was: the task makes it unreadable again, if it is not one that
    /// [wakes when written](Wakeup::when_written), then does what there is to do. Does not wait; a lot of work is done in
    /// parts, the task waking itself by its doorbell.
    fn on_event(&mut self, token: u32);

    /// Takes no more requests, and says how many are still in flight. vCPUs are parked, or the driver gave up the queues.
    ///
    /// Does not wait: as long as some are in flight, [`Self::on_event`] is called as before, which only finishes them, and
    /// then this again. With none left, neither guest memory nor a backend is touched until [`Self::rearm`], and
    /// everything done is in the used ring; whether the driver was told does not matter. After an error, or when the
    /// worker has waited long enough, the task is armed anew, and the pause fails.
    fn drain(&mut self) -> Result<usize, DrainError>;

    /// Starts, or starts again: for every queue [`VirtQueue::rearm`]. Called once the worker has it, before any event,
    /// and after a drain that came to nothing. vCPUs may run already. Queues that the driver gave up stay closed
    /// (`VirtQueue::is_closed`): what is in flight there is all there will be.
    fn rearm(&mut self);
}

/// A descriptor that wakes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// Open as long as the task lives.
    pub fd: RawFd,
    /// What [`QueueTask::on_event`] is called with.
    pub token: u32,
    /// It wakes the task once for each time that it is written to, and not as long as it is readable.
    pub is_edge: bool,
}

impl Wakeup {
    /// One that wakes the task as long as it is readable.
    pub fn while_readable(fd: RawFd, token: u32) -> Self {
        Self { fd, token, is_edge: false }
    }

    /// An eventfd that wakes the task whenever it is written to: it need not be read, which spares a system call for each
    /// time. Where several are written before the task is called, it is called once.
    pub fn when_written(fd: RawFd, token: u32) -> Self {
        Self { fd, token, is_edge: true }
    }
}

/// Why a device does not start. It asks its driver for a reset.
#[derive(Debug, Error)]
pub enum ActivateError {
    /// The driver left out a queue that the device cannot do without.
    #[error("the driver did not enable queue {queue}")]
    MissingQueue {
        /// Which one.
        queue: u16,
    },
    /// Chains are in flight that the device does not know of.
    #[error("queue {queue} has chains in flight that nobody holds")]
    InFlight {
        /// Which one.
        queue: u16,
    },
    /// Something of the host's failed.
    #[error("the backend cannot start")]
    Backend(#[source] io::Error),
}

/// Why a task cannot stop.
#[derive(Debug, Error)]
pub enum DrainError {
    /// The backend did not answer in time. It is the worker that says so.
    #[error("{in_flight} requests are still in flight")]
    Deadline {
        /// How many.
        in_flight: usize,
    },
    /// The backend cannot be asked.
    #[error("the backend fails")]
    Backend(#[source] io::Error),
}

/// Reads a configuration that is `bytes`: zeros behind its end.
pub fn read_config(bytes: &[u8], offset: u64, data: &mut [u8]) {
    let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or(&[]);
    let length = rest.len().min(data.len());
    data[..length].copy_from_slice(&rest[..length]);
    data[length..].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_reads_as_zero_behind_its_end() {
        let read = |offset| {
            let mut data = [0xaa; 3];
            read_config(&[1, 2, 3, 4], offset, &mut data);
            data
        };
        assert_eq!(read(0), [1, 2, 3]);
        assert_eq!(read(2), [3, 4, 0]);
        assert_eq!(read(4), [0; 3]);
        assert_eq!(read(u64::MAX), [0; 3]);
    }
}
