//! The socket device: from a blueprint to a device that asks the owner.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use corten_devices::vsock::{Ask, Vsock, VsockConfig};
use corten_link::VsockCounters;

use super::{DeviceSetupError, Input, VsockBlueprint};

/// How long the control peer has to answer a guest that connects, and a guest to answer the host: Linux's own guests
/// wait two seconds for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The device that a guest finds.
pub(super) fn device(
    blueprint: &VsockBlueprint,
    owner: &Sender<Input>,
) -> Result<Vsock, DeviceSetupError> {
    let config = VsockConfig { guest_cid: blueprint.guest_cid.into(), patience: PATIENCE };
    let owner = owner.clone();
    let report = Arc::new(move |Ask { ticket, port }| {
        // Without an owner the machine is being taken down.
        let _ = owner.send(Input::Connecting { ticket, port });
    });
    Vsock::new(config, report).map_err(DeviceSetupError::Vsock)
}

/// What a socket device counted, for the control peer.
pub(in crate::machine) fn vsock_counters(vsock: &Vsock) -> VsockCounters {
    let counted = vsock.counters();
    VsockCounters {
        from_guest: counted.from_guest,
        from_host: counted.from_host,
        refused: counted.refused,
        sent_bytes: counted.sent_bytes,
        received_bytes: counted.received_bytes,
        bad_requests: counted.bad_packets,
    }
}
