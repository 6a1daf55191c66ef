//! What the command finds in its network namespace: loopback, and the TAPs it is granted, the first with the address
//! 10.100.0.1/24, the second with 10.100.1.1/24 and so on. With each come the sockets on which its guest asks for addresses.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use corten_link::Role;
use corten_net::Tap;

use super::{TapRequest, address_sockets};

/// Takes loopback up and creates the TAPs, in the network namespace of the caller.
pub(super) fn create(requests: &[TapRequest]) -> Result<Vec<(Role, OwnedFd)>> {
    corten_net::set_up("lo").context("cannot take loopback up")?;
    let mut granted = Vec::new();
    for (number, request) in (0_u8..).zip(requests) {
        let network = &request.network;
        let tap = Tap::create(&format!("tap{number}"), request.queues)
            .with_context(|| format!("cannot create the TAP of network {network}"))?;
        corten_net::set_ipv4(tap.name(), Ipv4Addr::new(10, 100, number, 1), 24)?;
        granted.extend(
            address_sockets(network, tap.name())
                .with_context(|| format!("cannot open the sockets of network {network}"))?,
        );
        for (queue, fd) in (0..).zip(tap.into_queues()) {
            granted.push((Role::tap(network, queue)?, fd));
        }
    }
    Ok(granted)
}
