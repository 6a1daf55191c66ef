//! The entropy device as its driver and the machine's owner see it.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use virtio_bindings::virtio_ids::VIRTIO_ID_RNG;

use super::metrics::{Metrics, RngCounters};
use super::worker::{Core, RngTask};
use crate::limits::Limiter;
use crate::virtio::{ActivateError, Activation, Device, VirtQueue, read_config};
use crate::{RateLimits, RecordError, Records};

/// Linux has one request at a time.
const QUEUE_SIZE: u16 = 16;
/// The only queue.
const REQUESTS: u16 = 0;

/// An entropy device.
pub struct Rng {
    metrics: Arc<Metrics>,
    /// What is not in a task.
    core: Option<Box<Core>>,
}

impl Rng {
    /// One that gives no more than these limits allow. Makes all descriptors that it will ever need.
    pub fn new(limits: RateLimits) -> io::Result<Self> {
        let metrics = Arc::new(Metrics::default());
        let limiter = Limiter::new(limits, Instant::now());
        let core = Core::new(limiter, Arc::clone(&metrics))?;
        Ok(Self { metrics, core: Some(Box::new(core)) })
    }

    /// What it has counted.
    pub fn counters(&self) -> RngCounters {
        self.metrics.counters()
    }
}

impl Device for Rng {
    type Task = RngTask;

    fn device_type(&self) -> u16 {
        u16::try_from(VIRTIO_ID_RNG).unwrap_or(u16::MAX)
    }

    fn features(&self) -> u64 {
        0
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![QUEUE_SIZE]
    }

    /// There is none.
    fn read_config(&self, offset: u64, data: &mut [u8]) {
        read_config(&[], offset, data);
    }

    fn write_config(&mut self, _offset: u64, _data: &[u8]) {}

    fn activate(&mut self, activation: Activation) -> Result<Vec<RngTask>, ActivateError> {
        let queue = activation.queues.into_iter().find(|queue| queue.index() == REQUESTS);
        let queue = queue.ok_or(ActivateError::MissingQueue { queue: REQUESTS })?;
        if queue.in_flight() > 0 {
            return Err(ActivateError::InFlight { queue: REQUESTS });
        }
        Ok(self.core.take().map(|core| RngTask::new(queue, core)).into_iter().collect())
    }

    fn reclaim(&mut self, tasks: Vec<RngTask>) -> Vec<VirtQueue> {
        let mut queues = Vec::new();
        for task in tasks {
            let (queue, core) = task.into_parts();
            self.core = Some(core);
            queues.push(queue);
        }
        queues
    }

    /// It remembers nothing of its driver.
    fn reset(&mut self) {}

    /// Nothing in it changes.
    fn save(&self, _instance: &str, _records: &mut Records) -> Result<(), RecordError> {
        Ok(())
    }

    /// Nothing was saved.
    fn load(&mut self, _instance: &str, _records: &mut Records) -> Result<(), RecordError> {
        Ok(())
    }
}
