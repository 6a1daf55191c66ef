//! A launcher that runs while its VM does not: is there somebody who would start it? Pure.
//!
//! What the node's agent knows of it (a launcher that does not listen, a network that cannot be wired) it says itself, in
//! [`NODE_SYNCHRONIZED`]. Here is what is to be seen without it: that it is not there to say anything.

use super::conditions::up_for;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{HEARTBEAT_ANNOTATION, NODE_SYNCHRONIZED};
use corten_resources::types::{ConditionStatus, Phase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use std::time::Duration;

/// How long a launcher may run before somebody asks who is to start its VM. Preparing disks is part of it.
const PATIENCE: SignedDuration = SignedDuration::from_secs(15);
/// How long an agent that reports itself may take to start a VM, or to say why it does not.
const LONGER: SignedDuration = SignedDuration::from_secs(60);
/// Agents report each minute.
const SILENT_AFTER: SignedDuration = SignedDuration::from_secs(180);

/// No agent has ever spoken for the node.
const NO_AGENT: &str = "NodeAgentMissing";
/// The agent has not reported for a while.
const SILENT: &str = "NodeAgentSilent";
/// It reports, and says nothing of this VM.
const NO_LINK: &str = "LinkNotReady";

/// Why the VM of a launcher that runs has not been started, if that is to be seen. `node` is its node.
pub(super) fn hindrance(
    vmi: &VirtualMachineInstance,
    pod: &Pod,
    node: Option<&Node>,
    now: Timestamp,
) -> Option<(&'static str, String)> {
    let up = waits(vmi, pod, now).filter(|up| *up >= PATIENCE)?;
    let node = node?;
    let name = node.name_any();
    let pods = format!(
        "kubectl get pods -A -l kubevirt.io=virt-handler --field-selector spec.nodeName={name}"
    );
    let Some(heartbeat) = node.annotations().get(HEARTBEAT_ANNOTATION) else {
        let message = format!(
            "the launcher waits for the agent of node {name}, which has never reported there: {pods}"
        );
        return Some((NO_AGENT, message));
    };
    let reported: Option<Timestamp> = heartbeat.parse().ok();
    if reported.is_none_or(|reported| now.duration_since(reported) > SILENT_AFTER) {
        let message = format!(
            "the launcher waits for the agent of node {name}, which last reported at {heartbeat}: {pods}; VMs that run there run on"
        );
        return Some((SILENT, message));
    }
    if up < LONGER || agent_tells(vmi) {
        return None;
    }
    let message = format!(
        "the launcher runs and the agent of node {name} reports itself, but has not said why the VM does not run: it may find no \
         launcher that listens, or no Pod of this VM; the logs of both tell ({pods})"
    );
    Some((NO_LINK, message))
}

/// When there may be something to tell although nothing changed.
pub(super) fn due(vmi: &VirtualMachineInstance, pod: &Pod, now: Timestamp) -> Option<Duration> {
    let up = waits(vmi, pod, now)?;
    let left = [PATIENCE, LONGER, SILENT_AFTER].into_iter().find(|time| up < *time);
    let left = left.map_or(SILENT_AFTER, |time| time.saturating_sub(up));
    Some(left.unsigned_abs())
}

/// How long a launcher has been waiting for its VM to run, if it is.
fn waits(vmi: &VirtualMachineInstance, pod: &Pod, now: Timestamp) -> Option<SignedDuration> {
    let before = matches!(vmi.status.phase, Phase::Scheduling | Phase::Scheduled);
    let going = pod.metadata.deletion_timestamp.is_some();
    // One without a time of its start has none to be judged by.
    up_for(pod, now).filter(|up| before && !going && *up < SignedDuration::MAX)
}

/// The agent says itself what is in the way.
fn agent_tells(vmi: &VirtualMachineInstance) -> bool {
    let said = vmi.status.condition(NODE_SYNCHRONIZED);
    said.is_some_and(|said| said.status == ConditionStatus::False)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::{container, minimal_vmi, node, now, pod};
    use serde_json::{Value, json};

    /// The reason that is told so many seconds after the container's start, for an agent that reported at `heartbeat`.
    fn told(
        up: i64,
        heartbeat: Option<i64>,
        change: impl FnOnce(&mut Value),
    ) -> Option<&'static str> {
        let vmi = minimal_vmi(|vmi| {
            vmi["status"] = json!({ "phase": "Scheduled" });
            change(vmi);
        });
        let running = pod(&vmi, 0, |pod| {
            pod["status"]["containerStatuses"] =
                container(&json!({ "running": { "startedAt": now(0).to_string() } }));
        });
        let node = node("node1", |node| {
            if let Some(second) = heartbeat {
                node["metadata"]["annotations"] =
                    json!({ HEARTBEAT_ANNOTATION: now(second).to_string() });
            }
        });
        hindrance(&vmi, &running, Some(&node), now(up)).map(|(reason, message)| {
            assert!(message.contains("node1"), "{message}");
            reason
        })
    }

    #[test]
    fn who_keeps_a_launcher_waiting_is_told_in_its_time() {
        let table = [
            (14, None, None),
            (15, None, Some(NO_AGENT)),
            (15, Some(-165), None),
            (16, Some(-165), Some(SILENT)),
            (59, Some(0), None),
            (60, Some(0), Some(NO_LINK)),
            (181, Some(0), Some(SILENT)),
        ];
        for (up, heartbeat, reason) in table {
            assert_eq!(told(up, heartbeat, |_| ()), reason, "{up} {heartbeat:?}");
        }
    }

    #[test]
    fn what_the_agent_says_itself_is_not_said_again() {
        let says = |status: &str| {
            let status = status.to_owned();
            told(60, Some(0), move |vmi| {
                vmi["status"]["conditions"] =
                    json!([{ "type": NODE_SYNCHRONIZED, "status": status, "reason": "NoTap" }]);
            })
        };
        assert_eq!(says("False"), None);
        assert_eq!(says("True"), Some(NO_LINK));
    }

    #[test]
    fn a_guest_that_runs_or_has_ended_waits_for_nobody() {
        for phase in ["Running", "Succeeded", "Failed", "Unknown"] {
            assert_eq!(
                told(999, None, |vmi| vmi["status"]["phase"] = json!(phase)),
                None,
                "{phase}"
            );
        }
    }

    #[test]
    fn it_is_looked_again_when_there_may_be_something_to_tell() {
        let vmi = minimal_vmi(|vmi| vmi["status"] = json!({ "phase": "Scheduling" }));
        let up = pod(&vmi, 0, |pod| {
            pod["status"]["containerStatuses"] =
                container(&json!({ "running": { "startedAt": now(0).to_string() } }));
        });
        let table = [(0, 15), (14, 1), (15, 45), (60, 120), (180, 180), (9999, 180)];
        for (at, left) in table {
            assert_eq!(due(&vmi, &up, now(at)), Some(Duration::from_secs(left)), "{at}");
        }
        assert_eq!(due(&vmi, &pod(&vmi, 0, |_| ()), now(0)), None);
    }
}
