//! Which interface of the Pod's leads to a network. Pure.
//!
//! | network | the Pod's interface |
//! |---|---|
//! | `pod`, `multus` with `default` | `eth0` |
//! | `multus` | by the Pod's annotation `k8s.v1.cni.cncf.io/network-status`: the one with the name that was asked for, or else the one that is listed for the same NetworkAttachmentDefinition, in the same order; without such an entry, the one with the name that was asked for |

use corten_net::Described;
use corten_resources::names::{attachment, pod_interface_name};
use corten_resources::types::{MultusNetwork, VirtualMachineInstance};
use corten_resources::validate::Finding;
use serde::Deserialize;

/// What every CNI plugin makes first.
const POD_INTERFACE: &str = "eth0";

/// An entry of the annotation, as far as it matters.
#[derive(Debug, Deserialize)]
struct Entry {
    /// `namespace/name` of a NetworkAttachmentDefinition.
    #[serde(default)]
    name: String,
    #[serde(default)]
    interface: String,
    #[serde(default)]
    default: bool,
}

/// The Pod's interfaces for those of the guest.
pub(super) fn uplinks(
    vmi: &VirtualMachineInstance,
    described: &[Described<'_>],
    status: Option<&str>,
) -> Result<Vec<String>, Finding> {
    // Whoever may change the Pod can write into it. What comes of it is a name of a link in that Pod, which may be missing.
    let entries: Vec<Entry> =
        status.and_then(|status| serde_json::from_str(status).ok()).unwrap_or_default();
    let mut before: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for one in described {
        let name = &one.interface.name;
        let Some((_, network)) = one.network else {
            let message = format!("there is no network {name:?} in spec.networks");
            return Err(Finding::missing("spec.domain.devices.interfaces", message));
        };
        let uplink = match network.multus.as_ref().filter(|multus| multus.default != Some(true)) {
            None => POD_INTERFACE.to_owned(),
            Some(multus) => {
                let wanted = pod_interface_name(name);
                let listed = listed(vmi, multus);
                let nth = before.iter().filter(|other| **other == listed).count();
                let uplink = found(&entries, &wanted, &listed, nth).unwrap_or(wanted);
                before.push(listed);
                uplink
            }
        };
        all.push(uplink);
    }
    Ok(all)
}

/// What a network is called for people.
pub(super) fn shown_name(described: &Described<'_>) -> String {
    let network = described.network.map(|(_, network)| network);
    let multus = network.and_then(|network| network.multus.as_ref());
    multus.map_or_else(|| described.interface.name.clone(), |multus| multus.network_name.clone())
}

/// How a network is listed in the annotation.
fn listed(vmi: &VirtualMachineInstance, multus: &MultusNetwork) -> String {
    let (namespace, name) = attachment(&multus.network_name, &vmi.metadata.namespace);
    format!("{namespace}/{name}")
}

fn found(entries: &[Entry], wanted: &str, listed: &str, nth: usize) -> Option<String> {
    if entries.iter().any(|entry| entry.interface == wanted) {
        return None;
    }
    let same = entries
        .iter()
        .filter(|entry| !entry.default && !entry.interface.is_empty() && entry.name == listed);
    same.map(|entry| entry.interface.clone()).nth(nth)
}

#[cfg(test)]
mod tests {
    use corten_net::described;
    use serde_json::{Value, json};

    use super::*;

    fn of(networks: &Value, status: Option<&Value>) -> Vec<String> {
        let name = |network: &Value| json!({"name": network["name"], "bridge": {}});
        let interfaces: Vec<Value> = networks.as_array().unwrap().iter().map(name).collect();
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "v", "uid": "u"},
            "spec": {"networks": networks, "domain": {"devices": {"interfaces": interfaces}}},
        }))
        .unwrap();
        let status = status.map(Value::to_string);
        uplinks(&vmi, &described(&vmi).unwrap(), status.as_deref()).unwrap()
    }

    #[test]
    fn networks_are_found_by_name_or_by_what_the_pod_is_said_to_have() {
        let default = json!({"name": "default", "pod": {}});
        let red = json!({"name": "red", "multus": {"networkName": "lan"}});
        let blue = json!({"name": "blue", "multus": {"networkName": "other/lan"}});
        let green = json!({"name": "green", "multus": {"networkName": "lan"}});
        let first = json!({"name": "first", "multus": {"networkName": "lan", "default": true}});
        // SHA-256 of "red", as KubeVirt has it.
        let hashed = "podb1f51a511f1";
        assert_eq!(of(&json!([default, red]), None), ["eth0", hashed]);
        assert_eq!(of(&json!([first, red]), None), ["eth0", hashed]);

        let entry = |name: &str, interface: &str| json!({"name": name, "interface": interface});
        let pods = json!({"name": "cbr0", "interface": "eth0", "default": true});
        let ordinal = json!([
            pods,
            entry("n/lan", "net1"),
            entry("other/lan", "net2"),
            entry("n/lan", "net3")
        ]);
        assert_eq!(
            of(&json!([default, green, blue, red]), Some(&ordinal)),
            ["eth0", "net1", "net2", "net3"]
        );
        let by_name = json!([pods, entry("n/lan", "net1"), entry("n/lan", hashed)]);
        assert_eq!(of(&json!([red]), Some(&by_name)), [hashed]);
        let only_other = json!([pods, entry("other/lan", "net1"), {"name": "n/lan"}]);
        assert_eq!(of(&json!([red]), Some(&only_other)), [hashed]);
        assert_eq!(of(&json!([red]), Some(&json!("no list"))), [hashed]);
    }
}
