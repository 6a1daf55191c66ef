//! How a launcher Pod ended, and what that says of its VirtualMachineInstance. Pure.

use super::last_words::LastWords;
use corten_resources::names::LAUNCHER_CONTAINER;
use corten_resources::types::Phase;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use std::time::Duration;

/// Exit status of a VM that was ended from outside.
const KILLED: i32 = 80;

/// The end of a VirtualMachineInstance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Succeeded or Failed.
    pub phase: Phase,
    /// In one word.
    pub reason: String,
    /// For people: what happened, and what to do.
    pub message: String,
    /// The last lines of the guest's console; empty if nobody knows them.
    pub console: String,
}

/// A Pod that came to nothing before its VM ran, for reasons that are not the VM's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setback {
    /// In one word: kubelet's, the scheduler's, or whoever's it was.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// The launcher's container, as kubelet reports it.
pub(super) fn container(pod: &core::Pod) -> Option<&core::ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == LAUNCHER_CONTAINER)
}

fn terminated(pod: &core::Pod) -> Option<&core::ContainerStateTerminated> {
    container(pod)?.state.as_ref()?.terminated.as_ref()
}

/// How the container ended the first time. kubelet starts it again when its image was changed, whatever the Pod's restart
/// policy says; the VM is over by then.
fn terminated_before(pod: &core::Pod) -> Option<&core::ContainerStateTerminated> {
    container(pod)?.last_state.as_ref()?.terminated.as_ref()
}

fn is_terminal(pod: &core::Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Nothing of the Pod runs any more, and nothing will.
pub(super) fn has_ended(pod: &core::Pod) -> bool {
    is_terminal(pod) || terminated(pod).is_some()
}

/// Whether a Pod that has ended is no end of its VirtualMachineInstance but the reason for a next attempt: the guest has
/// not run, and that was not its doing. The device plugin was away, what the scheduler saw was no longer so, a more
/// important Pod needed the room, the node went. kubelet never tries again.
pub(super) fn setback(pod: &core::Pod, phase: Phase) -> Option<Setback> {
    let before =
        matches!(phase, Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::Scheduled);
    if !before || !has_ended(pod) {
        return None;
    }
    let status = pod.status.as_ref();
    let disruption = disruption(pod);
    let (reason, message) = if ever_ran(pod) {
        // It ran, the VM did not: only whoever ended it from outside excuses it.
        let (reason, message) = disruption.filter(|_| !ended_by_itself(pod))?;
        (Some(reason.to_owned()), Some(message.to_owned()))
    } else {
        // What the runtime could not start tells why itself.
        let unstarted = terminated(pod);
        let reason = status.and_then(|status| status.reason.clone());
        let reason = reason.or_else(|| disruption.map(|(reason, _)| reason.to_owned()));
        let message = status.and_then(|status| status.message.clone());
        let message = message.or_else(|| disruption.map(|(_, message)| message.to_owned()));
        (
            reason.or_else(|| unstarted.and_then(|end| end.reason.clone())),
            message.or_else(|| unstarted.and_then(|end| end.message.clone())),
        )
    };
    Some(Setback {
        reason: reason.unwrap_or_else(|| "PodFailed".to_owned()),
        message: message.unwrap_or_else(|| "its container was never started".to_owned()),
    })
}

/// Who ended the Pod from outside, and why: preemption, eviction, a drained or lost node.
pub(super) fn disruption(pod: &core::Pod) -> Option<(&str, &str)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let is_it = |condition: &&core::PodCondition| {
        condition.type_ == "DisruptionTarget" && condition.status == "True"
    };
    let condition = conditions.iter().find(is_it)?;
    Some((
        condition.reason.as_deref().unwrap_or("DisruptionTarget"),
        condition.message.as_deref().unwrap_or_default(),
    ))
}

/// The container has a state other than waiting. kubelet makes one up for a container that it never started, or cannot
/// find any more: that one has no time of its start. One that the runtime could not start began at the beginning of time.
fn ever_ran(pod: &core::Pod) -> bool {
    let state = container(pod).and_then(|status| status.state.as_ref());
    let is_real = |end: &core::ContainerStateTerminated| {
        let has_begun = end.started_at.as_ref().is_some_and(|time| time.0 > Timestamp::UNIX_EPOCH);
        let is_made_up = matches!(
            end.reason.as_deref(),
            Some("ContainerStatusUnknown" | "StartError" | "ContainerCannotRun")
        );
        has_begun || !is_made_up
    };
    state.is_some_and(|state| {
        state.running.is_some() || state.terminated.as_ref().is_some_and(is_real)
    }) || terminated_before(pod).is_some_and(is_real)
}

/// The launcher's exit status is that of one that was not killed.
fn ended_by_itself(pod: &core::Pod) -> bool {
    const SIGKILLED: i32 = 137;
    const SIGTERMED: i32 = 143;
    let end = terminated_before(pod).or_else(|| terminated(pod));
    end.is_some_and(|end| !matches!(end.exit_code, KILLED | SIGKILLED | SIGTERMED))
}

/// How the Pod ended, if it has. `grace` is what the guest was given to switch itself off.
pub(super) fn ending(pod: &core::Pod, grace: Duration) -> Option<Ending> {
    let disruption = disruption(pod);
    let mut ending = if let Some(end) = terminated_before(pod).or_else(|| terminated(pod)) {
        of_container(end, grace)
    } else if is_terminal(pod) {
        let status = pod.status.as_ref();
        let reason = status.and_then(|status| status.reason.clone());
        let reason = reason.or_else(|| disruption.map(|(reason, _)| reason.to_owned()));
        let reason = reason.unwrap_or_else(|| "PodFailed".to_owned());
        let message = status.and_then(|status| status.message.clone());
        let message =
            message.unwrap_or_else(|| format!("the Pod ended without its container ({reason})"));
        Ending { phase: Phase::Failed, reason, message, console: String::new() }
    } else {
        return None;
    };
    if let Some((reason, message)) = disruption {
        ending.message = format!("{}; the Pod was ended ({reason}): {message}", ending.message);
    }
    Some(ending)
}

fn of_container(end: &core::ContainerStateTerminated, grace: Duration) -> Ending {
    // When memory runs out every process of the container is killed at once: nobody is left to write a message.
    if end.reason.as_deref() == Some("OOMKilled") {
        let message = "the launcher used more memory than its Pod's limit and was killed; \
                       raise spec.domain.resources.limits.memory or leave it out";
        return Ending {
            phase: Phase::Failed,
            reason: "OOMKilled".to_owned(),
            message: message.to_owned(),
            console: String::new(),
        };
    }
    let phase = match end.exit_code {
        0 => Phase::Succeeded,
        // Without a grace period the guest was not asked first, so that its end is the one that was wanted.
        KILLED if grace.is_zero() => Phase::Succeeded,
        _ => Phase::Failed,
    };
    let text = end.message.as_deref().unwrap_or_default();
    match LastWords::read(text) {
        Some(LastWords { reason, message, console }) => {
            // The lines are what led to an end that nobody wanted.
            let console = if phase == Phase::Failed { console } else { String::new() };
            Ending { phase, reason, message, console }
        }
        // The launcher never came so far, or died of a signal: what kubelet knows has to do.
        None => Ending {
            phase,
            reason: end.reason.clone().unwrap_or_else(|| "Ended".to_owned()),
            message: match text {
                "" if end.exit_code == 137 => "the launcher was killed by SIGKILL".to_owned(),
                "" => format!("the launcher ended with status {}", end.exit_code),
                text => format!("the launcher ended with status {}: {text}", end.exit_code),
            },
            console: String::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const GRACE: Duration = Duration::from_secs(30);

    fn pod(status: &Value) -> core::Pod {
        serde_json::from_value(json!({ "status": status })).unwrap()
    }

    fn exited(terminated: &Value) -> core::Pod {
        pod(&json!({ "phase": "Failed", "containerStatuses": [{
            "name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": terminated } }] }))
    }

    fn end(terminated: &Value, grace: Duration) -> (Phase, String, String) {
        let ending = ending(&exited(terminated), grace).unwrap();
        (ending.phase, ending.reason, ending.message)
    }

    #[test]
    fn exit_status_and_termination_message_become_phase_reason_and_message() {
        let message = |reason: &str| {
            json!({ "reason": reason, "text": "it ended", "detail": "" }).to_string()
        };
        let table = [
            (0, "powered-off", GRACE, Phase::Succeeded, "PoweredOff"),
            (80, "killed", GRACE, Phase::Failed, "Killed"),
            (80, "killed", Duration::ZERO, Phase::Succeeded, "Killed"),
            (81, "panicked", GRACE, Phase::Failed, "Panicked"),
            (82, "triple-fault", Duration::ZERO, Phase::Failed, "TripleFault"),
            (84, "not-started", GRACE, Phase::Failed, "NotStarted"),
            (85, "forbidden", GRACE, Phase::Failed, "Forbidden"),
            (86, "crashed", Duration::ZERO, Phase::Failed, "Crashed"),
        ];
        for (status, said, grace, phase, reason) in table {
            let found = end(
                &json!({ "exitCode": status, "reason": "Error", "message": message(said) }),
                grace,
            );
            assert_eq!((found.0, found.1.as_str()), (phase, reason));
            assert!(found.2.starts_with("it ended"), "{}", found.2);
        }
    }

    #[test]
    fn the_detail_of_a_termination_message_is_shown() {
        let message = json!({ "reason": "not-started", "text": "the VM could not be started", "detail": "no kernel at /boot/k" });
        let found = end(&json!({ "exitCode": 84, "message": message.to_string() }), GRACE);
        assert!(found.2.starts_with("the VM could not be started: no kernel at /boot/k"));
    }

    #[test]
    fn the_last_lines_of_a_console_are_those_of_a_failure() {
        let said =
            |reason| json!({ "reason": reason, "text": "it ended", "console": "one\ntwo\n" });
        for (status, reason, console) in [(81, "panicked", "one\ntwo"), (0, "powered-off", "")] {
            let ended = exited(&json!({ "exitCode": status, "message": said(reason).to_string() }));
            assert_eq!(ending(&ended, GRACE).unwrap().console, console, "{reason}");
        }
    }

    #[test]
    fn fields_that_are_not_known_do_not_disturb() {
        let message = json!({ "reason": "panicked", "text": "it panicked", "detail": "", "console": "Kernel panic\nlast", "later": {} });
        let found = end(&json!({ "exitCode": 81, "message": message.to_string() }), GRACE);
        assert_eq!((found.0, found.1.as_str()), (Phase::Failed, "Panicked"));
    }

    #[test]
    fn without_a_termination_message_what_kubelet_knows_is_told() {
        let found = end(&json!({ "exitCode": 137, "reason": "Error" }), GRACE);
        assert_eq!(
            found,
            (Phase::Failed, "Error".into(), "the launcher was killed by SIGKILL".into())
        );
        let found = end(
            &json!({ "exitCode": 128, "reason": "StartError", "message": "exec: no such file" }),
            GRACE,
        );
        assert_eq!(
            found,
            (
                Phase::Failed,
                "StartError".into(),
                "the launcher ended with status 128: exec: no such file".into()
            )
        );
    }

    #[test]
    fn a_container_that_was_started_again_has_ended_once_and_still_runs() {
        let restarted = pod(&json!({ "phase": "Running", "containerStatuses": [{
            "name": "compute", "image": "", "imageID": "", "ready": true, "restartCount": 1,
            "state": { "running": {} }, "lastState": { "terminated": { "exitCode": 81 } } }] }));
        assert_eq!(ending(&restarted, GRACE).unwrap().phase, Phase::Failed);
        assert!(!has_ended(&restarted));
    }

    #[test]
    fn memory_that_ran_out_is_told_apart() {
        let (phase, reason, message) =
            end(&json!({ "exitCode": 137, "reason": "OOMKilled" }), GRACE);
        assert_eq!((phase, reason.as_str()), (Phase::Failed, "OOMKilled"));
        assert!(message.contains("limits.memory"), "{message}");
    }

    #[test]
    fn a_pod_that_was_evicted_has_failed() {
        let evicted =
            pod(&json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" }));
        let ending = ending(&evicted, GRACE).unwrap();
        assert_eq!(
            (ending.phase, ending.reason.as_str(), ending.message.as_str()),
            (Phase::Failed, "Evicted", "low on memory")
        );
        assert_eq!(setback(&evicted, Phase::Running), None);
    }

    #[test]
    fn a_pod_that_runs_or_waits_has_not_ended() {
        for status in [json!({}), json!({ "phase": "Pending" }), json!({ "phase": "Running" })] {
            let pod = pod(&status);
            assert!(!has_ended(&pod) && ending(&pod, GRACE).is_none());
            assert_eq!(setback(&pod, Phase::Scheduling), None);
        }
    }

    #[test]
    fn a_pod_that_its_node_did_not_admit_is_a_setback() {
        for reason in [
            "UnexpectedAdmissionError",
            "OutOfcpu",
            "OutOfdevices.kubevirt.io/kvm",
            "NodeAffinity",
            "NodeShutdown",
            "Evicted",
        ] {
            let refused = pod(&json!({ "phase": "Failed", "reason": reason, "message": "why" }));
            let found = setback(&refused, Phase::Scheduling).unwrap();
            assert_eq!((found.reason.as_str(), found.message.as_str()), (reason, "why"));
        }
    }

    fn disrupted(mut pod: core::Pod) -> core::Pod {
        let condition = json!([{ "type": "DisruptionTarget", "status": "True",
            "reason": "PreemptionByScheduler", "message": "for another" }]);
        pod.status.as_mut().unwrap().conditions = serde_json::from_value(condition).unwrap();
        pod
    }

    #[test]
    fn a_pod_that_was_ended_before_its_vm_ran_is_a_setback() {
        let made_up = json!({ "exitCode": 137, "reason": "ContainerStatusUnknown" });
        let killed = json!({ "exitCode": 80, "startedAt": "2026-01-01T00:00:00Z" });
        for pod in [
            disrupted(exited(&killed)),
            disrupted(exited(&made_up)),
            disrupted(pod(&json!({ "phase": "Failed" }))),
        ] {
            for phase in [Phase::Pending, Phase::Scheduling, Phase::Scheduled] {
                assert_eq!(setback(&pod, phase).unwrap().reason, "PreemptionByScheduler");
            }
            assert_eq!(setback(&pod, Phase::Running), None, "the VM ran");
        }
        assert!(setback(&exited(&made_up), Phase::Scheduling).is_some());
    }

    #[test]
    fn what_the_runtime_could_not_start_is_a_setback_and_tells_why() {
        let unstarted = json!({ "exitCode": 128, "reason": "StartError", "message": "no room for its cgroup",
            "startedAt": "1970-01-01T00:00:00Z" });
        let found = setback(&exited(&unstarted), Phase::Scheduling).unwrap();
        assert_eq!(
            (found.reason.as_str(), found.message.as_str()),
            ("StartError", "no room for its cgroup")
        );
        let started =
            json!({ "exitCode": 128, "reason": "StartError", "startedAt": "2026-01-01T00:00:00Z" });
        assert_eq!(setback(&exited(&started), Phase::Scheduling), None);
    }

    #[test]
    fn what_the_launcher_ended_with_by_itself_is_no_setback() {
        for status in [0, 81, 84, 86, 128] {
            let ended = exited(&json!({ "exitCode": status }));
            assert_eq!(setback(&ended, Phase::Scheduling), None, "{status}");
            assert_eq!(setback(&disrupted(ended), Phase::Scheduling), None, "{status}");
        }
    }

    #[test]
    fn who_ended_a_pod_is_told() {
        let ended = ending(&disrupted(exited(&json!({ "exitCode": 80 }))), GRACE).unwrap();
        assert!(
            ended.message.ends_with("(PreemptionByScheduler): for another"),
            "{}",
            ended.message
        );
    }

    #[test]
    fn a_pod_that_ran_is_no_setback_whatever_its_reason() {
        let mut ran = exited(&json!({ "exitCode": 137 }));
        ran.status.as_mut().unwrap().reason = Some("NodeShutdown".into());
        assert_eq!(setback(&ran, Phase::Scheduling), None);
    }
}
