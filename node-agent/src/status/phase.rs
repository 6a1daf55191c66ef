//! Phase Running, with the times of the phases before it that nobody wrote.

use corten_resources::types::{Phase, PhaseTransition, VirtualMachineInstanceStatus};
use jiff::Timestamp;

/// When a VM came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Its launcher answered: the container runs.
    pub scheduled: Timestamp,
    /// Its vCPUs run.
    pub running: Timestamp,
}

/// Comes to Running. The operator writes Scheduled only if the container is long up and the VM is not; what it has not
/// written is folded in here.
pub(super) fn run(status: &mut VirtualMachineInstanceStatus, times: Times) {
    let transitions = &mut status.phase_transition_timestamps;
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
    status.phase = Phase::Running;
}

fn moment(transition: &PhaseTransition) -> Option<Timestamp> {
    transition.phase_transition_timestamp.parse().ok()
}

/// As Kubernetes writes times.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn after(phase: &str, transitions: &Value) -> Value {
        let status = json!({ "phase": phase, "phaseTransitionTimestamps": transitions });
        let mut status: VirtualMachineInstanceStatus = serde_json::from_value(status).unwrap();
        let time = |text: &str| text.parse().unwrap();
        let times = Times {
            scheduled: time("2026-11-16T10:00:01.9Z"),
            running: time("2026-11-16T10:00:02.4Z"),
        };
        run(&mut status, times);
        assert_eq!(status.phase, Phase::Running);
        serde_json::to_value(&status).unwrap()["phaseTransitionTimestamps"].clone()
    }

    fn transition(phase: &str, second: u8) -> Value {
        json!({"phase": phase, "phaseTransitionTimestamp": format!("2026-11-16T10:00:{second:02}Z")})
    }

    #[test]
    fn unwritten_scheduled_is_folded_in_and_what_was_written_stays() {
        let scheduling = transition("Scheduling", 0);
        let expected = json!([scheduling, transition("Scheduled", 1), transition("Running", 2)]);
        assert_eq!(after("Scheduling", &json!([scheduling])), expected);
    }

    #[test]
    fn scheduled_that_the_operator_wrote_keeps_its_time() {
        let written = json!([transition("Scheduling", 0), transition("Scheduled", 0)]);
        let transitions = after("Scheduled", &written);
        assert_eq!(transitions[1], transition("Scheduled", 0));
        assert_eq!(transitions.as_array().unwrap().len(), 3);
    }

    #[test]
    fn phases_are_in_order_also_where_the_operators_clock_is_ahead() {
        let ahead = json!([transition("Scheduling", 0), transition("Scheduled", 7)]);
        assert_eq!(after("Scheduled", &ahead)[2], transition("Running", 7));
        let transitions = after("Scheduling", &json!([transition("Scheduling", 9)]));
        assert_eq!(transitions[1], transition("Scheduled", 9));
        assert_eq!(transitions[2], transition("Running", 9));
    }
}
