//! Network interfaces: from the queues of TAPs to devices that outlive a reset.

use std::os::fd::OwnedFd;

use corten_devices::net::{MacAddress, Net, NetConfig};
use corten_link::{AddressCounters, Grant, NetworkCounters, NetworkDescription, NetworkHost, Role};

use super::{
    Blueprint, DeviceBlueprint, DeviceSetupError, Hosts, NetworkBlueprint, QUEUE_SIZE, granted,
    limits,
};
use crate::addresses::Interface;
use crate::machine::chain;
use crate::say::say;

/// The interface of a machine that is not planned yet: its TAP decides what is offered.
pub(super) fn planned(
    description: &NetworkDescription,
    grant: &mut Grant,
) -> Result<Net, DeviceSetupError> {
    let NetworkDescription { name, host, pairs, .. } = description;
    device(name, *pairs, &blueprint(description, None).config(host, None), grant)
}

/// The interface of a machine that was planned before: its TAP has to have what was promised.
pub(super) fn pinned(
    blueprint: &NetworkBlueprint,
    host: &NetworkHost,
    grant: &mut Grant,
) -> Result<Net, DeviceSetupError> {
    let config = blueprint.config(host, Some(blueprint.uso));
    device(&blueprint.name, blueprint.pairs, &config, grant)
}

fn device(
    name: &str,
    pairs: u16,
    config: &NetConfig,
    grant: &mut Grant,
) -> Result<Net, DeviceSetupError> {
    let tap = |pair| granted(Role::tap(name, pair), name, grant);
    let taps: Vec<OwnedFd> = (0..pairs).map(tap).collect::<Result<_, _>>()?;
    let device = Net::new(config, taps);
    let mut device = device.map_err(|error| DeviceSetupError::Network(name.into(), error))?;
    let vhost = |pair| grant.remove(&Role::vhost(name, pair).ok()?);
    let vhosts: Vec<OwnedFd> = (0..pairs).filter_map(vhost).collect();
    // The guest sees no difference, so this is no reason to have no interface.
    if !vhosts.is_empty()
        && let Err(refusal) = device.use_vhost(vhosts)
    {
        let why = chain(&refusal);
        say(format_args!(
            "the network {name:?} is served by this process, not by vhost-net: {why}"
        ));
    }
    Ok(device)
}

/// What is planned of an interface.
pub(super) fn blueprint(
    description: &NetworkDescription,
    interface: Option<&Net>,
) -> NetworkBlueprint {
    NetworkBlueprint {
        name: description.name.clone(),
        mac: MacAddress(description.mac),
        mtu: description.mtu,
        pairs: description.pairs,
        queue_size: QUEUE_SIZE,
        uso: interface.is_some_and(Net::has_uso),
    }
}

impl NetworkBlueprint {
    fn config(&self, host: &NetworkHost, uso: Option<bool>) -> NetConfig {
        NetConfig {
            mac: self.mac,
            mtu: self.mtu,
            queue_size: self.queue_size,
            uso,
            receive: limits(host.receive.bytes, host.receive.packets),
            transmit: limits(host.transmit.bytes, host.transmit.packets),
        }
    }
}

/// The interfaces whose guest is told its addresses.
pub(in crate::machine) fn addressed(blueprint: &Blueprint, hosts: &Hosts) -> Vec<Interface> {
    let interface = |network: &NetworkBlueprint| {
        let addressing = hosts.network(&network.name).addressing?;
        Some(Interface { name: network.name.clone(), mac: network.mac.0, addressing })
    };
    let functions = blueprint.pci.functions.iter();
    let networks = functions.filter_map(|function| match &function.device {
        DeviceBlueprint::Network(network) => interface(network),
        _ => None,
    });
    networks.collect()
}

/// What an interface counted, for the control peer.
pub(in crate::machine) fn network_counters(network: &Net) -> NetworkCounters {
    let counted = network.counters();
    NetworkCounters {
        received: counted.received,
        received_bytes: counted.received_bytes,
        receive_dropped: counted.filtered + counted.oversized + counted.unfit,
        receive_errors: counted.receive_errors,
        transmitted: counted.transmitted,
        transmitted_bytes: counted.transmitted_bytes,
        transmit_dropped: counted.refused,
        bad_requests: counted.malformed + counted.vhost_errors,
        throttled: counted.throttled,
        // Counted by who answers them.
        addresses: AddressCounters::default(),
        by_kernel: network.has_vhost(),
    }
}
