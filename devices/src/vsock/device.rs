//! The socket device as its driver and the machine's owner see it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use virtio_bindings::virtio_ids::VIRTIO_ID_VSOCK;

use super::host_side::{AskReport, HostSide, orders};
use super::metrics::{Metrics, VsockCounters};
use super::state::VsockState;
use super::switchboard::{HOST_CID, Switchboard};
use super::worker::{Core, EVENTS, Queues, RECEIVE, TRANSMIT, VsockTask};
use crate::virtio::{ActivateError, Activation, Device, VirtQueue, read_config};
use crate::{RecordError, RecordName, Records, State};

/// VIRTIO_VSOCK_F_STREAM: streams are on offer. Drivers that know of no features take streams for granted.
const STREAM_FEATURE: u64 = 1 << 0;
/// Packets to the guest, packets from it, events.
const QUEUE_SIZES: [u16; 3] = [256, 256, 16];

/// What a socket device is made with.
#[derive(Clone, Copy, Debug)]
pub struct VsockConfig {
    /// The guest's address: 3 or more, and less than 2^32 - 1. Part of what the guest is promised.
    pub guest_cid: u64,
    /// How long the owner has for an answer, and the guest for its own. The host's end of a connection that the guest closed
    /// has fifteen times as long to take some of what is left; what it does not take then is lost.
    pub patience: Duration,
}

/// Why there can be no such device.
#[derive(Debug, Error)]
pub enum VsockError {
    /// Reserved, or too large.
    #[error("a guest cannot have the CID {0}: it is from 3 to 4294967294")]
    GuestCid(u64),
    /// The guest could not connect anywhere.
    #[error("the socket device cannot wait for {0:?}: at least a millisecond is needed")]
    Patience(Duration),
    /// The host is short of something.
    #[error("cannot make the socket device's descriptors")]
    Descriptors(#[source] io::Error),
}

/// A socket device.
pub struct Vsock {
    guest_cid: u64,
    host_side: HostSide,
    metrics: Arc<Metrics>,
    /// What is not in a task.
    core: Option<Box<Core>>,
}

impl Vsock {
    /// A device whose guest has this address. Makes all descriptors that it will ever need. `report` hears of
    /// connections that the guest wants, to be answered by [`Self::host_side`].
    pub fn new(config: VsockConfig, report: AskReport) -> Result<Self, VsockError> {
        let VsockConfig { guest_cid, patience } = config;
        if guest_cid <= HOST_CID || guest_cid >= u64::from(libc::VMADDR_CID_ANY) {
            return Err(VsockError::GuestCid(guest_cid));
        }
        if patience < Duration::from_millis(1) {
            return Err(VsockError::Patience(patience));
        }
        let (host_side, orders) = orders().map_err(VsockError::Descriptors)?;
        let metrics = Arc::new(Metrics::default());
        let switchboard =
            Switchboard::new(guest_cid, patience, report, orders, Arc::clone(&metrics))
                .map_err(VsockError::Descriptors)?;
        let core = Core {
            switchboard,
            owes_reset: false,
            buffer: Core::packet_buffer(),
            metrics: Arc::clone(&metrics),
        };
        Ok(Self { guest_cid, host_side, metrics, core: Some(Box::new(core)) })
    }

    /// What the owner answers and connects by.
    pub fn host_side(&self) -> HostSide {
        self.host_side.clone()
    }

    /// What it has counted.
    pub fn counters(&self) -> VsockCounters {
        self.metrics.counters()
    }

    fn state(&self) -> VsockState {
        // Whoever loads this has none of the connections.
        let owes_reset =
            self.core.as_ref().is_some_and(|core| core.owes_reset || core.switchboard.has_driver());
        VsockState { guest_cid: self.guest_cid, owes_reset }
    }
}

impl Device for Vsock {
    type Task = VsockTask;

    fn device_type(&self) -> u16 {
        u16::try_from(VIRTIO_ID_VSOCK).unwrap_or(u16::MAX)
    }

    fn features(&self) -> u64 {
        STREAM_FEATURE
    }

    fn queue_sizes(&self) -> Vec<u16> {
        QUEUE_SIZES.to_vec()
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        read_config(&self.guest_cid.to_le_bytes(), offset, data);
    }

    /// Nothing in it can be written.
    fn write_config(&mut self, _offset: u64, _data: &[u8]) {}

    fn activate(&mut self, activation: Activation) -> Result<Vec<VsockTask>, ActivateError> {
        if let Some(queue) = activation.queues.iter().find(|queue| queue.in_flight() > 0) {
            return Err(ActivateError::InFlight { queue: queue.index() });
        }
        let mut queues = activation.queues.into_iter();
        let mut next = |index| {
            let queue = queues.next().filter(|queue| queue.index() == index);
            queue.ok_or(ActivateError::MissingQueue { queue: index })
        };
        let queues =
            Queues { receive: next(RECEIVE)?, transmit: next(TRANSMIT)?, events: next(EVENTS)? };
        let task = |core: Box<Core>| {
            core.switchboard.start();
            VsockTask::new(queues, core)
        };
        Ok(self.core.take().map(task).into_iter().collect())
    }

    fn reclaim(&mut self, tasks: Vec<VsockTask>) -> Vec<VirtQueue> {
        let mut queues = Vec::new();
        for task in tasks {
            let (Queues { receive, transmit, events }, core) = task.into_parts();
            self.core = Some(core);
            queues.extend([receive, transmit, events]);
        }
        queues
    }

    fn reset(&mut self) {
        if let Some(core) = &mut self.core {
            core.owes_reset = false;
            core.switchboard.clear();
        }
    }

    fn save(&self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        records.put(instance, &self.state())
    }

    fn load(&mut self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        let saved: VsockState = records.take(instance)?;
        if saved.guest_cid != self.guest_cid {
            let name = RecordName { kind: VsockState::KIND.into(), instance: instance.into() };
            let (was, is) = (saved.guest_cid, self.guest_cid);
            let reason = format!("its guest's CID was {was}, this device's is {is}");
            return Err(RecordError::Impossible { name, reason });
        }
        if let Some(core) = &mut self.core {
            core.switchboard.clear();
            core.owes_reset = saved.owes_reset;
        }
        Ok(())
    }
}
