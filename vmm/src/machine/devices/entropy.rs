//! The entropy device.

use corten_devices::rng::Rng;
use corten_link::{EntropyCounters, EntropyHost};

use super::{DeviceSetupError, limits};

/// The device that a guest finds.
pub(super) fn device(host: EntropyHost) -> Result<Rng, DeviceSetupError> {
    Rng::new(limits(host.bytes, None)).map_err(DeviceSetupError::Entropy)
}

/// What an entropy device counted, for the control peer.
pub(in crate::machine) fn entropy_counters(entropy: &Rng) -> EntropyCounters {
    let counted = entropy.counters();
    EntropyCounters {
        requests: counted.requests,
        bytes: counted.bytes,
        bad_requests: counted.bad_requests,
        throttled: counted.throttled,
    }
}
