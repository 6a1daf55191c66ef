//! What is told of a VM that does not come up, takes its time to go, or has ended: each on the object, and once in an event.

use super::*;
use corten_resources::names::{GUEST_STOPPING, HEARTBEAT_ANNOTATION, SCHEDULABLE_LABEL};
use corten_resources::types::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

fn reasons(plan: &Plan) -> Vec<(Severity, &'static str)> {
    plan.notices.iter().map(|notice| (notice.severity, notice.reason)).collect()
}

fn ended_with(vmi: &VirtualMachineInstance, terminated: &Value) -> Pod {
    bound_pod(vmi, |pod| {
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["containerStatuses"] = container(&json!({ "terminated": terminated }));
    })
}

#[test]
fn each_end_has_its_word_and_what_to_do_on_the_object_and_in_an_event() {
    let said = |reason: &str, fault: Option<&str>| {
        let said = json!({ "reason": reason, "text": "what happened", "detail": "in particular", "fault": fault });
        said.to_string()
    };
    let table = [
        (0, said("powered-off", None), "PoweredOff", ""),
        (80, said("killed", None), "Killed", "in particular"),
        (81, said("panicked", None), "Panicked", "Pod's log"),
        (82, said("triple-fault", None), "TripleFault", "Pod's log"),
        (83, said("internal-error", None), "InternalError", "Pod's log"),
        (84, said("not-started", None), "NotStarted", "Pod's log"),
        (84, said("not-started", Some("invalid-spec")), "InvalidSpec", "correct the field"),
        (84, said("not-started", Some("disk-missing")), "DiskMissing", "disk.img"),
        (84, said("not-started", Some("image-without-disk")), "ImageWithoutDisk", "/disk"),
        (84, said("not-started", Some("disk-in-use")), "DiskInUse", "shareable"),
        (84, said("not-started", Some("no-room-for-disk")), "NoRoomForDisk", "more room"),
        (84, said("not-started", Some("volume-unusable")), "VolumeUnusable", "in particular"),
        (84, said("not-started", Some("kernel-missing")), "KernelMissing", "kernelPath"),
        (84, said("not-started", Some("kernel-unusable")), "KernelUnusable", "bzImage"),
        (84, said("not-started", Some("initrd-unusable")), "InitrdUnusable", "in particular"),
        (84, said("not-started", Some("command-line-too-long")), "CommandLineTooLong", ""),
        (84, said("not-started", Some("guest-memory-too-small")), "GuestMemoryTooSmall", "guest"),
        (84, said("not-started", Some("dismissed")), "Dismissed", "in particular"),
        (85, said("forbidden", None), "Forbidden", "report it"),
        (86, said("crashed", None), "Crashed", "report it"),
    ];
    for (status, message, reason, words) in table {
        let vmi = running();
        let end = ended_with(&vmi, &json!({ "exitCode": status, "message": message }));
        let plan = planned(&vmi, Some(end), 9);
        let ended = after(&plan);
        assert_eq!(ended.status.reason.as_deref(), Some(reason));
        let told = condition(ended, "Ended");
        assert_eq!((told.0.as_str(), told.1.as_str()), ("True", reason));
        assert!(told.2.contains(words), "{reason}: {}", told.2);
        assert_eq!(condition(ended, "Ready").1, "GuestNotRunning");
        let severity = if status == 0 { Severity::Normal } else { Severity::Warning };
        assert_eq!(reasons(&plan), [(severity, "Stopped")], "{reason}");
        assert!(
            plan.notices[0].message.contains(reason) && plan.notices[0].message.contains(words)
        );
    }
}

#[test]
fn memory_that_ran_out_is_told_by_what_kubelet_saw() {
    let vmi = running();
    let end = ended_with(&vmi, &json!({ "exitCode": 137, "reason": "OOMKilled" }));
    let plan = planned(&vmi, Some(end), 9);
    let told = condition(after(&plan), "Ended");
    assert_eq!(told.1, "OOMKilled");
    assert!(told.2.contains("limits.memory"), "{}", told.2);
}

#[test]
fn the_consoles_last_lines_stay_when_the_pod_is_gone() {
    let vmi = running();
    let said = json!({ "reason": "panicked", "text": "the guest's kernel panicked",
        "console": "[    1.0] Run /init\n[    1.1] Kernel panic - not syncing\n" });
    let end = ended_with(&vmi, &json!({ "exitCode": 81, "message": said.to_string() }));
    let plan = planned(&vmi, Some(end), 9);
    let lines = "\nThe last lines of its console:\n[    1.0] Run /init\n[    1.1] Kernel panic - not syncing";
    assert!(condition(after(&plan), "Ended").2.ends_with(lines));
    assert!(plan.notices[0].message.ends_with(lines), "{}", plan.notices[0].message);
    assert!(!condition(after(&plan), "Ready").2.contains("Run /init"));
    let gone = planned(after(&plan), None, 60);
    assert!(gone.vmi.is_none() && gone.notices.is_empty());
}

#[test]
fn that_no_node_offers_kvm_is_told_once_and_no_more_when_one_does() {
    let vmi = accepted(|_| ());
    let unplaced = || {
        let pod = pod(&vmi, 0, |pod| {
            pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False",
                "reason": "Unschedulable", "message": "0/1 nodes are available" }]);
        });
        Some(Arc::new(pod))
    };
    let with = |vmi: &VirtualMachineInstance, label: &str, devices: &str| {
        let node = node("node1", |node| {
            node["metadata"]["labels"] = json!({ SCHEDULABLE_LABEL: label });
            node["status"]["allocatable"] = json!({ "devices.kubevirt.io/kvm": devices });
        });
        let observed =
            Observed { pod: unplaced(), all_nodes: vec![Arc::new(node)], ..Observed::default() };
        plan(vmi, &observed, &settings(), now(1))
    };
    let without = with(&vmi, "false", "0");
    let told = condition(after(&without), "PodScheduled");
    assert_eq!((told.0.as_str(), told.1.as_str()), ("False", "Unschedulable"));
    assert!(
        told.2.starts_with("no node offers devices.kubevirt.io/kvm: on node1: label "),
        "{}",
        told.2
    );
    assert!(told.2.ends_with("the scheduler says: 0/1 nodes are available"), "{}", told.2);
    assert_eq!(reasons(&without), [(Severity::Warning, "NoNodeWithKvm")]);
    let again = with(after(&without), "false", "0");
    assert!(again.vmi.is_none() && again.notices.is_empty());
    let better = with(after(&without), "true", "110");
    assert_eq!(condition(after(&better), "PodScheduled").2, "0/1 nodes are available");
    assert!(better.notices.is_empty());
}

#[test]
fn a_launcher_whose_agent_is_not_there_says_so_once_until_it_runs() {
    let vmi = {
        let mut vmi = bound();
        status::enter(&mut vmi, Phase::Scheduled, now(2));
        vmi
    };
    let up = |vmi: &VirtualMachineInstance| {
        bound_pod(vmi, |pod| {
            pod["status"]["phase"] = json!("Running");
            pod["status"]["containerStatuses"] =
                container(&json!({ "running": { "startedAt": now(5).to_string() } }));
        })
    };
    let early = planned(&vmi, Some(up(&vmi)), 10);
    assert!(early.vmi.is_none() && early.again.is_some());
    let late = planned(&vmi, Some(up(&vmi)), 20);
    let told = condition(after(&late), "Synchronized");
    assert_eq!((told.0.as_str(), told.1.as_str()), ("False", "NodeAgentMissing"));
    assert_eq!(reasons(&late), [(Severity::Warning, "SyncFailed")]);
    assert!(late.notices[0].message.starts_with("NodeAgentMissing: "));
    let again = planned(after(&late), Some(up(&vmi)), 30);
    assert!(again.vmi.is_none() && again.notices.is_empty());

    let silent = node("node1", |node| {
        node["metadata"]["annotations"] = json!({ HEARTBEAT_ANNOTATION: now(-200).to_string() });
    });
    let other = planned_on(after(&late), Some(up(&vmi)), Some(silent), 30);
    assert_eq!(condition(after(&other), "Synchronized").1, "NodeAgentSilent");
    assert!(other.notices.is_empty(), "it is in the way for the same time");

    let mut runs = after(&late).clone();
    status::enter(&mut runs, Phase::Running, now(40));
    let better = planned(&runs, Some(up(&vmi)), 40);
    assert!(after(&better).status.condition("Synchronized").is_none());
}

/// The same Pod, deleted at second 100 with 30 seconds for its guest.
fn asked(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = Some(Time(now(145)));
    pod.metadata.deletion_grace_period_seconds = Some(45);
    pod
}

fn stopping(message: &str) -> Condition {
    let condition = json!({ "type": GUEST_STOPPING, "status": "True", "message": message });
    serde_json::from_value(condition).unwrap()
}

#[test]
fn a_slow_stop_is_told_once_with_what_is_known_of_the_power_button() {
    let mut running = running();
    running.spec.termination_grace_period_seconds = Some(30);
    for vmi in [running.clone(), deleted(&running)] {
        let going = || Some(asked(running_pod(&vmi)));
        let early = planned(&vmi, going(), 114);
        assert!(early.notices.is_empty() && early.again.is_some());
        let slow = planned(&vmi, going(), 116);
        let told = condition(after(&slow), "Ready");
        assert_eq!((told.0.as_str(), told.1.as_str()), ("False", "SlowStop"));
        assert!(told.2.ends_with("it is killed at 2026-01-01T00:02:10Z"), "{}", told.2);
        assert_eq!(reasons(&slow), [(Severity::Normal, "SlowStop")]);

        let mut heard = after(&slow).clone();
        heard.status.conditions.push(stopping("its power button was pressed"));
        let heard = planned(&heard, going(), 120);
        assert!(condition(after(&heard), "Ready").2.contains("its power button was pressed"));
        assert!(heard.notices.is_empty());

        let stuck = planned(after(&heard), going(), 170);
        assert_eq!(condition(after(&stuck), "Ready").1, "PodNotEnding");
        assert_eq!(reasons(&stuck), [(Severity::Warning, "PodNotEnding")]);
    }
}

#[test]
fn the_end_of_what_was_deleted_is_told_and_is_no_warning() {
    let vmi = deleted(&running());
    let plan = planned(&vmi, Some(ended_pod(&vmi, 80)), 70);
    assert_eq!(condition(after(&plan), "Ended").1, "Panicked");
    assert_eq!(reasons(&plan), [(Severity::Normal, "Stopped")]);
}

#[test]
fn what_the_agent_said_was_in_the_way_goes_with_the_attempt_and_with_the_vm() {
    let mut vmi = running();
    vmi.status.conditions.push(stopping("its power button was pressed"));
    let ended = planned(&vmi, Some(ended_pod(&vmi, 0)), 9);
    assert!(after(&ended).status.condition(GUEST_STOPPING).is_none());
    let mut vmi = bound();
    vmi.status.conditions.push(stopping("its power button was pressed"));
    let rejected = bound_pod(&vmi, |pod| pod["status"] = json!({ "phase": "Failed" }));
    let next = planned(&vmi, Some(rejected), 9);
    assert!(after(&next).status.active_pods.is_empty());
    assert!(after(&next).status.condition(GUEST_STOPPING).is_none());
}
