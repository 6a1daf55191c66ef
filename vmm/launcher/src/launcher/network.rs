//! The guest's way to the network: the launcher's namespace, which it shows the agent, and what the agent has connected in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use corten_link::launcher::ConnectedInterface;
use corten_link::{Resolver, Role};
use corten_resources::types::VirtualMachineInstance;

use crate::log::say;
use crate::machine::InterfacePlace;
use crate::names;
use crate::prepare::hostname;

/// The network namespace of the Pod, where the system has such.
#[derive(Debug)]
pub(super) struct Namespace(Option<File>);

impl Namespace {
    /// The one that we are in.
    pub(super) fn own() -> Self {
        let opened = File::open("/proc/self/ns/net");
        if let Err(error) = &opened {
            say(&format!("the network namespace cannot be shown to the agent: {error}"));
        }
        Self(opened.ok())
    }

    /// It for a message, with its role.
    pub(super) fn shown(&self) -> (Vec<Role>, Vec<BorrowedFd<'_>>) {
        let shown = self.0.iter().map(|file| (Role::network_namespace(), file.as_fd()));
        shown.unzip()
    }
}

/// What the guest's interfaces are connected to. What the guest is told of its name, and of servers that know others, is the Pod's.
pub(super) fn places(
    vmi: &VirtualMachineInstance,
    connected: BTreeMap<String, ConnectedInterface>,
    pods: Resolver,
) -> BTreeMap<String, InterfacePlace> {
    let resolver = names::in_pod(&vmi.spec, pods);
    let place = |(name, mut interface): (String, ConnectedInterface)| {
        if let Some(addressing) = &mut interface.addressing {
            addressing.hostname = hostname(vmi);
            resolver.tell(addressing);
        }
        (name, interface.into())
    };
    connected.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use corten_link::{Addressing, Ipv4Addressing, Ipv6Addressing};
    use serde_json::json;

    use super::*;
    use crate::machine::{Resolved, plan};

    #[test]
    fn interfaces_become_the_machines_networks_and_are_told_the_pods_servers() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "first.one", "uid": "01234567-89ab-cdef-0123-456789abcdef"},
            "spec": {"subdomain": "web", "networks": [{"name": "default", "pod": {}}, {"name": "Red", "multus": {"networkName": "red"}}],
                "domain": {"memory": {"guest": "64Mi"}, "devices": {
                    "interfaces": [{"name": "default", "masquerade": {}}, {"name": "Red", "bridge": {}}]}}},
        }))
        .unwrap();
        let ipv4 = Ipv4Addressing {
            address: [10, 0, 2, 2].into(),
            prefix: 24,
            server: [10, 0, 2, 1].into(),
            gateway: None,
            routes: Vec::new(),
            dns: Vec::new(),
        };
        let ipv6 = Ipv6Addressing {
            address: "fd10:0:2::2".parse().unwrap(),
            prefix: 120,
            is_router: true,
            router_mac: None,
            dns: Vec::new(),
        };
        let addressing = Addressing { ipv4: Some(ipv4), ipv6: Some(ipv6), ..Addressing::default() };
        let first = ConnectedInterface {
            mac: [2, 0, 0, 0, 0, 7],
            pairs: 2,
            mtu: 1450,
            addressing: Some(addressing),
        };
        let second = ConnectedInterface { mac: [2; 6], pairs: 1, mtu: 9000, addressing: None };
        let pods = Resolver::parse(
            "nameserver 10.96.0.10\nnameserver fd00::10\nsearch ns.svc.cluster.local cluster.local\n",
        );
        let connected = [("default".to_owned(), first), ("Red".to_owned(), second)];
        let interfaces = places(&vmi, connected.into(), pods);

        let machine = plan(&vmi, &Resolved { interfaces, ..Resolved::default() }).unwrap().machine;
        let [first, second] = machine.networks.as_slice() else { unreachable!() };
        assert_eq!((first.mac, first.pairs, first.mtu), ([2, 0, 0, 0, 0, 7], 2, Some(1450)));
        let told = first.host.addressing.as_ref().unwrap();
        assert_eq!(told.hostname, "first-one");
        assert_eq!(told.search[0], "web.ns.svc.cluster.local");
        assert_eq!(told.ipv4.as_ref().unwrap().dns, [std::net::Ipv4Addr::new(10, 96, 0, 10)]);
        assert_eq!(told.ipv6.as_ref().unwrap().dns[0].to_string(), "fd00::10");
        assert_eq!((second.name.clone(), second.mtu), (Role::segment("Red"), Some(9000)));
        assert!(second.host.addressing.is_none());
    }

    #[test]
    fn own_namespace_is_shown_under_its_role() {
        let namespace = Namespace::own();
        let (roles, descriptors) = namespace.shown();
        assert_eq!((roles, descriptors.len()), (vec![Role::network_namespace()], 1));
    }
}
