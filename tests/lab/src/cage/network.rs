//! What the command finds in its network namespace: loopback, and the TAPs it is granted.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use corten_link::Role;
use corten_net::Tap;

use super::TapRequest;

/// Takes loopback up and creates the TAPs, in the network namespace of the caller.
pub(super) fn create(requests: &[TapRequest]) -> Result<Vec<(Role, OwnedFd)>> {
    corten_net::set_up("lo").context("cannot take loopback up")?;
    let mut queues = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        let network = &request.network;
        let tap = Tap::create(&format!("tap{number}"), request.queues)
            .with_context(|| format!("cannot create the TAP of network {network}"))?;
        for (queue, fd) in (0..).zip(tap.into_queues()) {
            queues.push((Role::tap(network, queue)?, fd));
        }
    }
    Ok(queues)
}
