//! What the agent writes on a VMI: that its guest runs. Pure; who writes which field is a matter of the whole system.

use corten_resources::types::{Phase, PhaseTransition, VirtualMachineInstance};
use jiff::Timestamp;
use serde_json::{Value, json};

/// When a VM came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Its launcher answered: the container runs.
    pub scheduled: Timestamp,
    /// Its vCPUs run.
    pub running: Timestamp,
}

/// The merge patch that says `vmi` runs, if that is news and ours to say.
///
/// It holds the resourceVersion, so it fails if the object has changed meanwhile. The operator writes Scheduled only if
/// the container is long up and the VM is not; what it has not written is folded in here.
pub fn running(vmi: &VirtualMachineInstance, pod_uid: &str, times: Times) -> Option<Value> {
    let status = &vmi.status;
    let before = matches!(status.phase, Phase::Pending | Phase::Scheduling | Phase::Scheduled);
    if !before || !status.active_pods.contains_key(pod_uid) {
        return None;
    }
    let mut transitions = status.phase_transition_timestamps.clone();
    for (phase, time) in [(Phase::Scheduled, times.scheduled), (Phase::Running, times.running)] {
        if transitions.iter().all(|transition| transition.phase != phase) {
            // Others write by their own clock, and when they see a thing: no phase comes before the one before it.
            let latest = transitions.iter().filter_map(moment).max();
            let phase_transition_timestamp =
                seconds(latest.map_or(time, |latest| time.max(latest)));
            transitions.push(PhaseTransition {
                phase,
                phase_transition_timestamp,
                ..PhaseTransition::default()
            });
        }
    }
    Some(json!({
        "metadata": {"resourceVersion": vmi.metadata.other.get("resourceVersion")?},
        "status": {"phase": Phase::Running, "phaseTransitionTimestamps": transitions},
    }))
}

fn moment(transition: &PhaseTransition) -> Option<Timestamp> {
    transition.phase_transition_timestamp.parse().ok()
}

/// As Kubernetes writes times.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(phase: &str, transitions: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": "first", "uid": "u", "resourceVersion": "41"},
            "status": {
                "phase": phase,
                "activePods": {"pod-1": "node1"},
                "phaseTransitionTimestamps": transitions,
            },
        }))
        .unwrap()
    }

    fn times() -> Times {
        let time = |text: &str| text.parse().unwrap();
        Times { scheduled: time("2026-11-16T10:00:01.9Z"), running: time("2026-11-16T10:00:02.4Z") }
    }

    fn transition(phase: &str, second: u8) -> Value {
        json!({"phase": phase, "phaseTransitionTimestamp": format!("2026-11-16T10:00:{second:02}Z")})
    }

    #[test]
    fn unwritten_scheduled_is_folded_in_and_what_was_written_stays() {
        let scheduling = transition("Scheduling", 0);
        let patch = running(&vmi("Scheduling", &json!([scheduling])), "pod-1", times()).unwrap();
        let transitions = json!([scheduling, transition("Scheduled", 1), transition("Running", 2)]);
        let expected = json!({
            "metadata": {"resourceVersion": "41"},
            "status": {"phase": "Running", "phaseTransitionTimestamps": transitions},
        });
        assert_eq!(patch, expected);
    }

    #[test]
    fn scheduled_that_the_operator_wrote_keeps_its_time() {
        let written = json!([transition("Scheduling", 0), transition("Scheduled", 0)]);
        let patch = running(&vmi("Scheduled", &written), "pod-1", times()).unwrap();
        let transitions = &patch["status"]["phaseTransitionTimestamps"];
        assert_eq!(transitions[1], transition("Scheduled", 0));
        assert_eq!(transitions.as_array().unwrap().len(), 3);
    }

    #[test]
    fn phases_are_in_order_also_where_the_operators_clock_is_ahead() {
        let ahead = json!([transition("Scheduling", 0), transition("Scheduled", 7)]);
        let patch = running(&vmi("Scheduled", &ahead), "pod-1", times()).unwrap();
        let transitions = &patch["status"]["phaseTransitionTimestamps"];
        assert_eq!(transitions[2], transition("Running", 7));
        let patch =
            running(&vmi("Scheduling", &json!([transition("Scheduling", 9)])), "pod-1", times());
        let transitions = &patch.unwrap()["status"]["phaseTransitionTimestamps"];
        assert_eq!(transitions[1], transition("Scheduled", 9));
        assert_eq!(transitions[2], transition("Running", 9));
    }

    #[test]
    fn nothing_is_written_twice_or_after_the_end_or_for_another_pod() {
        for phase in ["Running", "Succeeded", "Failed", "Unknown", ""] {
            assert_eq!(running(&vmi(phase, &json!([])), "pod-1", times()), None, "{phase}");
        }
        assert_eq!(running(&vmi("Scheduling", &json!([])), "pod-2", times()), None);
    }
}
