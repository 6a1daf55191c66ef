//! The transport's saved state.

use serde::{Deserialize, Serialize};

use super::common::{Common, Phase, QueueSetup};
use crate::State;
use crate::pci::ConfigurationState;
use crate::virtio::GuestRam;
use crate::virtio::signals::{ISR_CONFIG, ISR_QUEUE, Signals};

/// A queue as saved. Whether EVENT_IDX is in use is in the driver's features.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueState {
    /// The largest size it can have.
    pub max_size: u16,
    /// Its size.
    pub size: u16,
    /// Set up and in use.
    pub enabled: bool,
    /// MSI-X vector, 0xffff for none.
    pub vector: u16,
    /// Address of the descriptor table.
    pub descriptors: u64,
    /// Address of the available ring.
    pub available: u64,
    /// Address of the used ring.
    pub used: u64,
    /// The next chain to be taken from the available ring.
    pub next_available: u16,
    /// The next place in the used ring.
    pub next_used: u16,
}

/// The window into the BAR that configuration space has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowState {
    /// Number of the BAR.
    pub bar: u8,
    /// Offset in it.
    pub offset: u32,
    /// Bytes of an access.
    pub length: u32,
}

/// A virtio function as saved, its MSI-X and its device left out: they have records of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransportState {
    /// Device type, to tell slots that were mixed up.
    pub device_type: u16,
    /// The function's configuration.
    pub configuration: ConfigurationState,
    /// The window into the BAR.
    pub window: WindowState,
    /// What the guest was offered.
    pub offered_features: u64,
    /// What the driver took, or is about to.
    pub driver_features: u64,
    /// Which half of the offered features is shown.
    pub device_feature_select: u32,
    /// Which half of the driver's features is written.
    pub driver_feature_select: u32,
    /// What the driver has written to the status.
    pub status: u8,
    /// The device asked for a reset.
    pub needs_reset: bool,
    /// The driver asked for a reset, which is not done.
    pub leaving: bool,
    /// Interrupt status.
    pub isr: u8,
    /// Counts changes of the device's configuration.
    pub generation: u8,
    /// MSI-X vector of configuration changes, 0xffff for none.
    pub config_vector: u16,
    /// Which queue the registers show.
    pub queue_select: u16,
    /// Every queue.
    pub queues: Vec<QueueState>,
}

impl State for TransportState {
    const KIND: &'static str = "virtio-pci";
    const VERSION: u16 = 1;
}

/// Queues as saved. No task is out.
pub(super) fn save_queues(common: &Common, signals: &Signals) -> Vec<QueueState> {
    let save = |(index, queue): (u16, &QueueSetup)| QueueState {
        max_size: queue.max_size,
        size: queue.size,
        enabled: queue.enabled,
        vector: signals.queue_vector(index),
        descriptors: queue.descriptors,
        available: queue.available,
        used: queue.used,
        next_available: queue.next_available,
        next_used: queue.next_used,
    };
    (0..).zip(&common.queues).map(save).collect()
}

/// The registers that a state is of, or why there are none. `fresh` is what they were at the start.
pub(super) fn load_common(
    state: &TransportState,
    fresh: &Common,
    signals: &Signals,
    ram: &GuestRam,
) -> Result<Common, String> {
    let check = |holds: bool, reason: &str| if holds { Ok(()) } else { Err(reason.to_owned()) };
    let settled = Common::features_are_settled(state.status);
    check(
        state.offered_features == fresh.offered,
        &format!("it offers {:#x}, this device {:#x}", state.offered_features, fresh.offered),
    )?;
    check(Common::status_can_be(state.status), "its status cannot be")?;
    check(
        !settled || fresh.features_can_be(state.driver_features),
        "its driver has features that it was not offered",
    )?;
    check(state.isr & !(ISR_QUEUE | ISR_CONFIG) == 0, "its interrupt status cannot be")?;
    check(signals.vector_can_be(state.config_vector), "its vector is not there")?;
    let mut common = Common {
        device_feature_select: state.device_feature_select,
        driver_feature_select: state.driver_feature_select,
        driver_features: state.driver_features,
        status: state.status,
        generation: state.generation,
        queue_select: state.queue_select,
        ..fresh.clone()
    };
    let ready = common.driver_ready();
    check(ready || !(state.leaving || state.needs_reset), "it has no driver to be reset for")?;
    common.phase = match (ready, state.leaving) {
        (false, _) => Phase::Setup,
        (true, false) => Phase::Waiting,
        (true, true) => Phase::Leaving { out: false },
    };
    check(state.queues.len() == common.queues.len(), "it has another number of queues")?;
    for (index, (queue, saved)) in common.queues.iter_mut().zip(&state.queues).enumerate() {
        let check = |holds: bool, what: &str| check(holds, &format!("queue {index}: {what}"));
        check(saved.max_size == queue.max_size, "its largest size is another")?;
        check(saved.size.is_power_of_two() && saved.size <= queue.max_size, "its size cannot be")?;
        check(signals.vector_can_be(saved.vector), "its vector is not there")?;
        let moved = (saved.next_available, saved.next_used) != (0, 0);
        check(!moved || (ready && saved.enabled), "it was used before it could be")?;
        *queue = QueueSetup {
            max_size: saved.max_size,
            size: saved.size,
            enabled: saved.enabled,
            descriptors: saved.descriptors,
            available: saved.available,
            used: saved.used,
            next_available: saved.next_available,
            next_used: saved.next_used,
        };
        let can_be = settled && queue.ring(ram, state.driver_features).is_some();
        check(!saved.enabled || can_be, "it is enabled but cannot be")?;
    }
    Ok(common)
}
