//! Conditions and events that are news. Pure.

use std::time::Instant;

use corten_resources::names::NODE_SYNCHRONIZED;
use corten_resources::types::{Condition, VirtualMachineInstance};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::{Facts, Said};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// Whether it is a failure. Tools take every warning for one.
    pub(super) warns: bool,
    /// In one word.
    pub(super) reason: &'static str,
    /// For people.
    pub(super) message: String,
}

/// What is to be written, and what is to be told once that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) patch: Value,
    pub(super) notices: Vec<Notice>,
}

/// What the object does not say yet of these facts; none if it says all, or is no longer that of the Pod.
///
/// The patch holds the resourceVersion, so it fails if the object has changed meanwhile.
pub(super) fn report(
    vmi: &VirtualMachineInstance,
    pod_uid: &str,
    facts: &Facts,
    now: (Instant, Timestamp),
) -> Option<Report> {
    if vmi.status.phase.is_final() || !vmi.status.active_pods.contains_key(pod_uid) {
        return None;
    }
    let (mut conditions, mut notices) = (vmi.status.conditions.clone(), Vec::new());
    for (kind, said) in facts.conditions(now.0) {
        let known = conditions.iter().position(|condition| condition.kind == kind);
        match (known, said) {
            (None, None) => {}
            (Some(place), None) => drop(conditions.remove(place)),
            (None, Some(said)) => {
                notices.push(notice(kind, &said));
                let mut condition = Condition { kind: kind.to_owned(), ..Condition::default() };
                say(&mut condition, &said, now.1);
                conditions.push(condition);
            }
            (Some(place), Some(said)) => {
                let condition = &mut conditions[place];
                // What was told stays told, whoever did: the agent may have been restarted in between.
                if condition.reason.as_deref() != Some(said.reason) {
                    notices.push(notice(kind, &said));
                }
                say(condition, &said, now.1);
            }
        }
    }
    if conditions == vmi.status.conditions {
        return None;
    }
    let patch = json!({
        "metadata": { "resourceVersion": vmi.metadata.other.get("resourceVersion")? },
        "status": { "conditions": conditions },
    });
    Some(Report { patch, notices })
}

/// The time of a condition changes with its status only.
fn say(condition: &mut Condition, said: &Said, now: Timestamp) {
    if condition.status != said.status || condition.last_transition_time.is_none() {
        condition.status = said.status;
        condition.last_transition_time = Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    condition.reason = Some(said.reason.to_owned());
    condition.message = Some(said.message.clone());
}

fn notice(kind: &'static str, said: &Said) -> Notice {
    if kind == NODE_SYNCHRONIZED {
        let message = format!("{}: {}", said.reason, said.message);
        return Notice { warns: said.fails, reason: "SyncFailed", message };
    }
    Notice { warns: said.fails, reason: kind, message: said.message.clone() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corten_link::launcher::Sign;

    use super::super::Trouble;
    use super::*;

    fn vmi(phase: &str, conditions: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "v", "uid": "u", "resourceVersion": "41"},
            "status": { "phase": phase, "activePods": {"pod-1": "node1"}, "conditions": conditions },
        }))
        .unwrap()
    }

    fn at() -> (Instant, Timestamp) {
        (Instant::now() + Duration::from_secs(60), "2026-11-16T10:00:01.9Z".parse().unwrap())
    }

    fn troubled(reason: &'static str) -> Facts {
        let mut facts = Facts::default();
        facts.meet(Trouble { reason, message: "no such link".into() }, Instant::now());
        facts
    }

    /// The object after a report.
    fn applied(report: &Report) -> VirtualMachineInstance {
        vmi("Scheduled", &report.patch["status"]["conditions"])
    }

    #[test]
    fn news_is_written_beside_what_others_say_and_told_once() {
        let others = json!([{ "type": "Ready", "status": "False" }]);
        let first = report(&vmi("Scheduled", &others), "pod-1", &troubled("NetworkTap"), at());
        let first = first.unwrap();
        let expected = json!({
            "metadata": {"resourceVersion": "41"},
            "status": {"conditions": [{ "type": "Ready", "status": "False" }, {
                "type": "NodeSynchronized", "status": "False", "reason": "NetworkTap", "message": "no such link",
                "lastTransitionTime": "2026-11-16T10:00:01Z",
            }]},
        });
        assert_eq!(first.patch, expected);
        let message = "NetworkTap: no such link".to_owned();
        assert_eq!(first.notices, [Notice { warns: true, reason: "SyncFailed", message }]);
        // Also by an agent that was started in between.
        assert_eq!(report(&applied(&first), "pod-1", &troubled("NetworkTap"), at()), None);

        let other = report(&applied(&first), "pod-1", &troubled("NetworkDhcp"), at()).unwrap();
        assert_eq!(other.notices.len(), 1);
        let gone = report(&applied(&first), "pod-1", &Facts::default(), at()).unwrap();
        assert_eq!(gone.patch["status"]["conditions"], others);
        assert!(gone.notices.is_empty());
    }

    #[test]
    fn a_guest_that_is_slow_or_silent_is_no_warning() {
        for (sign, reason) in [
            (Sign::ConsoleSilent { seconds: 60 }, "ConsoleSilent"),
            (Sign::PowerButton { noticed: Some(false) }, "GuestStopping"),
        ] {
            let mut facts = Facts::default();
            facts.see(sign);
            let told = report(&vmi("Running", &json!([])), "pod-1", &facts, at()).unwrap();
            assert_eq!((told.notices[0].warns, told.notices[0].reason), (false, reason));
        }
    }

    #[test]
    fn nothing_is_said_after_the_end_or_for_another_pod() {
        let facts = troubled("NetworkTap");
        for phase in ["Succeeded", "Failed"] {
            assert_eq!(report(&vmi(phase, &json!([])), "pod-1", &facts, at()), None, "{phase}");
        }
        assert_eq!(report(&vmi("Scheduled", &json!([])), "pod-2", &facts, at()), None);
    }
}
