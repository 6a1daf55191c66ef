//! Interfaces as a VirtualMachineInstance describes them. Pure: one reading of the object for node agent and command line,
//! which differ in what an interface is connected to.

use corten_link::launcher::ConnectedInterface;
use corten_link::{DhcpOptions, Grant, PrivateOption, Role, RoleError};
use corten_resources::defaults::Identity;
use corten_resources::machine::limits::{NTP_SERVERS, PORTS};
use corten_resources::types::{Interface, Network, VirtualMachineInstance};
use corten_resources::validate::Finding;

use crate::cidr::CidrError;
use crate::plan::{Binding, InterfacePlan, Masquerade, Port, Protocol, Wired};

const PATH: &str = "spec.domain.devices.interfaces";

/// An interface of a VirtualMachineInstance.
#[derive(Clone, Debug)]
pub struct Described<'a> {
    /// What the object says of it.
    pub interface: &'a Interface,
    /// What it is on, and which of the object's networks that is; none if there is none of its name.
    pub network: Option<(usize, &'a Network)>,
    /// The ports that lead to it; empty for all.
    pub ports: Vec<Port>,
    /// How it is wired in a Pod. Who the guest is, and which name servers it has, is not in it.
    pub plan: InterfacePlan,
    /// The guest's Ethernet address if nothing else decides it.
    own_mac: [u8; 6],
}

impl Described<'_> {
    /// What a VM process, and whoever describes its machine, has to know of it once it is wired.
    pub fn connected(&self, wired: Wired) -> Result<(ConnectedInterface, Grant), RoleError> {
        let (wanted, mtu) = (wired.mac.or(self.plan.mac), wired.mtu);
        let pairs = u16::try_from(wired.queues.len()).unwrap_or(u16::MAX);
        let (grant, addressing) = wired.into_grant()?;
        let is_told = addressing.ipv4.is_some() || addressing.ipv6.is_some();
        let connected = ConnectedInterface {
            mac: wanted.unwrap_or(self.own_mac),
            pairs,
            mtu,
            addressing: is_told.then_some(addressing),
        };
        Ok((connected, grant))
    }
}

/// The interfaces of `vmi` that its guest is to have, in their order.
pub fn described(vmi: &VirtualMachineInstance) -> Result<Vec<Described<'_>>, Finding> {
    let (namespace, name, uid) = (&vmi.metadata.namespace, &vmi.metadata.name, &vmi.metadata.uid);
    let identity = Identity { namespace, name, uid };
    let pairs = vmi.spec.network_queue_pairs()?;
    let mut all = Vec::new();
    for (number, interface) in vmi.spec.domain.devices.interfaces.iter().enumerate() {
        if interface.state.as_deref() == Some("absent") {
            continue;
        }
        let path = format!("{PATH}[{number}]");
        let mut networks = vmi.spec.networks.iter().enumerate();
        let network = networks.find(|(_, network)| network.name == interface.name);
        let ports = ports(interface, &path)?;
        let own_mac = identity.mac_address(&interface.name);
        let given = mac(interface, &path)?;
        let (binding, mac) = if interface.masquerade.is_some() {
            let binding = Binding::Masquerade(masquerade(ports.clone(), network)?);
            (binding, Some(given.unwrap_or(own_mac)))
        } else {
            (Binding::Bridge, given)
        };
        let plan = InterfacePlan {
            name: Role::segment(&interface.name),
            binding,
            mac,
            pairs,
            options: dhcp_options(&path, interface)?,
            ..InterfacePlan::default()
        };
        all.push(Described { interface, network, ports, plan, own_mac });
    }
    Ok(all)
}

fn masquerade(ports: Vec<Port>, network: Option<(usize, &Network)>) -> Result<Masquerade, Finding> {
    let mut masquerade = Masquerade { ports, ..Masquerade::default() };
    let Some((number, network)) = network else { return Ok(masquerade) };
    let Some(pod) = &network.pod else { return Ok(masquerade) };
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let wrong = |field: &str, error: &CidrError| {
        Finding::invalid(format!("spec.networks[{number}].pod.{field}"), error.to_string())
    };
    if let Some(text) = given(&pod.vm_network_cidr) {
        masquerade.ipv4 = text.parse().map_err(|error| wrong("vmNetworkCIDR", &error))?;
    }
    if let Some(text) = given(&pod.vm_ipv6_network_cidr) {
        masquerade.ipv6 = text.parse().map_err(|error| wrong("vmIPv6NetworkCIDR", &error))?;
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
        let message = format!("an interface has {PORTS} ports at most");
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

fn mac(interface: &Interface, path: &str) -> Result<Option<[u8; 6]>, Finding> {
    let Some(text) = interface.mac_address.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    // A group's address cannot be one machine's.
    let own = interface.mac().filter(|mac| mac[0] & 1 == 0);
    own.map(Some).ok_or_else(|| {
        let message = format!("{text:?} is no address such as 02:00:00:12:34:56");
        Finding::invalid(format!("{path}.macAddress"), message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vmi(interfaces: &Value, networks: &Value) -> VirtualMachineInstance {
        let devices = json!({"interfaces": interfaces, "networkInterfaceMultiqueue": true});
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "a", "uid": "u"},
            "spec": {"domain": {"cpu": {"cores": 3}, "devices": devices}, "networks": networks},
        }))
        .unwrap()
    }

    #[test]
    fn ports_networks_and_addresses_are_taken_over() {
        let interfaces = json!([{
            "name": "default", "masquerade": {}, "macAddress": "02:00:00:12:34:56",
            "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}],
        }]);
        let networks = json!([{"name": "default", "pod": {
            "vmNetworkCIDR": "10.1.0.0/24", "vmIPv6NetworkCIDR": "fd99::/120"}}]);
        let vmi = vmi(&interfaces, &networks);
        let all = described(&vmi).unwrap();
        let plan = &all[0].plan;
        assert_eq!((plan.mac, plan.pairs), (Some([2, 0, 0, 0x12, 0x34, 0x56]), 3));
        let ports = [(Protocol::Tcp, 80), (Protocol::Udp, 53)];
        let ports: Vec<_> =
            ports.into_iter().map(|(protocol, number)| Port { protocol, number }).collect();
        let binding = Binding::Masquerade(Masquerade {
            ipv4: "10.1.0.0/24".parse().unwrap(),
            ipv6: "fd99::/120".parse().unwrap(),
            ports: ports.clone(),
        });
        assert_eq!((&plan.binding, &all[0].ports), (&binding, &ports));
    }

    #[test]
    fn bridged_guest_has_the_uplinks_address_and_a_masqueraded_one_always_the_same() {
        let interfaces = json!([
            {"name": "Red_1", "bridge": {}}, {"name": "b", "masquerade": {}},
            {"name": "c", "bridge": {}, "state": "absent"},
        ]);
        let vmi = vmi(&interfaces, &json!([{"name": "b", "pod": {}}]));
        let (first, second) = (described(&vmi).unwrap(), described(&vmi).unwrap());
        let plans: Vec<_> = first.iter().map(|one| (&one.plan.binding, one.plan.mac)).collect();
        assert_eq!(plans.len(), 2);
        assert_eq!(plans[0], (&Binding::Bridge, None));
        assert!(plans[1].1.is_some_and(|mac| mac[0] == 2));
        assert_eq!(plans[1].1, second[1].plan.mac);
        assert!(first[0].network.is_none() && first[1].network.is_some());
        assert_eq!(first[0].plan.name, Role::segment("Red_1"));
    }

    #[test]
    fn dhcp_options_are_taken_over() {
        let interfaces = json!([{"name": "a", "masquerade": {}, "dhcpOptions": {
            "bootFileName": "pxelinux.0", "tftpServerName": "tftp.example",
            "ntpServers": ["10.0.0.1"], "privateOptions": [{"option": 240, "value": "site"}],
        }}]);
        let vmi = vmi(&interfaces, &json!([{"name": "a", "pod": {}}]));
        let expected = DhcpOptions {
            boot_file: "pxelinux.0".into(),
            tftp_server: "tftp.example".into(),
            ntp: vec![[10, 0, 0, 1].into()],
            private: vec![PrivateOption { code: 240, value: "site".into() }],
        };
        assert_eq!(described(&vmi).unwrap()[0].plan.options, expected);
    }

    #[test]
    fn wrong_values_are_refused_by_their_path() {
        let cases = [
            (
                json!({"dhcpOptions": {"ntpServers": ["10.0.0.1", "x"]}}),
                "dhcpOptions.ntpServers[1]: ",
            ),
            (
                json!({"dhcpOptions": {"privateOptions": [{"option": 53, "value": "x"}]}}),
                "dhcpOptions.privateOptions[0].option: ",
            ),
            (json!({"macAddress": "02:00"}), "macAddress: "),
            (json!({"macAddress": "01:00:00:00:00:00"}), "macAddress: "),
            (json!({"ports": [{"port": 0}]}), "ports[0].port: "),
            (
                json!({"ports": (1..=1025).map(|port| json!({"port": port})).collect::<Value>()}),
                "ports: an interface has 1024 ports",
            ),
            (
                json!({"portRanges": [{"start": 1, "end": 1025, "protocol": "TCP"}]}),
                "portRanges: an interface has 1024 ports",
            ),
            (json!({"ports": [{"port": 1, "protocol": "SCTP"}]}), "ports[0].protocol: "),
        ];
        for (more, text) in cases {
            let mut interface = json!({"name": "a", "masquerade": {}});
            for (name, value) in more.as_object().unwrap() {
                interface[name] = value.clone();
            }
            let vmi = vmi(&json!([interface]), &json!([{"name": "a", "pod": {}}]));
            let error = described(&vmi).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{PATH}[0].{text}")), "{error}");
        }
        let networks = json!([{"name": "a", "pod": {"vmNetworkCIDR": "10.0.0.0/31"}}]);
        let vmi = vmi(&json!([{"name": "a", "masquerade": {}}]), &networks);
        let error = described(&vmi).unwrap_err().to_string();
        assert!(error.starts_with("spec.networks[0].pod.vmNetworkCIDR: "), "{error}");
    }
}
