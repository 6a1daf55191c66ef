//! The balloon as its driver and the machine's owner see it.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use virtio_bindings::virtio_ids::VIRTIO_ID_BALLOON;

use super::layout::{
    DEFLATE, F_DEFLATE_ON_OOM, F_REPORTING, F_STATS_VQ, INFLATE, QUEUE_SIZE, QUEUES,
    QUEUES_WITH_REPORTING, Role, STATISTICS,
};
use super::metrics::{BalloonCounters, Metrics};
use super::poll::Poll;
use super::state::BalloonState;
use super::statistics::Statistics;
use super::worker::{BalloonTask, Shared};
use crate::pci::lock;
use crate::virtio::{ActivateError, Activation, Device, VirtQueue, read_config};
use crate::{RecordError, RecordName, Records, State};

/// What a balloon is made with: part of the blueprint, as the guest sees all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalloonConfig {
    /// A guest short of memory may take pages out of the balloon by itself. The owner's target is then a wish.
    pub deflate_on_oom: bool,
    /// The guest reports pages that are free, without being asked.
    pub reporting: bool,
}

/// A balloon.
pub struct Balloon {
    config: BalloonConfig,
    target_pages: u32,
    actual_pages: u32,
    /// Head of the chain of statistics, while no task has it.
    held: Option<u16>,
    shared: Arc<Shared>,
}

impl Balloon {
    /// One that is empty and asks for nothing. Makes all descriptors that it will ever need.
    pub fn new(config: BalloonConfig) -> io::Result<Self> {
        let shared =
            Shared { poll: Poll::new()?, told: Mutex::new(None), metrics: Metrics::default() };
        let shared = Arc::new(shared);
        Ok(Self { config, target_pages: 0, actual_pages: 0, held: None, shared })
    }

    /// Sets how many pages of [`PAGE_SIZE`](super::PAGE_SIZE) the guest shall give up. To be called by
    /// [`VirtioPci::change_config`](crate::virtio::VirtioPci::change_config), which tells the driver.
    pub fn set_target_pages(&mut self, pages: u32) {
        self.target_pages = pages;
    }

    /// How many pages the guest shall give up.
    pub fn target_pages(&self) -> u32 {
        self.target_pages
    }

    /// How many pages the driver says it has given up. It can say anything.
    pub fn actual_pages(&self) -> u32 {
        self.actual_pages
    }

    /// Asks for statistics at this interval from now on; none for never.
    pub fn set_statistics_interval(&self, interval: Option<Duration>) {
        self.shared.poll.set(interval);
    }

    /// What the driver said last of the guest's memory, and when it came. None before it first did, and after a load
    /// until it does again.
    pub fn statistics(&self) -> Option<(Instant, Statistics)> {
        *lock(&self.shared.told)
    }

    /// What it has counted.
    pub fn counters(&self) -> BalloonCounters {
        self.shared.metrics.counters()
    }

    fn config(&self) -> [u8; 8] {
        let [a, b, c, d] = self.target_pages.to_le_bytes();
        let [e, f, g, h] = self.actual_pages.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    fn state(&self) -> BalloonState {
        BalloonState {
            target_pages: self.target_pages,
            actual_pages: self.actual_pages,
            statistics_interval: self.shared.poll.interval(),
            held: self.held,
        }
    }

    /// The one chain that may be in flight is that of statistics; what is known of it may come of a damaged state.
    fn check_held(&self, activation: &Activation) -> Result<(), ActivateError> {
        let is_statistics =
            |queue: &VirtQueue| Role::of(queue.index(), activation.features) == Role::Statistics;
        for queue in &activation.queues {
            let held = self.held.filter(|_| is_statistics(queue));
            let can_be = held.is_none_or(|head| head < queue.size());
            if !can_be || queue.in_flight() != u16::from(held.is_some()) {
                return Err(ActivateError::InFlight { queue: queue.index() });
            }
        }
        if self.held.is_some() && !activation.queues.iter().any(is_statistics) {
            return Err(ActivateError::InFlight { queue: STATISTICS });
        }
        Ok(())
    }
}

impl Device for Balloon {
    type Task = BalloonTask;

    fn device_type(&self) -> u16 {
        u16::try_from(VIRTIO_ID_BALLOON).unwrap_or(u16::MAX)
    }

    fn features(&self) -> u64 {
        let wanted = |is_wanted: bool, feature: u64| if is_wanted { feature } else { 0 };
        F_STATS_VQ
            | wanted(self.config.deflate_on_oom, F_DEFLATE_ON_OOM)
            | wanted(self.config.reporting, F_REPORTING)
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![QUEUE_SIZE; if self.config.reporting { QUEUES_WITH_REPORTING } else { QUEUES }]
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        read_config(&self.config(), offset, data);
    }

    fn write_config(&mut self, offset: u64, data: &[u8]) {
        let mut config = self.config();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (place, byte) in config.iter_mut().skip(start).zip(data) {
            *place = *byte;
        }
        // The target is not the driver's to write.
        let [_, _, _, _, e, f, g, h] = config;
        self.actual_pages = u32::from_le_bytes([e, f, g, h]);
    }

    fn activate(&mut self, activation: Activation) -> Result<Vec<BalloonTask>, ActivateError> {
        for queue in [INFLATE, DEFLATE] {
            if !activation.queues.iter().any(|given| given.index() == queue) {
                return Err(ActivateError::MissingQueue { queue });
            }
        }
        self.check_held(&activation)?;
        let Activation { queues, features } = activation;
        Ok(vec![BalloonTask::new(queues, features, Arc::clone(&self.shared), self.held.take())])
    }

    fn reclaim(&mut self, tasks: Vec<BalloonTask>) -> Vec<VirtQueue> {
        let take = |task: BalloonTask| {
            let (queues, held) = task.into_parts();
            self.held = held;
            queues
        };
        tasks.into_iter().flat_map(take).collect()
    }

    /// What the owner wants stays.
    fn reset(&mut self) {
        self.actual_pages = 0;
        self.held = None;
        *lock(&self.shared.told) = None;
    }

    fn save(&self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        records.put(instance, &self.state())
    }

    fn load(&mut self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        let saved: BalloonState = records.take(instance)?;
        saved.check(QUEUE_SIZE).map_err(|reason| {
            let name = RecordName { kind: BalloonState::KIND.into(), instance: instance.into() };
            RecordError::Impossible { name, reason }
        })?;
        self.target_pages = saved.target_pages;
        self.actual_pages = saved.actual_pages;
        self.held = saved.held;
        self.shared.poll.set(saved.statistics_interval);
        Ok(())
    }
}
