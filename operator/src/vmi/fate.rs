//! Whether a launcher may still be running. Pure.
//!
//! A VM is started anew, and its Pod let go, only on proof of its death. That nobody answers is no proof: a node that is
//! cut off runs its VMs on, and writes to their disks.
//!
//! | proof | who gives it |
//! |---|---|
//! | the Pod never had a node, and never will | the API server: it binds no Pod that is being deleted |
//! | the container ended, or the Pod was not admitted | kubelet |
//! | the Node is deleted | whoever runs the machines |
//! | the Node has the taint `node.kubernetes.io/out-of-service:NoExecute`, and is not ready | an administrator |
//! | the node was booted since the launcher was seen running | kubelet |

use super::ending::has_ended;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};

/// By which an administrator vouches that a node is switched off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether a launcher may still be running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its node answers, and has not reported its end.
    Alive,
    /// It is not.
    Dead(Proof),
    /// Nobody can tell: its node does not answer.
    Unknown,
}

/// Why a launcher cannot be running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It never had a node, and its deletion has been asked for.
    NeverPlaced,
    /// kubelet reported that nothing of the Pod runs, or that it did not take it.
    Ended,
    /// There is no such Node any more.
    NodeDeleted,
    /// The Node is out of service.
    OutOfService,
    /// The node was booted since.
    Rebooted,
}

impl Proof {
    /// For people.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::NeverPlaced => "the Pod was deleted before it had a node",
            Self::Ended => "the Pod has ended",
            Self::NodeDeleted => "its Node was deleted",
            Self::OutOfService => "its Node was taken out of service",
            Self::Rebooted => "its node was booted again",
        }
    }

    /// The node is what was lost, not only the Pod.
    pub(super) fn is_of_node(self) -> bool {
        matches!(self, Self::NodeDeleted | Self::OutOfService | Self::Rebooted)
    }
}

/// Whether a Pod's launcher may still be running. `node` is its Node, if there is one of that name; `noted_boot_id` the
/// boot in which the launcher was seen running.
pub fn fate(pod: &Pod, node: Option<&Node>, noted_boot_id: Option<&str>) -> Fate {
    if has_ended(pod) {
        return Fate::Dead(Proof::Ended);
    }
    match (node_name(pod), pod.metadata.deletion_timestamp.is_some()) {
        (None, true) => Fate::Dead(Proof::NeverPlaced),
        (None, false) => Fate::Alive,
        (Some(_), _) => fate_on(node, noted_boot_id),
    }
}

/// The same of a launcher whose Pod is gone: all there is to tell is its node.
pub fn fate_on(node: Option<&Node>, noted_boot_id: Option<&str>) -> Fate {
    let Some(node) = node else { return Fate::Dead(Proof::NodeDeleted) };
    if is_out_of_service(node) {
        return Fate::Dead(Proof::OutOfService);
    }
    match (noted_boot_id, boot_id(node)) {
        (Some(noted), Some(present)) if noted != present => Fate::Dead(Proof::Rebooted),
        _ if answers(node) => Fate::Alive,
        _ => Fate::Unknown,
    }
}

/// The node of a Pod, once it has one.
pub(super) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// The present boot of a node.
pub(super) fn boot_id(node: &Node) -> Option<&str> {
    let info = node.status.as_ref()?.node_info.as_ref()?;
    Some(info.boot_id.as_str()).filter(|id| !id.is_empty())
}

/// Somebody vouches that it is switched off, and nothing speaks against it: a node that reports itself ready runs, whatever
/// it was marked with.
pub(super) fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let is_it = |taint: &Taint| taint.key == OUT_OF_SERVICE && taint.effect == "NoExecute";
    taints.is_some_and(|taints| taints.iter().any(is_it)) && ready(node) != Some("True")
}

/// Its kubelet reports, be it that it is not well. The control plane says Unknown once it has not for a while.
pub(super) fn answers(node: &Node) -> bool {
    ready(node).is_some_and(|status| status != "Unknown")
}

fn ready(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_ == "Ready").map(|ready| ready.status.as_str())
}

/// The boot in which the container of a Pod was seen running, if that is certain: the node's kubelet has reported on the
/// node after it reported the container's start.
///
/// What stands in the Node when the Pod comes to it is not good enough: the node may be booting just then, start the
/// Pod, and only after that report its new boot, which would look like the end of the Pod.
pub(super) fn certain_boot_id<'a>(pod: &Pod, node: &'a Node) -> Option<&'a str> {
    let state = super::ending::container(pod)?.state.as_ref()?;
    let started = state.running.as_ref()?.started_at.as_ref()?;
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|one| one.type_ == "Ready")?;
    let reported = ready.last_heartbeat_time.as_ref()?;
    (ready.status != "Unknown" && reported.0 > started.0).then(|| boot_id(node)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::{container, node, now};
    use serde_json::{Value, json};

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({ "metadata": {}, "spec": { "containers": [], "nodeName": "node1" }, "status": { "phase": "Running" } });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    fn going(pod: &mut Value) {
        pod["metadata"]["deletionTimestamp"] = json!(now(0).to_string());
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    }

    #[test]
    fn only_proof_makes_a_launcher_dead() {
        let well = || Some(node("node1", |_| ()));
        let unwell = || {
            Some(node("node1", |node| node["status"]["conditions"][0]["status"] = json!("False")))
        };
        let silent = || {
            Some(node("node1", |node| node["status"]["conditions"][0]["status"] = json!("Unknown")))
        };
        let unheard = || Some(node("node1", |node| node["status"]["conditions"] = json!([])));
        let marked = |ready: &str, effect: &str| {
            Some(node("node1", |node| {
                node["status"]["conditions"][0]["status"] = json!(ready);
                node["spec"]["taints"] =
                    json!([{ "key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": effect }]);
            }))
        };
        let drained = || {
            Some(node("node1", |node| {
                node["spec"]["taints"] =
                    json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }]);
            }))
        };
        let rebooted =
            || Some(node("node1", |node| node["status"]["nodeInfo"]["bootID"] = json!("boot-2")));
        let nameless =
            || Some(node("node1", |node| node["status"]["nodeInfo"]["bootID"] = json!("")));
        let ended = |pod: &mut Value| {
            pod["status"]["containerStatuses"] =
                container(&json!({ "terminated": { "exitCode": 0 } }));
        };
        let refused = |pod: &mut Value| {
            pod["status"] = json!({ "phase": "Failed", "reason": "UnexpectedAdmissionError" });
        };
        let waiting = |pod: &mut Value| pod["spec"]["nodeName"] = Value::Null;
        let dead = Fate::Dead;
        let table = [
            ("it runs", pod(|_| ()), well(), Fate::Alive),
            ("its kubelet is not well, but says so", pod(|_| ()), unwell(), Fate::Alive),
            ("it is being deleted", pod(going), well(), Fate::Alive),
            ("its node is drained", pod(|_| ()), drained(), Fate::Alive),
            ("its node does not tell its boot", pod(|_| ()), nameless(), Fate::Alive),
            ("it has no node yet", pod(waiting), None, Fate::Alive),
            ("its node does not answer", pod(|_| ()), silent(), Fate::Unknown),
            ("its node was never heard of", pod(|_| ()), unheard(), Fate::Unknown),
            ("deleted by force, its node does not answer", pod(going), silent(), Fate::Unknown),
            ("its container has ended", pod(ended), silent(), dead(Proof::Ended)),
            ("it was not admitted", pod(refused), well(), dead(Proof::Ended)),
            (
                "deleted before it had a node",
                pod(|pod| {
                    waiting(pod);
                    going(pod);
                }),
                None,
                dead(Proof::NeverPlaced),
            ),
            ("its Node is gone", pod(|_| ()), None, dead(Proof::NodeDeleted)),
            (
                "out of service",
                pod(|_| ()),
                marked("Unknown", "NoExecute"),
                dead(Proof::OutOfService),
            ),
            ("and unwell", pod(|_| ()), marked("False", "NoExecute"), dead(Proof::OutOfService)),
            (
                "it is said to be, but is ready",
                pod(|_| ()),
                marked("True", "NoExecute"),
                Fate::Alive,
            ),
            (
                "only new Pods stay away",
                pod(|_| ()),
                marked("Unknown", "NoSchedule"),
                Fate::Unknown,
            ),
            ("its node was booted again", pod(|_| ()), rebooted(), dead(Proof::Rebooted)),
        ];
        for (case, pod, node, expected) in table {
            assert_eq!(fate(&pod, node.as_ref(), Some("boot-1")), expected, "{case}");
        }
    }

    #[test]
    fn without_a_noted_boot_another_one_proves_nothing() {
        let rebooted = node("node1", |node| node["status"]["nodeInfo"]["bootID"] = json!("boot-2"));
        assert_eq!(fate(&pod(|_| ()), Some(&rebooted), None), Fate::Alive);
    }

    #[test]
    fn a_boot_is_certain_once_the_node_reported_after_the_container_started() {
        let at = |second| now(second).to_string();
        let started = |second| {
            pod(|pod| {
                pod["status"]["containerStatuses"] =
                    container(&json!({ "running": { "startedAt": at(second) } }));
            })
        };
        let reported = |second| {
            node("node1", |node| {
                node["status"]["conditions"][0]["lastHeartbeatTime"] = json!(at(second));
            })
        };
        assert_eq!(certain_boot_id(&started(5), &reported(6)), Some("boot-1"));
        assert_eq!(certain_boot_id(&started(5), &reported(5)), None, "in the same second");
        assert_eq!(certain_boot_id(&started(5), &reported(4)), None, "the node may be booting");
        assert_eq!(certain_boot_id(&pod(|_| ()), &reported(6)), None, "nothing runs yet");
    }
}
