//! The balloon: from a blueprint to a device, and what it says of memory.

use std::time::Instant;

use corten_devices::balloon::{Balloon, BalloonConfig, PAGE_SIZE};
use corten_link::{BalloonCounters, GuestMemoryUse};

use super::{BalloonBlueprint, DeviceSetupError};

/// The device that a guest finds.
pub(super) fn device(blueprint: &BalloonBlueprint) -> Result<Balloon, DeviceSetupError> {
    let BalloonBlueprint { deflate_on_oom, reporting } = *blueprint;
    let config = BalloonConfig { deflate_on_oom, reporting };
    Balloon::new(config).map_err(DeviceSetupError::Balloon)
}

/// What a balloon counted, for the control peer.
pub(in crate::machine) fn balloon_counters(balloon: &Balloon) -> BalloonCounters {
    let counted = balloon.counters();
    BalloonCounters {
        inflated: counted.inflated_pages * PAGE_SIZE,
        deflated: counted.deflated_pages * PAGE_SIZE,
        reported: counted.reported_bytes,
        failures: counted.failures,
        bad_requests: counted.bad_requests,
    }
}

/// What a balloon knows of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::machine) struct MemoryUse {
    /// Bytes that are to be in it.
    pub(in crate::machine) target: u64,
    /// Bytes that the driver says are.
    pub(in crate::machine) actual: u64,
    /// What the guest said.
    pub(in crate::machine) guest: Option<GuestMemoryUse>,
}

impl MemoryUse {
    /// As the balloon has it now.
    pub(in crate::machine) fn of(balloon: &Balloon) -> Self {
        let guest = balloon.statistics().map(|(at, said)| GuestMemoryUse {
            age: u64::try_from(Instant::now().saturating_duration_since(at).as_millis())
                .unwrap_or(u64::MAX),
            total: said.total,
            free: said.free,
            available: said.available,
            caches: said.caches,
            swap_in: said.swap_in,
            swap_out: said.swap_out,
            major_faults: said.major_faults,
            minor_faults: said.minor_faults,
        });
        let bytes = |pages: u32| u64::from(pages) * PAGE_SIZE;
        Self { target: bytes(balloon.target_pages()), actual: bytes(balloon.actual_pages()), guest }
    }
}
