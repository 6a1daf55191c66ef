//! The disk as its driver and the machine's owner see it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH,
    VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX,
    VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use vm_memory::{GuestMemory, Permissions};

use super::backend::{Backend, Engine, Pool, RingBackend};
use super::config::{BlockConfig, BlockError};
use super::disk::Disk;
use super::file::{DiskError, LockError, lock, lock_shared, unlock};
use super::images::OverlayState;
use super::metrics::{BlockCounters, Metrics};
use super::reader::DiskReader;
use super::request::{
    MAX_DISCARD_RANGES, MAX_DISCARD_SECTORS, MAX_SEGMENTS, MAX_ZERO_RANGES, MAX_ZERO_SECTORS,
    SECTOR,
};
use super::state::{BlockState, HeldRequest, id_of};
use super::worker::{BlockTask, Cache, FailureReport, Lane, Shared, Terms};
use crate::limits::Limiter;
use crate::virtio::{ActivateError, Activation, Device, VirtQueue, read_config};
use crate::{RecordError, RecordName, Records, State};

/// Bytes in one buffer, as drivers are asked to keep to.
const SIZE_MAX: u32 = 1 << 20;
/// What files and disks are made of nowadays, whatever they accept.
const PHYSICAL_BLOCK: u32 = 4096;
/// Where the driver sets the cache mode.
const WRITEBACK: usize = 32;

/// A disk.
pub struct Block {
    disk: Disk,
    /// Other machines write to it too.
    is_shared: bool,
    shared: Arc<Shared>,
    queue_sizes: Vec<u16>,
    engine: Engine,
    /// By queue; those that are not in tasks.
    lanes: Vec<Option<Lane>>,
}

impl Block {
    /// The disk that `disk` is. Makes all rings, threads and descriptors that it will ever need. `report` hears
    /// of requests that are held.
    pub fn new(
        disk: impl Into<Disk>,
        config: BlockConfig,
        report: FailureReport,
    ) -> Result<Self, BlockError> {
        let disk = disk.into();
        if !config.read_only {
            disk.check_writable()?;
            if config.lock {
                let take = if config.shared { lock_shared } else { lock };
                disk.written_fd().map_or(Ok(()), take).map_err(BlockError::Lock)?;
            }
        }
        config.check()?;
        let (engine, backends) = backends(&disk, &config).map_err(BlockError::Backend)?;
        Self::with(disk, config, report, (engine, backends))
    }

    /// Reads what is on it now. For when none of its queues is served: what a guest writes meanwhile may be seen or not.
    pub fn reader(&self) -> DiskReader {
        DiskReader::new(&self.disk, self.shared.block_size)
    }

    /// One whose transfers these backends do, one for each queue.
    pub(super) fn with(
        disk: impl Into<Disk>,
        config: BlockConfig,
        report: FailureReport,
        (engine, backends): (Engine, Vec<Box<dyn Backend>>),
    ) -> Result<Self, BlockError> {
        let disk = disk.into();
        let needed = disk.block_size();
        let block_size = config.block_size.unwrap_or(needed);
        if !block_size.is_power_of_two() || block_size < needed || block_size > 64 * 1024 {
            return Err(BlockError::BlockSize { wanted: block_size, needed });
        }
        let lane = |backend| Lane::new(backend).map(Some).map_err(BlockError::Backend);
        let lanes = backends.into_iter().map(lane).collect::<Result<_, _>>()?;
        let limiter = Limiter::new(config.limits, Instant::now()).map(Mutex::new);
        let shared = Shared {
            capacity: AtomicU64::new(capacity_of(&disk, block_size)),
            writeback: AtomicBool::new(true),
            block_size,
            read_only: config.read_only,
            alignment: disk.alignment(),
            id: id_of(&config.serial),
            serial: config.serial,
            on_error: config.on_error,
            report,
            limiter,
            metrics: Metrics::default(),
        };
        let queue_sizes = vec![config.queue_size; config.queues.into()];
        let (shared, is_shared) = (Arc::new(shared), config.shared);
        Ok(Self { disk, is_shared, shared, queue_sizes, engine, lanes })
    }

    /// What it is on.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// What does its transfers: never [`Engine::Auto`].
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// What it has counted.
    pub fn counters(&self) -> BlockCounters {
        self.shared.metrics.counters()
    }

    /// Takes a writable disk for this machine, where [`BlockConfig::lock`] left that for later.
    pub fn lock(&self) -> Result<(), LockError> {
        let fd = self.disk.written_fd().filter(|_| !self.shared.read_only);
        fd.map_or(Ok(()), if self.is_shared { lock_shared } else { lock })
    }

    /// Lets go of the disk, for another machine to take it. This one must not run any more.
    pub fn unlock(&self) -> Result<(), LockError> {
        // A lock on what is only read is not of our making, and keeps nobody from reading it.
        let fd = self.disk.written_fd().filter(|_| !self.shared.read_only);
        fd.map_or(Ok(()), unlock)
    }

    /// Looks again how large the disk is; the number of bytes. To be called by
    /// [`VirtioPci::change_config`](crate::virtio::VirtioPci::change_config), which tells the driver.
    pub fn resize(&mut self) -> Result<u64, DiskError> {
        self.disk.measure()?;
        let capacity = capacity_of(&self.disk, self.shared.block_size);
        self.shared.capacity.store(capacity, Ordering::Release);
        Ok(capacity * SECTOR)
    }

    fn config(&self) -> Vec<u8> {
        let shared = &*self.shared;
        let block = shared.block_size;
        let blocks = (PHYSICAL_BLOCK / block).max(1);
        let small = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        let short = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let queues = u16::try_from(self.queue_sizes.len()).unwrap_or(u16::MAX);
        let mut config = Vec::with_capacity(60);
        config.extend(shared.capacity.load(Ordering::Acquire).to_le_bytes());
        config.extend(SIZE_MAX.to_le_bytes());
        config.extend(count(self.seg_max()).to_le_bytes());
        // Geometry is not offered.
        config.extend([0; 4]);
        config.extend(block.to_le_bytes());
        config.extend([small(blocks.ilog2()), 0]);
        config.extend(short(blocks).to_le_bytes());
        config.extend([0; 4]);
        config.extend([u8::from(shared.writeback.load(Ordering::Acquire)), 0]);
        config.extend(queues.to_le_bytes());
        config.extend(MAX_DISCARD_SECTORS.to_le_bytes());
        config.extend(count(MAX_DISCARD_RANGES).to_le_bytes());
        config.extend((PHYSICAL_BLOCK.max(block) / 512).to_le_bytes());
        config.extend(MAX_ZERO_SECTORS.to_le_bytes());
        config.extend(count(MAX_ZERO_RANGES).to_le_bytes());
        config.extend([1, 0, 0, 0]);
        config
    }

    /// Header and status take a descriptor each.
    fn seg_max(&self) -> usize {
        let size = self.queue_sizes.first().copied().unwrap_or(0);
        usize::from(size).saturating_sub(2).clamp(1, MAX_SEGMENTS)
    }

    fn state(&self) -> BlockState {
        let held = |(queue, lane): (u16, &Option<Lane>)| {
            let held = lane.iter().flat_map(|lane| lane.held.clone());
            held.map(move |request| HeldRequest { queue, request }).collect::<Vec<_>>()
        };
        BlockState {
            capacity: self.shared.capacity.load(Ordering::Acquire),
            block_size: self.shared.block_size,
            read_only: self.shared.read_only,
            serial: self.shared.serial.clone(),
            writeback: self.shared.writeback.load(Ordering::Acquire),
            held: (0..).zip(&self.lanes).flat_map(held).collect(),
        }
    }

    /// What is saved of the overlay, where there is one.
    fn overlay_state(&self) -> Option<OverlayState> {
        match &self.disk {
            Disk::File(_) => None,
            Disk::Images(images) => images.save(),
        }
    }

    fn terms(features: u64) -> Terms {
        let has = |feature: u32| features & 1 << feature != 0;
        // 5.2.6.2: without either feature the driver knows of no cache.
        let cache = if has(VIRTIO_BLK_F_CONFIG_WCE) {
            Cache::Configured
        } else if has(VIRTIO_BLK_F_FLUSH) {
            Cache::Writeback
        } else {
            Cache::Writethrough
        };
        Terms {
            discard: has(VIRTIO_BLK_F_DISCARD),
            write_zeroes: has(VIRTIO_BLK_F_WRITE_ZEROES),
            cache,
        }
    }

    /// Chains in flight are the requests held, which may come of a damaged state.
    fn check_held(&self, activation: &Activation, terms: Terms) -> Result<(), ActivateError> {
        let rules = self.shared.rules(terms);
        for (index, lane) in (0_u16..).zip(&self.lanes) {
            let held = lane.as_ref().map_or(&[][..], |lane| &lane.held);
            let queue = activation.queues.iter().find(|queue| queue.index() == index);
            let can_be = match queue {
                None => held.is_empty(),
                Some(queue) => {
                    let ram = queue.ram();
                    usize::from(queue.in_flight()) == held.len()
                        && held.iter().all(|request| {
                            request.head < queue.size()
                                && request.action.check(ram, &rules).is_ok()
                                && GuestMemory::check_range(
                                    &**ram,
                                    request.status,
                                    1,
                                    Permissions::Write,
                                )
                        })
                }
            };
            if !can_be {
                return Err(ActivateError::InFlight { queue: index });
            }
        }
        Ok(())
    }
}

fn impossible<S: State>(instance: &str, reason: String) -> RecordError {
    let name = RecordName { kind: S::KIND.into(), instance: instance.into() };
    RecordError::Impossible { name, reason }
}

fn capacity_of(disk: &Disk, block_size: u32) -> u64 {
    let size = disk.size();
    (size - size % u64::from(block_size)) / SECTOR
}

/// Rings may be denied by a filter of the container's, or by the host: then threads. Images have threads only.
pub(super) fn backends(
    disk: &Disk,
    config: &BlockConfig,
) -> io::Result<(Engine, Vec<Box<dyn Backend>>)> {
    if config.engine != Engine::Pool {
        let ring = |_| {
            let ring = RingBackend::new(disk.ring_file()?, config.queue_size)?;
            Ok(Box::new(ring) as Box<dyn Backend>)
        };
        let rings: io::Result<Vec<_>> = (0..config.queues).map(ring).collect();
        match rings {
            Ok(rings) => return Ok((Engine::Ring, rings)),
            Err(error) if config.engine == Engine::Ring => return Err(error),
            Err(_) => {}
        }
    }
    let pools = Pool::for_queues(&disk.medium(), config.queues, config.thread_start.as_ref())?;
    let boxed = |pool| Box::new(pool) as Box<dyn Backend>;
    Ok((Engine::Pool, pools.into_iter().map(boxed).collect()))
}

impl Device for Block {
    type Task = BlockTask;

    fn device_type(&self) -> u16 {
        u16::try_from(VIRTIO_ID_BLOCK).unwrap_or(u16::MAX)
    }

    fn features(&self) -> u64 {
        let mut features = vec![
            VIRTIO_BLK_F_SIZE_MAX,
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_TOPOLOGY,
            VIRTIO_BLK_F_FLUSH,
            VIRTIO_BLK_F_CONFIG_WCE,
        ];
        if self.queue_sizes.len() > 1 {
            features.push(VIRTIO_BLK_F_MQ);
        }
        if self.shared.read_only {
            features.push(VIRTIO_BLK_F_RO);
        } else {
            features.extend([VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES]);
        }
        features.into_iter().fold(0, |all, feature| all | 1 << feature)
    }

    fn queue_sizes(&self) -> Vec<u16> {
        self.queue_sizes.clone()
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        read_config(&self.config(), offset, data);
    }

    fn write_config(&mut self, offset: u64, data: &[u8]) {
        let at = usize::try_from(offset).ok().and_then(|offset| WRITEBACK.checked_sub(offset));
        if let Some(mode) = at.and_then(|at| data.get(at)) {
            self.shared.writeback.store(*mode != 0, Ordering::Release);
        }
    }

    fn activate(&mut self, activation: Activation) -> Result<Vec<BlockTask>, ActivateError> {
        let terms = Self::terms(activation.features);
        self.check_held(&activation, terms)?;
        let task = |queue: VirtQueue| {
            let lane = self.lanes.get_mut(usize::from(queue.index()))?.take()?;
            Some(BlockTask::new(queue, lane, Arc::clone(&self.shared), terms))
        };
        Ok(activation.queues.into_iter().filter_map(task).collect())
    }

    fn reclaim(&mut self, tasks: Vec<BlockTask>) -> Vec<VirtQueue> {
        let take = |task: BlockTask| {
            let (queue, lane) = task.into_parts();
            if let Some(place) = self.lanes.get_mut(usize::from(queue.index())) {
                *place = Some(lane);
            }
            queue
        };
        tasks.into_iter().map(take).collect()
    }

    fn reset(&mut self) {
        self.shared.writeback.store(true, Ordering::Release);
        for lane in self.lanes.iter_mut().flatten() {
            lane.held.clear();
        }
    }

    fn save(&self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        records.put(instance, &self.state())?;
        match self.overlay_state() {
            Some(state) => records.put(instance, &state),
            None => Ok(()),
        }
    }

    fn load(&mut self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        let saved: BlockState = records.take(instance)?;
        self.state()
            .check(&saved, &self.queue_sizes)
            .map_err(|reason| impossible::<BlockState>(instance, reason))?;
        if let Disk::Images(images) = &self.disk
            && images.is_writable()
        {
            let overlay: OverlayState = records.take(instance)?;
            let loaded = images.load(&overlay);
            loaded.map_err(|reason| impossible::<OverlayState>(instance, reason))?;
        }
        self.shared.writeback.store(saved.writeback, Ordering::Release);
        for (queue, lane) in (0_u16..).zip(&mut self.lanes) {
            let of_queue = saved.held.iter().filter(|held| held.queue == queue);
            if let Some(lane) = lane {
                lane.held = of_queue.map(|held| held.request.clone()).collect();
            }
        }
        Ok(())
    }
}
