//! A device that gives back what it is told.

use std::os::fd::AsRawFd;

use serde::{Deserialize, Serialize};
use vm_memory::Bytes;

use crate::virtio::{
    ActivateError, Activation, Chain, Device, DrainError, QueueTask, VirtQueue, Wakeup, read_config,
};
use crate::{RecordError, Records, State};

/// Type of [`Echo`]: one that no driver knows.
pub const ECHO_TYPE: u16 = 0x3f;
/// The feature that [`Echo`] offers.
pub const ECHO_FEATURE: u64 = 1 << 5;

/// A device that copies what a chain holds into what it leaves room for, on every queue alike. Its configuration is
/// eight bytes that the driver can write.
pub struct Echo {
    queue_sizes: Vec<u16>,
    state: EchoState,
    /// Queues that the driver must enable.
    pub needed: u16,
}

/// What changes in an [`Echo`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EchoState {
    /// Its configuration.
    pub config: [u8; 8],
    /// How many chains it has given back.
    pub served: u64,
}

impl State for EchoState {
    const KIND: &'static str = "echo";
    const VERSION: u16 = 1;
}

impl Echo {
    /// One with queues of these sizes at most.
    pub fn new(queue_sizes: &[u16]) -> Self {
        Self { queue_sizes: queue_sizes.to_vec(), state: EchoState::default(), needed: 0 }
    }

    /// What changes in it.
    pub fn state(&mut self) -> &mut EchoState {
        &mut self.state
    }

    /// How many chains it has given back, up to the last time its tasks were reclaimed.
    pub fn served(&self) -> u64 {
        self.state.served
    }
}

impl Device for Echo {
    type Task = EchoTask;

    fn device_type(&self) -> u16 {
        ECHO_TYPE
    }

    fn features(&self) -> u64 {
        ECHO_FEATURE
    }

    fn queue_sizes(&self) -> Vec<u16> {
        self.queue_sizes.clone()
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        read_config(&self.state.config, offset, data);
    }

    fn write_config(&mut self, offset: u64, data: &[u8]) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (place, byte) in self.state.config.iter_mut().skip(start).zip(data) {
            *place = *byte;
        }
    }

    fn activate(&mut self, activation: Activation) -> Result<Vec<EchoTask>, ActivateError> {
        for queue in 0..self.needed {
            if !activation.queues.iter().any(|given| given.index() == queue) {
                return Err(ActivateError::MissingQueue { queue });
            }
        }
        if let Some(queue) = activation.queues.iter().find(|queue| queue.in_flight() > 0) {
            return Err(ActivateError::InFlight { queue: queue.index() });
        }
        Ok(activation.queues.into_iter().map(|queue| EchoTask { queue, served: 0 }).collect())
    }

    fn reclaim(&mut self, tasks: Vec<EchoTask>) -> Vec<VirtQueue> {
        self.state.served += tasks.iter().map(|task| task.served).sum::<u64>();
        tasks.into_iter().map(|task| task.queue).collect()
    }

    fn reset(&mut self) {
        self.state = EchoState::default();
    }

    fn save(&self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        records.put(instance, &self.state)
    }

    fn load(&mut self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        self.state = records.take(instance)?;
        Ok(())
    }
}

/// Serves one queue of an [`Echo`].
pub struct EchoTask {
    queue: VirtQueue,
    served: u64,
}

impl QueueTask for EchoTask {
    fn wakeups(&self) -> Vec<Wakeup> {
        vec![Wakeup::while_readable(self.queue.doorbell().as_raw_fd(), 0)]
    }

    fn on_event(&mut self, _token: u32) {
        self.queue.answer_doorbell();
        // No more chains than the queue holds before others have their turn.
        for _ in 0..self.queue.size() {
            let Some(chain) = self.queue.pop() else { break };
            let head = chain.head_index();
            let written = echo(&chain);
            self.queue.push(head, written);
            self.served += 1;
        }
        if self.queue.resume_doorbell() {
            self.queue.ring_doorbell();
        }
        self.queue.signal();
    }

    fn drain(&mut self) -> Result<usize, DrainError> {
        Ok(0)
    }

    fn rearm(&mut self) {
        self.queue.rearm();
    }
}

/// Copies byte by byte: chains of tests are short, and hostile ones end at memory that is not there or after 4 KiB.
fn echo(chain: &Chain) -> u32 {
    let bytes = |writable: bool| {
        let buffers = chain.clone().filter(move |buffer| buffer.is_write_only() == writable);
        let addresses = |buffer: virtio_queue::desc::split::Descriptor| {
            (0..u64::from(buffer.len()))
                .map_while(move |at| buffer.addr().0.checked_add(at).map(vm_memory::GuestAddress))
        };
        buffers.flat_map(addresses).take(0x1000)
    };
    let mut written = 0;
    for (from, to) in bytes(false).zip(bytes(true)) {
        let byte = chain.memory().read_obj::<u8>(from);
        if byte.and_then(|byte| chain.memory().write_obj(byte, to)).is_err() {
            break;
        }
        written += 1;
    }
    written
}
