//! Interfaces, networks, and that they match.

use super::Findings;
use super::text::{
    check_first, check_given, check_label, is_label, is_subdomain, mac_address, network,
};
use crate::finding::Finding;
use crate::machine::limits::{NTP_SERVERS, PORTS};
use crate::types::{DhcpOptions, Interface, Network, VirtualMachineInstanceSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

const PATH: &str = "spec.domain.devices.interfaces";
/// What the host's end of a masqueraded interface has, in KubeVirt as here.
const RESERVED_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0];
/// Options of DHCP that are the user's own.
const PRIVATE_OPTIONS: std::ops::RangeInclusive<i32> = 224..=254;
/// A larger network would take addresses away that the guest is to reach.
const SHORTEST_PREFIX: u8 = 8;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    let interfaces = &spec.domain.devices.interfaces;
    let networks: BTreeMap<&str, &Network> =
        spec.networks.iter().map(|network| (network.name.as_str(), network)).collect();
    let mut names = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    for (index, interface) in interfaces.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let name = format!("{path}.name");
        let is_named = check_label(&name, &interface.name, findings);
        let twice =
            || Finding::invalid(&name, format!("two interfaces are called {:?}", interface.name));
        if is_named {
            check_first(&mut names, interface.name.as_str(), twice, findings);
        }
        let network = networks.get(interface.name.as_str()).copied();
        if is_named && network.is_none() {
            let message =
                format!("there is no network {:?} for it in spec.networks", interface.name);
            findings.push(Finding::missing(&name, message));
        }
        binding(&path, interface, network, findings);
        findings.extend(mac(&path, interface, &mut addresses));
        ports(&path, interface, findings);
        if let Some(options) = &interface.dhcp_options {
            dhcp_options(&format!("{path}.dhcpOptions"), options, findings);
        }
    }
    check_networks(spec, &names, findings);
}

fn binding(path: &str, interface: &Interface, network: Option<&Network>, findings: &mut Findings) {
    let bindings = [
        interface.binding.is_some(),
        interface.bridge.is_some(),
        interface.macvtap.is_some(),
        interface.masquerade.is_some(),
        interface.passt.is_some(),
        interface.passt_binding.is_some(),
        interface.slirp.is_some(),
        interface.sriov.is_some(),
    ];
    match bindings.iter().filter(|given| **given).count() {
        0 => findings.push(Finding::missing(
            path,
            "say how it is connected: `masquerade: {}` or `bridge: {}`",
        )),
        1 => {}
        _ => findings.push(Finding::invalid(path, "it is connected in one way, not in several")),
    }
    if interface.masquerade.is_some() && network.is_some_and(|network| network.pod.is_none()) {
        let message = "masquerade connects the network `pod` only";
        findings.push(Finding::invalid(format!("{path}.masquerade"), message));
    }
}

fn mac(path: &str, interface: &Interface, taken: &mut BTreeSet<[u8; 6]>) -> Option<Finding> {
    let text = interface.mac_address.as_deref().filter(|text| !text.is_empty())?;
    let path = format!("{path}.macAddress");
    let Some(address) = mac_address(text) else {
        let message = format!("{text:?} is no address such as 02:12:34:56:78:9a");
        return Some(Finding::invalid(path, message));
    };
    if address[0] & 1 == 1 || address == [0; 6] {
        return Some(Finding::invalid(path, format!("{text} is no address of one interface")));
    }
    if address == RESERVED_MAC && interface.masquerade.is_some() {
        return Some(Finding::invalid(path, format!("{text} is the address of the host's end")));
    }
    (!taken.insert(address))
        .then(|| Finding::invalid(path, format!("another interface has the address {text}")))
}

fn ports(path: &str, interface: &Interface, findings: &mut Findings) {
    let count = interface.ports.len();
    if count > PORTS {
        let message = format!("{count} ports are listed; an interface has {PORTS} at most");
        findings.push(Finding::invalid(format!("{path}.ports"), message));
        return;
    }
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for (index, port) in interface.ports.iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let number = format!("{path}.port");
        if !(1..=65535).contains(&port.port) {
            let message = format!("{} is not between 1 and 65535", port.port);
            findings.push(Finding::invalid(&number, message));
        }
        let protocol = port.protocol.as_deref().filter(|it| !it.is_empty()).unwrap_or("TCP");
        let twice =
            || Finding::invalid(&number, format!("{protocol} {} is named twice", port.port));
        check_first(&mut numbers, (protocol, port.port), twice, findings);
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let path = format!("{path}.name");
            check_label(&path, name, findings);
            let twice = || Finding::invalid(&path, format!("two ports are called {name:?}"));
            check_first(&mut names, name, twice, findings);
        }
    }
}

fn dhcp_options(path: &str, options: &DhcpOptions, findings: &mut Findings) {
    for (index, server) in options.ntp_servers.iter().enumerate() {
        if server.parse::<Ipv4Addr>().is_err() {
            let message = format!("{server:?} is no IPv4 address");
            findings.push(Finding::invalid(format!("{path}.ntpServers[{index}]"), message));
        }
    }
    if options.ntp_servers.len() > NTP_SERVERS {
        let message = format!("a guest is told {NTP_SERVERS} time servers at most");
        findings.push(Finding::invalid(format!("{path}.ntpServers"), message));
    }
    let mut numbers = BTreeSet::new();
    for (index, private) in options.private_options.iter().enumerate() {
        let number = format!("{path}.privateOptions[{index}].option");
        if !PRIVATE_OPTIONS.contains(&private.option) {
            let message = format!("{} is not between 224 and 254", private.option);
            findings.push(Finding::invalid(&number, message));
        }
        let twice = || Finding::invalid(&number, format!("{} is given twice", private.option));
        check_first(&mut numbers, private.option, twice, findings);
        if !(1..=255).contains(&private.value.len()) {
            let message = "its value has 1 to 255 bytes";
            findings
                .push(Finding::invalid(format!("{path}.privateOptions[{index}].value"), message));
        }
    }
    let files =
        [("bootFileName", &options.boot_file_name), ("tftpServerName", &options.tftp_server_name)];
    for (name, value) in files {
        if value.as_ref().is_some_and(|value| value.len() > 255) {
            findings.push(Finding::invalid(format!("{path}.{name}"), "it has at most 255 bytes"));
        }
    }
}

fn check_networks(
    spec: &VirtualMachineInstanceSpec,
    interfaces: &BTreeSet<&str>,
    findings: &mut Findings,
) {
    let mut names = BTreeSet::new();
    let mut pods = 0;
    for (index, network) in spec.networks.iter().enumerate() {
        let path = format!("spec.networks[{index}]");
        let name = format!("{path}.name");
        let is_named = check_label(&name, &network.name, findings);
        let twice =
            || Finding::invalid(&name, format!("two networks are called {:?}", network.name));
        if is_named {
            check_first(&mut names, network.name.as_str(), twice, findings);
        }
        if is_named && !interfaces.contains(network.name.as_str()) {
            let message = format!("there is no interface {:?} on it in {PATH}", network.name);
            findings.push(Finding::missing(&name, message));
        }
        let sources =
            [network.multus.is_some(), network.pod.is_some(), network.resource_claim.is_some()];
        match sources.iter().filter(|given| **given).count() {
            0 => findings.push(Finding::missing(&path, "say which network it is: `pod: {}`")),
            1 => {}
            _ => findings.push(Finding::invalid(&path, "it is one network, not several")),
        }
        if let Some(multus) = &network.multus {
            let path = format!("{path}.multus.networkName");
            let what = "name the NetworkAttachmentDefinition";
            check_given(&path, Some(&multus.network_name), what, findings);
            if !multus.network_name.is_empty() && !is_attachment(&multus.network_name) {
                let message =
                    format!("{:?} is neither `name` nor `namespace/name`", multus.network_name);
                findings.push(Finding::invalid(path, message));
            }
        }
        let is_default = network.multus.as_ref().is_some_and(|it| it.default == Some(true));
        pods += usize::from(network.pod.is_some() || is_default);
        if network.pod.is_some() && pods > 1 {
            let message = "there is one network of this kind";
            findings.push(Finding::invalid(format!("{path}.pod"), message));
        } else if is_default && pods > 1 {
            let message = "there is another network that is the Pod's own";
            findings.push(Finding::invalid(format!("{path}.multus.default"), message));
        }
        addresses(&format!("{path}.pod"), network, findings);
    }
}

/// `name`, or `namespace/name`.
fn is_attachment(text: &str) -> bool {
    match text.split_once('/') {
        Some((namespace, name)) => is_label(namespace) && is_subdomain(name),
        None => is_subdomain(text),
    }
}

/// Networks behind masquerade have room for the host's end and the guest's.
fn addresses(path: &str, description: &Network, findings: &mut Findings) {
    let Some(pod) = &description.pod else { return };
    let given = [
        ("vmNetworkCIDR", &pod.vm_network_cidr, true, 30, "10.0.2.0/24"),
        ("vmIPv6NetworkCIDR", &pod.vm_ipv6_network_cidr, false, 126, "fd10:0:2::/120"),
    ];
    for (name, text, is_v4, longest, example) in given {
        let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else { continue };
        let given = network(text).filter(|(address, _)| address.is_ipv4() == is_v4);
        let message = match given {
            None => format!("{text:?} is no network such as {example}"),
            Some((_, bits)) if !(SHORTEST_PREFIX..=longest).contains(&bits) => {
                format!("{text} does not have {SHORTEST_PREFIX} to {longest} bits, as {example}")
            }
            Some((address, _)) if !is_ordinary(address) => {
                format!("{text} is not made of ordinary addresses, as {example} is")
            }
            Some(_) => continue,
        };
        findings.push(Finding::invalid(format!("{path}.{name}"), message));
    }
}

/// An address that an interface can have.
fn is_ordinary(address: IpAddr) -> bool {
    match address {
        // Not this network (0), loopback (127), groups and what is reserved (224 on).
        IpAddr::V4(address) => !matches!(address.octets()[0], 0 | 127 | 224..),
        // Global ones (2000::/3) and unique local ones (fc00::/7).
        IpAddr::V6(address) => {
            let first = address.segments()[0];
            first & 0xe000 == 0x2000 || first & 0xfe00 == 0xfc00
        }
    }
}
