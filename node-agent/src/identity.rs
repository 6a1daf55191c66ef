//! Who is behind a door: device id -> Pod -> VMI. Never what a launcher says of itself.
//!
//! kubelet says which Pod has the device; the agent's own watch gives that Pod's uid; and some VMI must list that uid
//! in `status.activePods`, which only the operator writes. Labels and owner references, which anybody who may create Pods can
//! copy, are not looked at.

use std::collections::BTreeMap;

use corten_resources::types::VirtualMachineInstance;
use thiserror::Error;

use crate::doors::DeviceId;

/// A Pod, as kubelet's PodResources names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Which Pods have which devices.
pub type Allocations = BTreeMap<DeviceId, Vec<PodName>>;

/// What is known of who has a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// kubelet names these Pods.
    Pods(Vec<PodName>),
    /// kubelet does not answer; by the ledger it is the Pod of this uid.
    Recorded(String),
    /// kubelet does not answer, and nothing was recorded.
    Unknown,
}

/// What the agent knows of the cluster: Pods of its node, and VMIs of its node.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Name of this node.
    pub node: String,
    /// Pods by name.
    pub pods: BTreeMap<PodName, KnownPod>,
    /// VMIs by uid.
    pub vmis: BTreeMap<String, VirtualMachineInstance>,
}

impl Known {
    /// The Pod of this uid.
    pub fn pod(&self, uid: &str) -> Option<&KnownPod> {
        self.pods.values().find(|pod| pod.uid == uid)
    }
}

/// What matters of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPod {
    /// What tells it from an earlier one of the same name.
    pub uid: String,
    /// Its addresses, the first one first.
    pub addresses: Vec<String>,
    /// What Multus has connected, as its annotation has it.
    pub network_status: Option<String>,
}

/// Who is behind a door.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// uid of the Pod.
    pub pod_uid: String,
    /// The VMI that the Pod may run.
    pub vmi: VirtualMachineInstance,
}

/// Why nobody is known to be behind a door. Most of it passes: watches lag behind, kubelet restarts.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unidentified {
    /// Neither kubelet nor the ledger says.
    #[error("kubelet does not say which Pod has the device")]
    NoHolder,
    /// kubelet names several Pods: one of them is over, and which one is not ours to guess.
    #[error("kubelet names several Pods for the device: {0:?}")]
    SeveralHolders(Vec<PodName>),
    /// The Pod was not seen yet.
    #[error("the Pod {0} is not known on this node yet")]
    PodNotSeen(PodName),
    /// No VMI lists the Pod.
    #[error("no VirtualMachineInstance of this node has the Pod of uid {0} in status.activePods")]
    NotListed(String),
    /// Several VMIs list the Pod, which the operator never does.
    #[error("several VirtualMachineInstances have the Pod of uid {0} in status.activePods")]
    ListedTwice(String),
}

/// Who is behind the door of a device.
pub fn identify(holder: &Holder, known: &Known) -> Result<Identity, Unidentified> {
    let (pod_uid, namespace) = match holder {
        Holder::Pods(pods) => match pods.as_slice() {
            [] => return Err(Unidentified::NoHolder),
            [pod] => {
                let seen = known.pods.get(pod);
                let seen = seen.ok_or_else(|| Unidentified::PodNotSeen(pod.clone()))?;
                (seen.uid.clone(), Some(pod.namespace.as_str()))
            }
            several => return Err(Unidentified::SeveralHolders(several.to_vec())),
        },
        Holder::Recorded(uid) => (uid.clone(), None),
        Holder::Unknown => return Err(Unidentified::NoHolder),
    };
    let lists_it = |vmi: &&VirtualMachineInstance| {
        vmi.status.active_pods.get(&pod_uid) == Some(&known.node)
            && namespace.is_none_or(|namespace| namespace == vmi.metadata.namespace)
    };
    let mut listing = known.vmis.values().filter(lists_it);
    match (listing.next(), listing.next()) {
        (Some(vmi), None) => Ok(Identity { pod_uid, vmi: vmi.clone() }),
        (None, _) => Err(Unidentified::NotListed(pod_uid)),
        (Some(_), Some(_)) => Err(Unidentified::ListedTwice(pod_uid)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str) -> PodName {
        PodName { namespace: namespace.into(), name: name.into() }
    }

    fn vmi(namespace: &str, name: &str, active_pods: &[(&str, &str)]) -> VirtualMachineInstance {
        let active: BTreeMap<_, _> = active_pods.iter().copied().collect();
        let metadata = json!({"namespace": namespace, "name": name, "uid": format!("{name}-uid")});
        let vmi = json!({"metadata": metadata, "status": {"activePods": active}});
        serde_json::from_value(vmi).unwrap()
    }

    fn known(vmis: Vec<VirtualMachineInstance>) -> Known {
        let seen = |uid: &str| KnownPod { uid: uid.into(), ..KnownPod::default() };
        let pods = [
            (pod("default", "virt-launcher-first"), seen("pod-1")),
            (pod("default", "copied-labels"), seen("pod-2")),
            (pod("other", "virt-launcher-first"), seen("pod-3")),
        ];
        let vmis = vmis.into_iter().map(|vmi| (vmi.metadata.uid.clone(), vmi)).collect();
        Known { node: "node1".into(), pods: pods.into(), vmis }
    }

    fn held_by(namespace: &str, name: &str) -> Holder {
        Holder::Pods(vec![pod(namespace, name)])
    }

    #[test]
    fn pod_that_a_vmi_lists_is_that_vmis() {
        let known = known(vec![vmi("default", "first", &[("pod-1", "node1")])]);
        let by_kubelet = identify(&held_by("default", "virt-launcher-first"), &known).unwrap();
        assert_eq!(
            (by_kubelet.pod_uid.as_str(), by_kubelet.vmi.metadata.uid.as_str()),
            ("pod-1", "first-uid")
        );
        let by_ledger = identify(&Holder::Recorded("pod-1".into()), &known).unwrap();
        assert_eq!(by_ledger, by_kubelet);
    }

    #[test]
    fn everybody_else_gets_nothing() {
        let first = vmi("default", "first", &[("pod-1", "node1")]);
        let elsewhere = vmi("default", "second", &[("pod-2", "node2")]);
        let foreign = vmi("default", "third", &[("pod-3", "node1")]);
        let twice = vmi("default", "fourth", &[("pod-1", "node1")]);
        let two_pods = vec![pod("default", "virt-launcher-first"), pod("default", "copied-labels")];
        let one = || vec![first.clone()];
        let cases = [
            ("no Pod", Holder::Pods(Vec::new()), one(), Unidentified::NoHolder),
            ("no answer", Holder::Unknown, one(), Unidentified::NoHolder),
            (
                "one of two Pods is over",
                Holder::Pods(two_pods.clone()),
                one(),
                Unidentified::SeveralHolders(two_pods),
            ),
            (
                "Pod not seen yet",
                held_by("default", "new"),
                one(),
                Unidentified::PodNotSeen(pod("default", "new")),
            ),
            (
                "copied labels and owner",
                held_by("default", "copied-labels"),
                one(),
                Unidentified::NotListed("pod-2".into()),
            ),
            (
                "listed for another node",
                held_by("default", "copied-labels"),
                vec![first.clone(), elsewhere],
                Unidentified::NotListed("pod-2".into()),
            ),
            (
                "listed by a VMI of another namespace",
                held_by("other", "virt-launcher-first"),
                vec![foreign],
                Unidentified::NotListed("pod-3".into()),
            ),
            (
                "listed twice",
                held_by("default", "virt-launcher-first"),
                vec![first.clone(), twice],
                Unidentified::ListedTwice("pod-1".into()),
            ),
            (
                "recorded, but not listed any more",
                Holder::Recorded("pod-9".into()),
                one(),
                Unidentified::NotListed("pod-9".into()),
            ),
        ];
        for (case, holder, vmis, expected) in cases {
            assert_eq!(identify(&holder, &known(vmis)), Err(expected), "{case}");
        }
    }
}
