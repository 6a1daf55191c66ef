//! Which nodes offer KVM, for a Pod that the scheduler finds no node for. Pure.

use corten_resources::names::{KVM_RESOURCE, SCHEDULABLE_LABEL};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use std::borrow::Borrow;
use std::fmt::Write;

/// More nodes of one kind are counted, not named.
const NAMED: usize = 3;

/// What the message of [`nowhere`] begins with.
pub(super) const NOWHERE: &str = "no node offers devices.kubevirt.io/kvm";

/// What keeps a node from being one that a launcher can come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// Nobody has said of it whether VMs can be put on it.
    Agent,
    /// Its agent says that they cannot.
    Kvm,
    /// Its agent says that they can, and kubelet has no devices to give.
    Devices,
}

impl Lack {
    const ALL: [Self; 3] = [Self::Agent, Self::Kvm, Self::Devices];

    /// None of a node that lacks nothing.
    fn of(node: &Node) -> Option<Self> {
        let label = node.labels().get(SCHEDULABLE_LABEL).map(String::as_str);
        match label {
            None => Some(Self::Agent),
            Some("true") => (!offers(node)).then_some(Self::Devices),
            Some(_) => Some(Self::Kvm),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Agent => {
                "no label kubevirt.io/schedulable, so no node agent has come up there (look at the Pods of the DaemonSet \
                 corten-node-agent)"
            }
            Self::Kvm => {
                "label kubevirt.io/schedulable=false, so the agent cannot use /dev/kvm (switch on the processor's virtualization, or \
                 nested virtualization where the node is a VM itself, and load the module kvm_intel or kvm_amd)"
            }
            Self::Devices => {
                "no allocatable devices.kubevirt.io/kvm, so the agent is not registered with kubelet (look at the log of its Pod of \
                 the DaemonSet corten-node-agent)"
            }
        }
    }
}

fn offers(node: &Node) -> bool {
    let status = node.status.as_ref();
    let amount = status.and_then(|status| status.allocatable.as_ref()?.get(KVM_RESOURCE));
    amount.is_some_and(|amount| amount.0 != "0")
}

/// Why a launcher can come to no node at all; none if it can come to one of these, as far as KVM goes.
pub(super) fn nowhere<N: Borrow<Node>>(nodes: &[N]) -> Option<String> {
    let lacks: Option<Vec<(Lack, String)>> = nodes
        .iter()
        .map(|node| Some((Lack::of(node.borrow())?, node.borrow().name_any())))
        .collect();
    // Of a cluster without nodes the scheduler says so.
    let lacks = lacks.filter(|lacks| !lacks.is_empty())?;
    let mut text = NOWHERE.to_owned();
    for (place, lack) in
        Lack::ALL.into_iter().filter(|lack| lacks.iter().any(|(it, _)| it == lack)).enumerate()
    {
        let mut names: Vec<_> =
            lacks.iter().filter(|(it, _)| *it == lack).map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        let between = if place == 0 { ':' } else { ';' };
        let _ = write!(text, "{between} on {}: {}", listed(&names), lack.text());
    }
    Some(text)
}

fn listed(names: &[&str]) -> String {
    let (named, more) = names.split_at(names.len().min(NAMED));
    let named = named.join(", ");
    if more.is_empty() { named } else { format!("{named} and {} more", more.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::node;
    use serde_json::json;

    fn with(name: &str, label: Option<&str>, devices: Option<&str>) -> Node {
        node(name, |node| {
            if let Some(label) = label {
                node["metadata"]["labels"] = json!({ SCHEDULABLE_LABEL: label });
            }
            if let Some(devices) = devices {
                node["status"]["allocatable"] = json!({ KVM_RESOURCE: devices, "cpu": "4" });
            }
        })
    }

    #[test]
    fn one_node_that_offers_kvm_is_enough() {
        let nodes = [with("a", None, None), with("b", Some("true"), Some("110"))];
        assert_eq!(nowhere(&nodes), None);
    }

    #[test]
    fn what_each_node_lacks_is_told() {
        let table = [
            (None, None, "no label"),
            (None, Some("110"), "no label"),
            (Some("false"), Some("0"), "kubevirt.io/schedulable=false"),
            (Some("true"), None, "not registered with kubelet"),
            (Some("true"), Some("0"), "not registered with kubelet"),
        ];
        for (label, devices, words) in table {
            let told = nowhere(&[with("a", label, devices)]).unwrap();
            assert!(told.starts_with("no node offers devices.kubevirt.io/kvm: on a: "), "{told}");
            assert!(told.contains(words), "{label:?} {devices:?}: {told}");
        }
        assert_eq!(nowhere::<Node>(&[]), None);
    }

    #[test]
    fn many_nodes_are_counted() {
        let names = ["e", "a", "d", "b", "c"];
        let mut nodes: Vec<_> = names.iter().map(|name| with(name, None, None)).collect();
        nodes.push(with("f", Some("false"), None));
        let told = nowhere(&nodes).unwrap();
        assert!(told.contains(": on a, b, c and 2 more: no label"), "{told}");
        assert!(told.contains("; on f: label"), "{told}");
    }
}
