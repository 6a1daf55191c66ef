//! The readiness gate of a launcher Pod: the guest runs and is not paused. Pure.

use super::conditions::condition;
use super::status::time;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::UNPAUSED_GATE;
use corten_resources::types::{ConditionStatus, Phase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// What the gate is to say from now on, as a condition of the Pod; nothing if it says so already, or has nothing to say
/// yet: a gate without a condition is shut.
pub(super) fn gate(vmi: &VirtualMachineInstance, pod: &Pod, now: Timestamp) -> Option<Value> {
    if vmi.status.phase != Phase::Running || !has_gate(pod) {
        return None;
    }
    let (status, reason, message) = if is_paused(vmi) {
        ("False", "Paused", "the guest is paused")
    } else {
        ("True", "NotPaused", "the guest runs")
    };
    let said = condition(pod, UNPAUSED_GATE);
    if said.is_some_and(|said| said.status == status) {
        return None;
    }
    Some(json!({
        "type": UNPAUSED_GATE,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": time(now),
    }))
}

/// The Pod is not ready, for no other reason than that kubelet has not seen yet what its gate says.
pub(super) fn is_opening(vmi: &VirtualMachineInstance, pod: &Pod) -> bool {
    let shut = condition(pod, "Ready").and_then(|ready| ready.message.as_deref());
    !is_paused(vmi) && shut.is_some_and(|message| message.contains(UNPAUSED_GATE))
}

/// Pods of an earlier release have none.
fn has_gate(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    gates.is_some_and(|gates| gates.iter().any(|gate| gate.condition_type == UNPAUSED_GATE))
}

/// Its guest stands still.
pub(crate) fn is_paused(vmi: &VirtualMachineInstance) -> bool {
    vmi.status.condition("Paused").is_some_and(|paused| paused.status == ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::{minimal_vmi, now, pod};

    fn with(phase: &str, paused: Option<&str>) -> VirtualMachineInstance {
        let conditions: Vec<_> =
            paused.iter().map(|status| json!({ "type": "Paused", "status": status })).collect();
        minimal_vmi(|vmi| vmi["status"] = json!({ "phase": phase, "conditions": conditions }))
    }

    fn saying(status: Option<&str>) -> Pod {
        let said: Vec<_> =
            status.iter().map(|it| json!({ "type": UNPAUSED_GATE, "status": it })).collect();
        pod(&minimal_vmi(|_| ()), 0, |pod| pod["status"]["conditions"] = json!(said))
    }

    #[test]
    fn the_gate_opens_when_the_guest_runs_and_shuts_when_it_is_paused() {
        for (phase, paused, said, expected) in [
            ("Scheduling", None, None, None),
            ("Scheduled", None, None, None),
            ("Running", None, None, Some("True")),
            ("Running", None, Some("True"), None),
            ("Running", Some("False"), Some("False"), Some("True")),
            ("Running", Some("True"), Some("True"), Some("False")),
            ("Running", Some("True"), None, Some("False")),
            ("Running", Some("True"), Some("False"), None),
            ("Succeeded", None, Some("True"), None),
        ] {
            let found = gate(&with(phase, paused), &saying(said), now(0));
            let found = found.as_ref().and_then(|condition| condition["status"].as_str());
            assert_eq!(found, expected, "{phase} {paused:?} {said:?}");
        }
    }

    #[test]
    fn a_pod_without_a_gate_is_left_alone() {
        let without = pod(&minimal_vmi(|_| ()), 0, |pod| pod["spec"]["readinessGates"] = json!([]));
        assert_eq!(gate(&with("Running", None), &without, now(0)), None);
    }
}
