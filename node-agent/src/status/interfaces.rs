//! Network interfaces of a VMI, as its status shows them. The one on the Pod's network comes first: `virtctl port-forward` and
//! the column IP take its address.

use std::net::IpAddr;

use corten_link::GuestInterface;
use corten_resources::defaults::Identity;
use corten_resources::machine::Binding;
use corten_resources::types::{
    Interface, InterfaceStatus, VirtualMachineInstance, VirtualMachineInstanceStatus,
};

use super::facts::Facts;
use super::guest::short;
use crate::identity::KnownPod;

/// Interfaces that only the guest knows of: a host of containers has hundreds.
const MAX_GUESTS_OWN: usize = 10;
/// Addresses of one interface.
const MAX_ADDRESSES: usize = 32;
/// What CNI plugins call the Pod's own.
const POD_INTERFACE: &str = "eth0";

/// Shows the interfaces that the object has, then those that only the guest knows of.
pub(super) fn write(
    status: &mut VirtualMachineInstanceStatus,
    vmi: &VirtualMachineInstance,
    pod: Option<&KnownPod>,
    facts: &Facts,
) {
    let report = facts.guest.as_deref();
    // A report of an agent that does not answer any more tells nothing of addresses.
    let guests = report.filter(|report| report.connected).map(|report| &report.guest.interfaces);
    let guests: &[GuestInterface] = guests.map_or(&[], Vec::as_slice);
    let mut shown: Vec<(bool, InterfaceStatus)> = Vec::new();
    for interface in &vmi.spec.domain.devices.interfaces {
        if interface.state.as_deref() != Some("absent") {
            let is_pods = is_on_pod_network(vmi, interface);
            shown.push((is_pods, of_the_object(vmi, interface, is_pods, pod, facts, guests)));
        }
    }
    shown.sort_by_key(|(is_pods, _)| !is_pods);
    let mut shown: Vec<InterfaceStatus> = shown.into_iter().map(|(_, status)| status).collect();
    if report.is_none() {
        // What an earlier report told is told again soon.
        shown.extend(status.interfaces.iter().filter(|before| before.name.is_none()).cloned());
    }
    let is_shown = |guest: &GuestInterface, shown: &[InterfaceStatus]| {
        shown.iter().any(|status| status.mac.as_deref() == Some(guest.mac.as_str()))
    };
    let own: Vec<&GuestInterface> =
        guests.iter().filter(|guest| !is_shown(guest, &shown)).take(MAX_GUESTS_OWN).collect();
    shown.extend(own.into_iter().map(of_the_guest));
    status.interfaces = shown;
}

fn is_on_pod_network(vmi: &VirtualMachineInstance, interface: &Interface) -> bool {
    vmi.spec.network(&interface.name).is_none_or(|network| network.multus.is_none())
}

fn of_the_object(
    vmi: &VirtualMachineInstance,
    interface: &Interface,
    is_pods: bool,
    pod: Option<&KnownPod>,
    facts: &Facts,
    guests: &[GuestInterface],
) -> InterfaceStatus {
    let name = interface.name.as_str();
    let before = vmi.status.interfaces.iter().find(|it| it.name.as_deref() == Some(name));
    let mut shown = before.cloned().unwrap_or_default();
    shown.name = Some(name.into());
    let is_masquerade = interface.connection() == Some(Binding::Masquerade);
    if let Some(connected) = facts.interfaces.get(name) {
        shown.mac = Some(mac_text(connected.mac));
        shown.queue_count = Some(connected.pairs.into());
        shown.pod_interface_name.clone_from(&connected.uplink);
    } else if shown.mac.is_none() {
        // As whoever connected it has reckoned.
        let derived = is_masquerade.then(|| {
            let metadata = &vmi.metadata;
            let (namespace, name, uid) = (&metadata.namespace, &metadata.name, &metadata.uid);
            Identity { namespace, name, uid }.mac_address(&interface.name)
        });
        shown.mac = interface.mac().or(derived).map(mac_text);
    }
    if shown.pod_interface_name.is_none() && is_pods {
        shown.pod_interface_name = Some(POD_INTERFACE.into());
    }
    let is_down = interface.state.as_deref() == Some("down");
    shown.link_state = Some(if is_down { "down" } else { "up" }.into());

    let guest = guests.iter().find(|guest| shown.mac.as_deref() == Some(guest.mac.as_str()));
    let mut sources = vec!["domain"];
    sources.extend(guest.map(|_| "guest-agent"));
    sources.extend((!is_pods).then_some("multus-status"));
    if facts.guest.is_some() || before.is_none() {
        shown.info_source = Some(sources.join(", "));
        shown.interface_name = guest.and_then(|guest| short(&guest.interface_name));
    }
    // A guest behind address translation is reached at the Pod's addresses, whatever its own are.
    let of_the_pod = || pod.filter(|_| is_pods).map(|pod| pod.addresses.clone());
    let of_the_guest = || guest.map(addresses).filter(|addresses| !addresses.is_empty());
    let known = if is_masquerade { of_the_pod() } else { of_the_guest().or_else(of_the_pod) };
    if let Some(addresses) = known.filter(|addresses| !addresses.is_empty()) {
        shown.ip_address = addresses.first().cloned();
        shown.ip_addresses = addresses;
    } else if !is_pods && facts.guest.is_some() {
        (shown.ip_address, shown.ip_addresses) = (None, Vec::new());
    }
    shown
}

fn of_the_guest(guest: &GuestInterface) -> InterfaceStatus {
    let addresses = addresses(guest);
    InterfaceStatus {
        info_source: Some("guest-agent".into()),
        interface_name: short(&guest.interface_name),
        ip_address: addresses.first().cloned(),
        ip_addresses: addresses,
        mac: short(&guest.mac),
        ..InterfaceStatus::default()
    }
}

/// Addresses that are some, the one first that the guest's agent takes for the first.
fn addresses(guest: &GuestInterface) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for text in std::iter::once(&guest.ip_address).chain(&guest.ip_addresses) {
        let Ok(address) = text.parse::<IpAddr>() else { continue };
        let address = address.to_string();
        if addresses.len() < MAX_ADDRESSES && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
