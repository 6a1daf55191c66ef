//! Interfaces of a VMI, connected on this machine.
//!
//! | the object says | without `--bridge` | with a `--bridge` for its network |
//! |---|---|---|
//! | `masquerade` | a network of its own behind this machine; ports are its ports | on that bridge |
//! | `bridge` on the Pod's network, or nothing | the address that a Pod would have; ports are this machine's | on that bridge |
//! | a network of Multus' | refused | on that bridge |

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use corten_launcher::machine::InterfacePlace;
use corten_launcher::names;
use corten_launcher::prepare::hostname;
use corten_link::{DhcpOptions, Resolver, Role, RoleError};
use corten_net::standalone::{
    Connection, Held, StandaloneError, StandaloneInterface, StandaloneNetwork, StandalonePlan,
};
use corten_net::{Binding, Described, VHOST_NET, described, vhost};
use corten_resources::types::{Interface, Network as DescribedNetwork, VirtualMachineInstance};
use corten_resources::validate::Finding;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use thiserror::Error;

use super::taken_port::located;
use crate::job::Network;

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
    names::on_host(&vmi.spec, Resolver::default)?;
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
    let (described, interfaces): (Vec<Described<'_>>, Vec<_>) = wanted.into_iter().unzip();
    let resolver = names::on_host(&vmi.spec, Resolver::of_host)?;
    let plan = StandalonePlan { hostname: hostname(vmi), resolver, interfaces };
    allow_files();
    let network = StandaloneNetwork::create(&plan).map_err(|error| located(vmi, error))?;
    connected.notes.extend(network.findings.iter().map(ToString::to_string));
    connected.held = network.held;
    let mut reached = Vec::new();
    for (described, interface) in described.into_iter().zip(network.interfaces) {
        reached.extend(interface.addresses.iter().map(ToString::to_string));
        let (place, grant) = described.connected(interface.wired)?;
        connected.grant.extend(vhost(Path::new(VHOST_NET), &described.plan.name, place.pairs)?);
        connected.grant.extend(grant);
        connected.places.insert(described.interface.name.clone(), place.into());
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

/// Interfaces as the object describes them, each with what takes the place of a Pod's network for it.
fn wanted<'a>(
    vmi: &'a VirtualMachineInstance,
    how: &Network,
    notes: &mut Vec<String>,
) -> Result<Vec<(Described<'a>, StandaloneInterface)>, NetworkError> {
    if *how == Network::None {
        return Ok(Vec::new());
    }
    let is_there =
        |name: &str| vmi.spec.networks.iter().any(|network| names_of(network).contains(&name));
    if let Some(name) = how.named().find(|name| !is_there(name)) {
        let names = vmi.spec.networks.iter().map(|network| network.name.clone()).collect();
        return Err(NetworkError::NoNetwork { name: name.into(), names });
    }
    let mut wanted = Vec::new();
    for one in described(vmi)? {
        let bridge = match one.network {
            Some((_, network)) => how.bridge(&names_of(network)),
            None => how.bridge(&[&one.interface.name]),
        };
        let connection = match (bridge, one.network, one.plan.binding.clone()) {
            (Some(bridge), ..) => Connection::Bridge(bridge.into()),
            (None, Some((number, network)), _) if network.multus.is_some() => {
                return Err(no_multus(number, network).into());
            }
            (None, _, Binding::Bridge) => Connection::Pod(one.ports.clone()),
            (None, _, Binding::Masquerade(masquerade)) => Connection::Masquerade(masquerade),
        };
        let (mac, pairs, options) = (one.plan.mac, one.plan.pairs, one.plan.options.clone());
        if let Connection::Bridge(bridge) = &connection {
            notes.extend(left_out(one.interface, bridge, &options));
        }
        let name = one.plan.name.clone();
        let interface = StandaloneInterface { name, connection, mac, pairs, mtu: None, options };
        wanted.push((one, interface));
    }
    Ok(wanted)
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
fn names_of(network: &DescribedNetwork) -> Vec<&str> {
    let multus = network.multus.as_ref().map(|multus| multus.network_name.as_str());
    [Some(network.name.as_str()), multus].into_iter().flatten().collect()
}

fn no_multus(number: usize, network: &DescribedNetwork) -> Finding {
    let name = &network.name;
    let message = format!(
        "there is no Multus here: say by --bridge {name}=BRIDGE which bridge of this machine takes its place"
    );
    Finding::invalid(format!("spec.networks[{number}].multus"), message)
}

#[cfg(test)]
mod tests {
    use corten_net::{Masquerade, Port, Protocol};
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

    fn of(vmi: &VirtualMachineInstance, how: &Network) -> Vec<StandaloneInterface> {
        let wanted = wanted(vmi, how, &mut Vec::new()).unwrap();
        wanted.into_iter().map(|(_, interface)| interface).collect()
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
    fn interface_is_wanted_as_it_is_described() {
        let interfaces = json!([{
            "name": "default", "masquerade": {}, "macAddress": "02:00:00:12:34:56",
            "ports": [{"port": 80}], "dhcpOptions": {"ntpServers": ["10.0.0.1"]},
        }]);
        let networks = json!([{"name": "default", "pod": {"vmNetworkCIDR": "10.1.0.0/24"}}]);
        let all = of(&with_interfaces(&interfaces, &networks), &Network::Own);
        assert_eq!(all[0].mac, Some([2, 0, 0, 0x12, 0x34, 0x56]));
        let masquerade = Masquerade {
            ipv4: "10.1.0.0/24".parse().unwrap(),
            ports: vec![Port { protocol: Protocol::Tcp, number: 80 }],
            ..Masquerade::default()
        };
        assert_eq!(all[0].connection, Connection::Masquerade(masquerade));
        assert_eq!(all[0].options.ntp, [std::net::Ipv4Addr::new(10, 0, 0, 1)]);
    }

    #[test]
    fn bridge_of_the_machine_takes_the_place_of_every_network() {
        let interfaces = json!([{"name": "a", "masquerade": {}}, {"name": "b", "bridge": {}}]);
        let networks =
            json!([{"name": "a", "pod": {}}, {"name": "b", "multus": {"networkName": "n"}}]);
        let vmi = with_interfaces(&interfaces, &networks);
        let all = of(&vmi, &Network::Bridge("br0".into()));
        assert!(all.iter().all(|one| one.connection == Connection::Bridge("br0".into())));
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
        let connections: Vec<_> = all.iter().map(|one| &one.connection).collect();
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
        assert_eq!(of(&vmi, &Network::Own)[0].connection, Connection::Pod(ports));
        let mut notes = Vec::new();
        wanted(&vmi, &Network::Bridge("br0".into()), &mut notes).unwrap();
        assert!(notes[0].starts_with("interface a: its ports are no ports of this"), "{notes:?}");
    }

    #[test]
    fn dhcp_options_are_not_told_on_a_bridge_of_the_machine() {
        let interfaces =
            json!([{"name": "a", "masquerade": {}, "dhcpOptions": {"bootFileName": "pxelinux.0"}}]);
        let vmi = with_interfaces(&interfaces, &json!([{"name": "a", "pod": {}}]));
        let mut notes = Vec::new();
        wanted(&vmi, &Network::Bridge("br0".into()), &mut notes).unwrap();
        assert!(notes[0].starts_with("interface a: its dhcpOptions are not told"), "{notes:?}");
    }

    #[test]
    fn wrong_value_is_refused_by_its_path() {
        let interfaces = json!([{"name": "a", "masquerade": {}, "ports": [{"port": 0}]}]);
        let vmi = with_interfaces(&interfaces, &json!([{"name": "a", "pod": {}}]));
        let error = check(&vmi, &Network::Own).unwrap_err().to_string();
        assert!(error.starts_with("spec.domain.devices.interfaces[0].ports[0].port: "), "{error}");
    }
}
