//! The common configuration: the registers by which a driver and a device agree on features and queues.

use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_DRIVER_OK,
    VIRTIO_CONFIG_S_FAILED, VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET,
    VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::{Queue, QueueT};

use super::layout::COMMON_SIZE;
use crate::virtio::GuestRam;
use crate::virtio::signals::{NO_VECTOR, Signals};

const DRIVER: u8 = VIRTIO_CONFIG_S_DRIVER.to_le_bytes()[0];
const FEATURES_OK: u8 = VIRTIO_CONFIG_S_FEATURES_OK.to_le_bytes()[0];
pub(super) const DRIVER_OK: u8 = VIRTIO_CONFIG_S_DRIVER_OK.to_le_bytes()[0];
const NEEDS_RESET: u8 = VIRTIO_CONFIG_S_NEEDS_RESET.to_le_bytes()[0];
/// What a driver can set.
const STATUS_BITS: u8 = VIRTIO_CONFIG_S_ACKNOWLEDGE.to_le_bytes()[0]
    | DRIVER
    | FEATURES_OK
    | DRIVER_OK
    | VIRTIO_CONFIG_S_FAILED.to_le_bytes()[0];

const VERSION_1: u64 = 1 << VIRTIO_F_VERSION_1;
const EVENT_IDX: u64 = 1 << VIRTIO_RING_F_EVENT_IDX;
/// What the transport offers for every device type.
pub(super) const FEATURES: u64 = VERSION_1 | EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC;

const DEVICE_FEATURE_SELECT: usize = 0x00;
const DEVICE_FEATURE: usize = 0x04;
const DRIVER_FEATURE_SELECT: usize = 0x08;
const DRIVER_FEATURE: usize = 0x0c;
const CONFIG_VECTOR: usize = 0x10;
const QUEUES: usize = 0x12;
const STATUS: usize = 0x14;
const GENERATION: usize = 0x15;
const QUEUE_SELECT: usize = 0x16;
const QUEUE_SIZE: usize = 0x18;
const QUEUE_VECTOR: usize = 0x1a;
const QUEUE_ENABLE: usize = 0x1c;
const QUEUE_NOTIFY: usize = 0x1e;
const QUEUE_DESCRIPTORS: usize = 0x20;
const QUEUE_DRIVER: usize = 0x28;
const QUEUE_DEVICE: usize = 0x30;
const QUEUE_END: usize = 0x38;

/// Where a driver's use of the device has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No driver, or one that sets the device up.
    Setup,
    /// The driver is ready; the queues wait to be taken to work: for the first time, or after a pause.
    Waiting,
    /// The owner has the tasks.
    Working,
    /// The driver wrote 0 to the status and waits for it to read as 0. `out`: the owner still has tasks.
    Leaving { out: bool },
}

/// What a write asks of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Nothing,
    /// The driver is ready.
    Activate,
    /// Back to the start, at once: no queue is at work.
    Reset,
    /// Back to the start once the owner has the queues.
    Deactivate,
}

/// A queue while the transport has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueueSetup {
    pub(super) max_size: u16,
    pub(super) size: u16,
    pub(super) enabled: bool,
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
    pub(super) next_available: u16,
    pub(super) next_used: u16,
}

impl QueueSetup {
    fn new(max_size: u16) -> Self {
        Self {
            max_size,
            size: max_size,
            enabled: false,
            descriptors: 0,
            available: 0,
            used: 0,
            next_available: 0,
            next_used: 0,
        }
    }

    /// The queue in guest memory, unless it cannot be: not aligned, not in memory, too large, or holding more chains
    /// than it has descriptors. The available ring cannot be at 0, which virtio-queue takes for a queue not set up.
    pub(super) fn ring(&self, ram: &GuestRam, features: u64) -> Option<Queue> {
        let state = virtio_queue::QueueState {
            max_size: self.max_size,
            next_avail: self.next_available,
            next_used: self.next_used,
            event_idx_enabled: features & EVENT_IDX != 0,
            size: self.size,
            ready: true,
            desc_table: self.descriptors,
            avail_ring: self.available,
            used_ring: self.used,
        };
        let queue = Queue::try_from(state).ok()?;
        let held = self.next_available.wrapping_sub(self.next_used);
        let can_be = self.available != 0 && held <= self.size && queue.is_valid(&**ram);
        can_be.then_some(queue)
    }
}

/// The registers.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) offered: u64,
    pub(super) phase: Phase,
    pub(super) device_feature_select: u32,
    pub(super) driver_feature_select: u32,
    pub(super) driver_features: u64,
    pub(super) status: u8,
    pub(super) generation: u8,
    pub(super) queue_select: u16,
    pub(super) queues: Vec<QueueSetup>,
}

impl Common {
    pub(super) fn new(device_features: u64, queue_sizes: &[u16]) -> Self {
        Self {
            offered: device_features | FEATURES,
            phase: Phase::Setup,
            device_feature_select: 0,
            driver_feature_select: 0,
            driver_features: 0,
            status: 0,
            generation: 0,
            queue_select: 0,
            queues: queue_sizes.iter().map(|size| QueueSetup::new(*size)).collect(),
        }
    }

    /// As it was at the start, but for the generation: a driver must not take a new configuration for an old one.
    pub(super) fn reset(&mut self) {
        let sizes: Vec<u16> = self.queues.iter().map(|queue| queue.max_size).collect();
        let generation = self.generation;
        *self = Self { generation, ..Self::new(self.offered, &sizes) };
    }

    pub(super) fn driver_ready(&self) -> bool {
        self.status & DRIVER_OK != 0
    }

    /// Whether a driver can have got the status to this value.
    pub(super) fn status_can_be(status: u8) -> bool {
        let implies = |bit: u8, other: u8| status & bit == 0 || status & other != 0;
        status & !STATUS_BITS == 0
            && implies(FEATURES_OK, DRIVER)
            && implies(DRIVER_OK, FEATURES_OK)
    }

    pub(super) fn features_are_settled(status: u8) -> bool {
        status & FEATURES_OK != 0
    }

    pub(super) fn features_can_be(&self, features: u64) -> bool {
        features & VERSION_1 != 0 && features & !self.offered == 0
    }

    pub(super) fn read(&self, signals: &Signals, offset: u64, data: &mut [u8]) {
        let image = self.image(signals);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match image.get(start..start.saturating_add(data.len())) {
            Some(bytes) => data.copy_from_slice(bytes),
            None => crate::read_nothing(data),
        }
    }

    fn image(&self, signals: &Signals) -> [u8; COMMON_SIZE as usize] {
        let mut image = [0; COMMON_SIZE as usize];
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        let needs_reset = if signals.needs_reset() { NEEDS_RESET } else { 0 };
        let queues = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
        put(DEVICE_FEATURE_SELECT, &self.device_feature_select.to_le_bytes());
        put(DEVICE_FEATURE, &half(self.offered, self.device_feature_select).to_le_bytes());
        put(DRIVER_FEATURE_SELECT, &self.driver_feature_select.to_le_bytes());
        put(DRIVER_FEATURE, &half(self.driver_features, self.driver_feature_select).to_le_bytes());
        put(CONFIG_VECTOR, &signals.config_vector().to_le_bytes());
        put(QUEUES, &queues.to_le_bytes());
        put(STATUS, &[self.status | needs_reset]);
        put(GENERATION, &[self.generation]);
        put(QUEUE_SELECT, &self.queue_select.to_le_bytes());
        // A queue that is not there has size 0 and no vector.
        put(QUEUE_VECTOR, &signals.queue_vector(self.queue_select).to_le_bytes());
        if let Some(queue) = self.queues.get(usize::from(self.queue_select)) {
            put(QUEUE_SIZE, &queue.size.to_le_bytes());
            put(QUEUE_ENABLE, &u16::from(queue.enabled).to_le_bytes());
            put(QUEUE_NOTIFY, &self.queue_select.to_le_bytes());
            put(QUEUE_DESCRIPTORS, &queue.descriptors.to_le_bytes());
            put(QUEUE_DRIVER, &queue.available.to_le_bytes());
            put(QUEUE_DEVICE, &queue.used.to_le_bytes());
        }
        image
    }

    /// Takes a write of exactly one register, or of half of one of 64 bits. Anything else is the driver's mistake.
    pub(super) fn write(
        &mut self,
        signals: &Signals,
        ram: &GuestRam,
        offset: u64,
        data: &[u8],
    ) -> Request {
        if matches!(self.phase, Phase::Leaving { .. }) {
            return Request::Nothing;
        }
        let mut bytes = [0; 8];
        let Some(value) = bytes.get_mut(..data.len()) else {
            signals.count_register();
            return Request::Nothing;
        };
        value.copy_from_slice(data);
        let long = u64::from_le_bytes(bytes);
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let short = u16::from_le_bytes([bytes[0], bytes[1]]);
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let done = match (at, data.len()) {
            (STATUS, 1) => return self.write_status(signals, bytes[0]),
            (DEVICE_FEATURE_SELECT, 4) => {
                self.device_feature_select = word;
                true
            }
            (DRIVER_FEATURE_SELECT, 4) => {
                self.driver_feature_select = word;
                true
            }
            (DRIVER_FEATURE, 4) => self.write_features(word),
            (CONFIG_VECTOR, 2) => {
                signals.set_config_vector(short);
                short == NO_VECTOR || signals.config_vector() == short
            }
            (QUEUE_SELECT, 2) => {
                self.queue_select = short;
                true
            }
            (QUEUE_VECTOR, 2) => {
                signals.set_queue_vector(self.queue_select, short);
                signals.queue_vector(self.queue_select) == short
            }
            (QUEUE_ENABLE, 2) => return self.enable_queue(signals, ram, short),
            (QUEUE_SIZE, 2) => self.change_queue(|queue| {
                let fits = short.is_power_of_two() && short <= queue.max_size;
                queue.size = if fits { short } else { queue.size };
                fits
            }),
            (QUEUE_DESCRIPTORS..QUEUE_END, 4) if at.is_multiple_of(4) => {
                self.change_queue(|queue| {
                    let register = queue.address_at(at);
                    *register = match at % 8 {
                        0 => *register & !0xffff_ffff | u64::from(word),
                        _ => *register & 0xffff_ffff | u64::from(word) << 32,
                    };
                    true
                })
            }
            (QUEUE_DESCRIPTORS..QUEUE_END, 8) if at.is_multiple_of(8) => {
                self.change_queue(|queue| {
                    *queue.address_at(at) = long;
                    true
                })
            }
            _ => false,
        };
        if !done {
            signals.count_register();
        }
        Request::Nothing
    }

    fn write_features(&mut self, word: u32) -> bool {
        let word = u64::from(word);
        let features = self.driver_features;
        match self.driver_feature_select {
            _ if self.status & FEATURES_OK != 0 => return false,
            0 => self.driver_features = features & !0xffff_ffff | word,
            1 => self.driver_features = features & 0xffff_ffff | word << 32,
            // Drivers write all the features they know of, and nothing but zeros beyond 64.
            _ => return word == 0,
        }
        true
    }

    /// A queue can be changed until it is enabled.
    fn change_queue(&mut self, change: impl FnOnce(&mut QueueSetup) -> bool) -> bool {
        match self.queues.get_mut(usize::from(self.queue_select)) {
            Some(queue) if !queue.enabled => change(queue),
            _ => false,
        }
    }

    fn enable_queue(&mut self, signals: &Signals, ram: &GuestRam, value: u16) -> Request {
        // Without features there is no telling what the rings look like, and a driver that said it is ready has said
        // which queues it uses.
        let in_turn = self.status & FEATURES_OK != 0 && self.phase == Phase::Setup && value == 1;
        let features = self.driver_features;
        let enabled = self.change_queue(|queue| {
            queue.enabled = in_turn && queue.ring(ram, features).is_some();
            queue.enabled
        });
        if !enabled {
            signals.count_queue();
        }
        Request::Nothing
    }

    fn write_status(&mut self, signals: &Signals, value: u8) -> Request {
        if value == 0 {
            return match self.phase {
                Phase::Setup => Request::Reset,
                Phase::Waiting | Phase::Working => {
                    self.phase = Phase::Leaving { out: self.phase == Phase::Working };
                    // At once, on the vCPU: what is in flight now is all that the reset waits for.
                    signals.leave();
                    Request::Deactivate
                }
                Phase::Leaving { .. } => Request::Nothing,
            };
        }
        // A driver may write back what it read, NEEDS_RESET included.
        let mut status = value & STATUS_BITS;
        if self.status & !status != 0 {
            signals.count_register();
            return Request::Nothing;
        }
        let new = status & !self.status;
        if new & FEATURES_OK != 0 && !self.features_can_be(self.driver_features) {
            signals.count_features();
            status &= !FEATURES_OK;
        }
        if !Self::status_can_be(status) {
            signals.count_register();
            return Request::Nothing;
        }
        self.status = status;
        if new & status & DRIVER_OK == 0 {
            return Request::Nothing;
        }
        self.phase = Phase::Waiting;
        Request::Activate
    }
}

impl QueueSetup {
    /// The address register that `at` is in.
    fn address_at(&mut self, at: usize) -> &mut u64 {
        match at {
            ..QUEUE_DRIVER => &mut self.descriptors,
            QUEUE_DRIVER..QUEUE_DEVICE => &mut self.available,
            _ => &mut self.used,
        }
    }
}

fn half(features: u64, select: u32) -> u32 {
    let [a, b, c, d, e, f, g, h] = features.to_le_bytes();
    match select {
        0 => u32::from_le_bytes([a, b, c, d]),
        1 => u32::from_le_bytes([e, f, g, h]),
        _ => 0,
    }
}
