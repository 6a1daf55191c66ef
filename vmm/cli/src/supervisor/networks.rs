//! Interfaces of a VMI, connected on this machine.
//!
//! | the object says | without `--bridge` | with a `--bridge` for its network |
//! |---|---|---|
//! | `masquerade` | a network of its own behind this machine; ports are its ports | on that bridge |
//! | `bridge` on the Pod's network, or nothing | the address that a Pod would have; ports are this machine's | on that bridge |
//! | a network of Multus' | refused | on that bridge |

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;

use corten_launcher::machine::{InterfacePlace, queue_pairs};
use corten_launcher::prepare::hostname;
use corten_link::{DhcpOptions, PrivateOption, Role, RoleError};
use corten_net::standalone::{
    Connection, Held, StandaloneError, StandaloneInterface, StandaloneNetwork, StandalonePlan,
};
use corten_net::{Masquerade, Port, Protocol, Resolver};
use corten_resources::defaults::Identity;
use corten_resources::machine::limits::{NTP_SERVERS, PORTS};
use corten_resources::types::{Interface, Network as Described, VirtualMachineInstance};
use corten_resources::validate::Finding;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use thiserror::Error;

use super::names;
use super::taken_port::located;
use crate::job::Network;

const PATH: &str = "spec.domain.devices.interfaces";

/// Why a guest is not connected.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// A field.
    #[error("{0}")]
    Field(Finding),
    /// A bridge for nothing.
    #[error("--bridge {name}=...: the object has no network of that name{}", known(.names))]
    NoNetwork {
        /// What is named.
        name: String,
        /// What there is.
        names: Vec<String>,
    },
    /// The machine's networks.
    #[error("the network cannot be made; --no-network runs the VM without one")]
    Host(#[from] StandaloneError),
    /// A name that no role can have.
    #[error(transparent)]
    Role(#[from] RoleError),
}

fn known(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; it has {}", names.join(", ")) }
}

impl From<Finding> for NetworkError {
    fn from(finding: Finding) -> Self {
        Self::Field(finding)
    }
}

/// Interfaces that are connected.
#[derive(Debug, Default)]
pub(super) struct Connected {
    pub(super) places: BTreeMap<String, InterfacePlace>,
    pub(super) grant: Vec<(Role, OwnedFd)>,
    /// What its user should know.
    pub(super) notes: Vec<String>,
    /// One line about where the guest is reached.
    pub(super) summary: String,
    /// Has to stay open.
    pub(super) held: Held,
}

/// Whether all that the interfaces of `vmi` need was said, before anything is made.
pub(crate) fn check(vmi: &VirtualMachineInstance, how: &Network) -> Result<(), NetworkError> {
    names::resolver(&vmi.spec, Resolver::default)?;
    wanted(vmi, how, &mut Vec::new()).map(drop)
}

/// Connects the interfaces of `vmi`.
pub(super) fn connect(
    vmi: &VirtualMachineInstance,
    how: &Network,
) -> Result<Connected, NetworkError> {
    let mut connected = Connected::default();
    let wanted = wanted(vmi, how, &mut connected.notes)?;
    if wanted.is_empty() {
        connected.summary = "none".into();
        return Ok(connected);
    }
    let (names, interfaces): (Vec<String>, Vec<StandaloneInterface>) = wanted.into_iter().unzip();
    let pairs = interfaces.first().map_or(1, |interface| interface.pairs);
    let macs: Vec<Option<[u8; 6]>> = interfaces.iter().map(|interface| interface.mac).collect();
    let resolver = names::resolver(&vmi.spec, Resolver::of_host)?;
    let plan = StandalonePlan { hostname: hostname(vmi), resolver, interfaces };
    allow_files();
    let network = StandaloneNetwork::create(&plan).map_err(|error| located(vmi, error))?;
    connected.notes.extend(network.findings.iter().map(ToString::to_string));
    connected.held = network.held;
    let (namespace, name, uid) = (&vmi.metadata.namespace, &vmi.metadata.name, &vmi.metadata.uid);
    let identity = Identity { namespace, name, uid };
    let mut reached = Vec::new();
    for ((name, mac), interface) in names.into_iter().zip(macs).zip(network.interfaces) {
        let wired = interface.wired;
        let place = InterfacePlace {
            mac: wired.mac.or(mac).unwrap_or_else(|| identity.mac_address(&name)),
            pairs,
            mtu: Some(wired.mtu),
            addressing: None,
        };
        reached.extend(interface.addresses.iter().map(ToString::to_string));
        connected.grant.extend(vhost(&wired.name, pairs)?);
        let (grant, addressing) = wired.into_grant()?;
        connected.grant.extend(grant);
        let told = addressing.ipv4.is_some() || addressing.ipv6.is_some();
        let addressing = told.then_some(addressing);
        connected.places.insert(name, InterfacePlace { addressing, ..place });
    }
    connected.summary = reached.join(", ");
    Ok(connected)
}

/// Lets this process have as many files open as it may. A port is a socket of each family, and many systems begin with 1024
/// files; the VM process has a limit of its own. If it cannot be, the port for which there is no file is named.
fn allow_files() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Interfaces by the names that the object has for them.
fn wanted(
    vmi: &VirtualMachineInstance,
    how: &Network,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, StandaloneInterface)>, NetworkError> {
    let devices = &vmi.spec.domain.devices;
    let pairs = queue_pairs(&vmi.spec)?;
    if *how == Network::None {
        return Ok(Vec::new());
    }
    let of_bridge = |network: &Described| how.bridge(&names_of(network));
    let is_there =
        |name: &str| vmi.spec.networks.iter().any(|network| names_of(network).contains(&name));
    if let Some(name) = how.named().find(|name| !is_there(name)) {
        let names = vmi.spec.networks.iter().map(|network| network.name.clone()).collect();
        return Err(NetworkError::NoNetwork { name: name.into(), names });
    }
    let mut all = Vec::new();
    for (number, interface) in devices.interfaces.iter().enumerate() {
        if interface.state.as_deref() == Some("absent") {
            continue;
        }
        let path = format!("{PATH}[{number}]");
        let networks = vmi.spec.networks.iter().enumerate();
        let network = networks.into_iter().find(|(_, network)| network.name == interface.name);
        let bridge = match network {
            Some((_, network)) => of_bridge(network),
            None => how.bridge(&[&interface.name]),
        };
        let connection = match (bridge, network) {
            (Some(bridge), _) => Connection::Bridge(bridge.into()),
            (None, Some((number, network))) if network.multus.is_some() => {
                return Err(no_multus(number, network).into());
            }
            (None, _) if interface.masquerade.is_none() => {
                Connection::Pod(ports(interface, &path)?)
            }
            (None, network) => {
                let ports = ports(interface, &path)?;
                Connection::Masquerade(masquerade(ports, network)?)
            }
        };
        let mac = interface.mac_address.as_deref().filter(|text| !text.is_empty());
        let mac = mac.map(|text| parse_mac(&path, text)).transpose()?;
        let name = Role::segment(&interface.name);
        let options = dhcp_options(&path, interface)?;
        if let Connection::Bridge(bridge) = &connection {
            notes.extend(left_out(interface, bridge, &options));
        }
        let wanted = StandaloneInterface { name, connection, mac, pairs, mtu: None, options };
        all.push((interface.name.clone(), wanted));
    }
    Ok(all)
}

/// What is asked for and cannot be on a bridge of this machine.
fn left_out(interface: &Interface, bridge: &str, options: &DhcpOptions) -> Vec<String> {
    let name = &interface.name;
    let mut notes = Vec::new();
    if !options.is_empty() {
        notes.push(format!(
            "interface {name}: its dhcpOptions are not told: who answers on bridge {bridge} is not this command"
        ));
    }
    if !interface.ports.is_empty() || !interface.port_ranges.is_empty() {
        notes.push(format!(
            "interface {name}: its ports are no ports of this machine: on bridge {bridge} the guest has an address of its own"
        ));
    }
    notes
}

/// What a network is called on the command line: by its own name, or by that of what Multus would connect.
fn names_of(network: &Described) -> Vec<&str> {
    let multus = network.multus.as_ref().map(|multus| multus.network_name.as_str());
    [Some(network.name.as_str()), multus].into_iter().flatten().collect()
}

fn no_multus(number: usize, network: &Described) -> Finding {
    let name = &network.name;
    let message = format!(
        "there is no Multus here: say by --bridge {name}=BRIDGE which bridge of this machine takes its place"
    );
    Finding::invalid(format!("spec.networks[{number}].multus"), message)
}

fn masquerade(
    ports: Vec<Port>,
    network: Option<(usize, &Described)>,
) -> Result<Masquerade, NetworkError> {
    let mut masquerade = Masquerade { ports, ..Masquerade::default() };
    let Some((number, network)) = network else { return Ok(masquerade) };
    let path = format!("spec.networks[{number}]");
    let Some(pod) = &network.pod else { return Ok(masquerade) };
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(text) = given(&pod.vm_network_cidr) {
        masquerade.ipv4 = text.parse().map_err(|error: corten_net::CidrError| {
            Finding::invalid(format!("{path}.pod.vmNetworkCIDR"), error.to_string())
        })?;
    }
    if let Some(text) = given(&pod.vm_ipv6_network_cidr) {
        masquerade.ipv6 = text.parse().map_err(|error: corten_net::CidrError| {
            Finding::invalid(format!("{path}.pod.vmIPv6NetworkCIDR"), error.to_string())
        })?;
    }
    Ok(masquerade)
}

/// What the guest is told by DHCP besides its address.
fn dhcp_options(path: &str, interface: &Interface) -> Result<DhcpOptions, Finding> {
    let Some(wanted) = &interface.dhcp_options else { return Ok(DhcpOptions::default()) };
    let path = format!("{path}.dhcpOptions");
    let mut options = DhcpOptions {
        boot_file: wanted.boot_file_name.clone().unwrap_or_default(),
        tftp_server: wanted.tftp_server_name.clone().unwrap_or_default(),
        ..DhcpOptions::default()
    };
    for (number, server) in wanted.ntp_servers.iter().enumerate() {
        options.ntp.push(server.parse().map_err(|_| {
            let message = format!("{server:?} is no IPv4 address");
            Finding::invalid(format!("{path}.ntpServers[{number}]"), message)
        })?);
    }
    if options.ntp.len() > NTP_SERVERS {
        let message = format!("a guest is told {NTP_SERVERS} time servers at most");
        return Err(Finding::invalid(format!("{path}.ntpServers"), message));
    }
    for (number, private) in wanted.private_options.iter().enumerate() {
        let code = u8::try_from(private.option).ok().filter(|code| (224..=254).contains(code));
        let code = code.ok_or_else(|| {
            let message = format!("{} is not between 224 and 254", private.option);
            Finding::invalid(format!("{path}.privateOptions[{number}].option"), message)
        })?;
        options.private.push(PrivateOption { code, value: private.value.clone() });
    }
    Ok(options)
}

fn ports(interface: &Interface, path: &str) -> Result<Vec<Port>, Finding> {
    let mut ports = Vec::new();
    for (number, port) in interface.ports.iter().enumerate() {
        let path = format!("{path}.ports[{number}]");
        let protocol = protocol(&path, port.protocol.as_deref())?;
        ports.push(Port { protocol, number: port_number(&format!("{path}.port"), port.port)? });
    }
    for (number, range) in interface.port_ranges.iter().enumerate() {
        let path = format!("{path}.portRanges[{number}]");
        let protocol = protocol(&path, Some(&range.protocol))?;
        let first = port_number(&format!("{path}.start"), range.start)?;
        let last = port_number(&format!("{path}.end"), range.end)?;
        ports.extend((first..=last).map(|number| Port { protocol, number }));
    }
    ports.sort();
    ports.dedup();
    if ports.len() > PORTS {
        let field = if interface.ports.len() > PORTS { "ports" } else { "portRanges" };
        let message = format!("an interface has {PORTS} ports of this machine at most");
        return Err(Finding::invalid(format!("{path}.{field}"), message));
    }
    Ok(ports)
}

fn protocol(path: &str, text: Option<&str>) -> Result<Protocol, Finding> {
    match text.unwrap_or_default() {
        "" | "TCP" => Ok(Protocol::Tcp),
        "UDP" => Ok(Protocol::Udp),
        other => {
            let message = format!("{other:?} is neither TCP nor UDP");
            Err(Finding::invalid(format!("{path}.protocol"), message))
        }
    }
}

fn port_number(path: &str, number: i32) -> Result<u16, Finding> {
    u16::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| {
        Finding::invalid(path, format!("{number} is no port: it has to be from 1 to 65535"))
    })
}

fn parse_mac(path: &str, text: &str) -> Result<[u8; 6], Finding> {
    let invalid = || {
        let message = format!("{text:?} is no address such as 02:00:00:12:34:56");
        Finding::invalid(format!("{path}.macAddress"), message)
    };
    let mut mac = [0; 6];
    let mut groups = text.split([':', '-']);
    for byte in &mut mac {
        let digits = groups.next().filter(|digits| digits.len() == 2).ok_or_else(invalid)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| invalid())?;
    }
    // A group's address cannot be one machine's.
    if groups.next().is_some() || mac[0] & 1 != 0 { Err(invalid()) } else { Ok(mac) }
}

/// The kernel moves packets itself, where it can.
fn vhost(name: &str, pairs: u16) -> Result<Vec<(Role, OwnedFd)>, RoleError> {
    let mut all = Vec::new();
    for pair in 0..pairs {
        let device = File::options().read(true).write(true).open("/dev/vhost-net");
        // All or none: the rest goes by the VM process.
        let Ok(device) = device else { return Ok(Vec::new()) };
        all.push((Role::vhost(name, pair)?, device.into()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vmi(spec: &Value) -> VirtualMachineInstance {
        let mut object = json!({
            "metadata": {"name": "a", "uid": "u"},
            "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}},
        });
        for (name, value) in spec.as_object().unwrap() {
            object["spec"][name] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn with_interfaces(interfaces: &Value, networks: &Value) -> VirtualMachineInstance {
        let domain = json!({"memory": {"guest": "64Mi"}, "devices": {"interfaces": interfaces}});
        vmi(&json!({"domain": domain, "networks": networks}))
    }

    fn of(vmi: &VirtualMachineInstance, how: &Network) -> Vec<(String, StandaloneInterface)> {
        wanted(vmi, how, &mut Vec::new()).unwrap()
    }

    #[test]
    fn interfaces_that_are_not_wanted_are_left_out() {
        let interfaces = json!([
            {"name": "a", "masquerade": {}, "macAddress": "02:00:00:00:00:01"},
            {"name": "b", "masquerade": {}, "state": "absent"},
        ]);
        let vmi = with_interfaces(
            &interfaces,
            &json!([{"name": "a", "pod": {}}, {"name": "b", "pod": {}}]),
        );
        assert_eq!(of(&vmi, &Network::Own).len(), 1);
        assert!(of(&vmi, &Network::None).is_empty());
    }

    #[test]
    fn ports_networks_and_addresses_are_taken_over() {
        let interfaces = json!([{
            "name": "default", "masquerade": {}, "macAddress": "02:00:00:12:34:56",
            "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}],
        }]);
        let networks = json!([{"name": "default", "pod": {"vmNetworkCIDR": "10.1.0.0/24"}}]);
        let all = of(&with_interfaces(&interfaces, &networks), &Network::Own);
        assert_eq!(all[0].1.mac, Some([2, 0, 0, 0x12, 0x34, 0x56]));
        let Connection::Masquerade(masquerade) = &all[0].1.connection else { panic!("no") };
        let ports = [(Protocol::Tcp, 80), (Protocol::Udp, 53)];
        assert_eq!(masquerade.ports, ports.map(|(protocol, number)| Port { protocol, number }));
        assert_eq!(masquerade.ipv4, "10.1.0.0/24".parse().unwrap());
    }

    #[test]
    fn bridge_of_the_machine_takes_the_place_of_every_network() {
        let interfaces = json!([{"name": "a", "masquerade": {}}, {"name": "b", "bridge": {}}]);
        let networks =
            json!([{"name": "a", "pod": {}}, {"name": "b", "multus": {"networkName": "n"}}]);
        let vmi = with_interfaces(&interfaces, &networks);
        let all = of(&vmi, &Network::Bridge("br0".into()));
        assert!(all.iter().all(|(_, i)| i.connection == Connection::Bridge("br0".into())));
        let error = wanted(&vmi, &Network::Own, &mut Vec::new()).unwrap_err().to_string();
        let told = "spec.networks[1].multus: there is no Multus here: say by --bridge b=BRIDGE";
        assert!(error.starts_with(told), "{error}");
    }

    #[test]
    fn networks_are_connected_with_the_bridges_of_their_names() {
        let interfaces = json!([
            {"name": "a", "masquerade": {}}, {"name": "b", "bridge": {}}, {"name": "c", "bridge": {}},
        ]);
        let networks = json!([
            {"name": "a", "pod": {}}, {"name": "b", "multus": {"networkName": "lan"}},
            {"name": "c", "multus": {"networkName": "ns/storage"}},
        ]);
        let vmi = with_interfaces(&interfaces, &networks);
        let bridges = |pairs: &[(&str, &str)]| Network::Bridges {
            named: pairs.iter().map(|(name, bridge)| ((*name).into(), (*bridge).into())).collect(),
            others: None,
        };
        let all = of(&vmi, &bridges(&[("b", "br1"), ("ns/storage", "br2")]));
        let connections: Vec<_> = all.iter().map(|(_, one)| &one.connection).collect();
        assert!(matches!(connections[0], Connection::Masquerade(_)));
        assert_eq!(*connections[1], Connection::Bridge("br1".into()));
        assert_eq!(*connections[2], Connection::Bridge("br2".into()));
        let refused = |how: &Network| check(&vmi, how).unwrap_err().to_string();
        let error = refused(&bridges(&[("b", "br1")]));
        assert!(error.starts_with("spec.networks[2].multus: "), "{error}");
        let error = refused(&bridges(&[("b", "br1"), ("c", "br2"), ("d", "br3")]));
        let told = "--bridge d=...: the object has no network of that name; it has a, b, c";
        assert_eq!(error, told);
    }

    #[test]
    fn guest_is_in_the_place_of_a_pod_unless_it_is_masqueraded() {
        let interfaces = json!([{"name": "a", "bridge": {}, "ports": [{"port": 80}]}]);
        let vmi = with_interfaces(&interfaces, &json!([{"name": "a", "pod": {}}]));
        let ports = vec![Port { protocol: Protocol::Tcp, number: 80 }];
        assert_eq!(of(&vmi, &Network::Own)[0].1.connection, Connection::Pod(ports));
        let mut notes = Vec::new();
        wanted(&vmi, &Network::Bridge("br0".into()), &mut notes).unwrap();
        assert!(notes[0].starts_with("interface a: its ports are no ports of this"), "{notes:?}");
    }

    #[test]
    fn dhcp_options_are_taken_over() {
        let interfaces = json!([{"name": "a", "masquerade": {}, "dhcpOptions": {
            "bootFileName": "pxelinux.0", "tftpServerName": "tftp.example",
            "ntpServers": ["10.0.0.1"], "privateOptions": [{"option": 240, "value": "site"}],
        }}]);
        let vmi = with_interfaces(&interfaces, &json!([{"name": "a", "pod": {}}]));
        let expected = DhcpOptions {
            boot_file: "pxelinux.0".into(),
            tftp_server: "tftp.example".into(),
            ntp: vec![[10, 0, 0, 1].into()],
            private: vec![PrivateOption { code: 240, value: "site".into() }],
        };
        assert_eq!(of(&vmi, &Network::Own)[0].1.options, expected);
        let mut notes = Vec::new();
        wanted(&vmi, &Network::Bridge("br0".into()), &mut notes).unwrap();
        assert!(notes[0].starts_with("interface a: its dhcpOptions are not told"), "{notes:?}");
    }

    #[test]
    fn wrong_values_are_refused_by_their_path() {
        let cases = [
            (
                json!({"dhcpOptions": {"ntpServers": ["10.0.0.1", "x"]}}),
                "spec.domain.devices.interfaces[0].dhcpOptions.ntpServers[1]: ",
            ),
            (
                json!({"dhcpOptions": {"privateOptions": [{"option": 53, "value": "x"}]}}),
                "spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[0].option: ",
            ),
            (json!({"macAddress": "02:00"}), "spec.domain.devices.interfaces[0].macAddress: "),
            (
                json!({"macAddress": "01:00:00:00:00:00"}),
                "spec.domain.devices.interfaces[0].macAddress: ",
            ),
            (json!({"ports": [{"port": 0}]}), "spec.domain.devices.interfaces[0].ports[0].port: "),
            (
                json!({"ports": (1..=1025).map(|port| json!({"port": port})).collect::<Value>()}),
                "spec.domain.devices.interfaces[0].ports: an interface has 1024 ports",
            ),
            (
                json!({"portRanges": [{"start": 1, "end": 1025, "protocol": "TCP"}]}),
                "spec.domain.devices.interfaces[0].portRanges: an interface has 1024 ports",
            ),
            (
                json!({"ports": [{"port": 1, "protocol": "SCTP"}]}),
                "spec.domain.devices.interfaces[0].ports[0].protocol: ",
            ),
        ];
        for (more, text) in cases {
            let mut interface = json!({"name": "a", "masquerade": {}});
            for (name, value) in more.as_object().unwrap() {
                interface[name] = value.clone();
            }
            let vmi = with_interfaces(&json!([interface]), &json!([{"name": "a", "pod": {}}]));
            let error = wanted(&vmi, &Network::Own, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
