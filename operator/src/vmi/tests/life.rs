//! From its creation to its end.

use super::*;
use crate::pod::{Claims, launcher_pod};
use crate::vmi::live::pause_after;
use corten_resources::names::{LAUNCH_ATTEMPT_ANNOTATION, NODE_NAME_LABEL, VMI_FINALIZER};
use corten_resources::types::ConditionStatus;
use kube::ResourceExt;
use std::time::Duration;

#[test]
fn a_new_object_is_accepted_and_gets_its_pod_at_once() {
    let vmi = minimal_vmi(|_| ());
    let plan = planned(&vmi, None, 0);
    let wanted = after(&plan);
    assert_eq!(wanted.finalizers(), [VMI_FINALIZER]);
    assert_eq!((wanted.status.phase, wanted.status.runtime_user), (Phase::Pending, Some(107)));
    assert_eq!(
        plan.create.unwrap().name_any(),
        launcher_pod(&vmi, 0, &Claims::new(), &settings()).unwrap().name_any()
    );
    assert_eq!(plan.notices[0].reason, "SuccessfulCreate");
}

#[test]
fn an_accepted_object_without_a_pod_gets_it_without_another_write() {
    let plan = planned(&accepted(|_| ()), None, 1);
    assert!(plan.create.is_some() && plan.vmi.is_none());
}

#[test]
fn what_cannot_be_run_gets_a_condition_by_path_and_no_pod() {
    let vmi = minimal_vmi(|vmi| {
        vmi["spec"]["domain"]["cpu"] = json!({ "dedicatedCpuPlacement": true });
        vmi["spec"]["domain"]["memory"]["guest"] = json!("lots");
    });
    let plan = planned(&vmi, None, 0);
    let condition = after(&plan).status.condition("Synchronized").unwrap();
    assert_eq!(condition.status, ConditionStatus::False);
    assert_eq!(condition.reason.as_deref(), Some("FieldNotServed"));
    let message = condition.message.as_deref().unwrap();
    assert!(
        message.contains("spec.domain.cpu.dedicatedCpuPlacement: ")
            && message.contains("spec.domain.memory.guest: "),
        "{message}"
    );
    assert_eq!(after(&plan).status.phase, Phase::Pending);
    assert!(plan.create.is_none());
    assert_eq!(plan.notices, [Notice::warning("SyncFailed", message)]);

    let again = planned(after(&plan), None, 60);
    assert!(again.vmi.is_none() && again.notices.is_empty(), "it is told once");
}

#[test]
fn what_could_not_be_run_and_was_corrected_gets_its_pod() {
    let broken = minimal_vmi(|vmi| {
        vmi["spec"]["domain"]["cpu"] = json!({ "dedicatedCpuPlacement": true });
    });
    let mut vmi = after(&planned(&broken, None, 0)).clone();
    vmi.spec.domain.cpu = None;
    let plan = planned(&vmi, None, 1);
    assert!(plan.create.is_some() && plan.vmi.is_none());
    let there = planned(&vmi, Some(pod(&vmi, 0, |_| ())), 2);
    assert!(after(&there).status.condition("Synchronized").is_none());
}

#[test]
fn a_phase_of_a_later_release_is_not_overwritten() {
    let vmi = accepted(|vmi| vmi["status"]["phase"] = json!("Hibernated"));
    let plan = planned(&vmi, Some(bound_pod(&vmi, |_| ())), 1);
    assert_eq!(after(&plan).status.phase, Phase::Unknown);
    assert_eq!(
        after(&plan).status.phase_transition_timestamps,
        vmi.status.phase_transition_timestamps
    );
}

#[test]
fn a_pod_without_a_node_changes_nothing() {
    let vmi = accepted(|_| ());
    let plan = planned(&vmi, Some(pod(&vmi, 0, |_| ())), 1);
    assert!(plan.vmi.is_none() && plan.create.is_none() && plan.delete.is_empty());
}

#[test]
fn a_pod_that_fits_no_node_is_told_in_a_condition() {
    let vmi = accepted(|_| ());
    let unschedulable = pod(&vmi, 0, |pod| {
        pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes" }]);
    });
    let plan = planned(&vmi, Some(unschedulable), 1);
    let condition = after(&plan).status.condition("PodScheduled").unwrap();
    assert_eq!(
        (condition.status, condition.message.as_deref()),
        (ConditionStatus::False, Some("0/2 nodes"))
    );
    assert_eq!(after(&plan).status.phase, Phase::Pending);
}

#[test]
fn binding_writes_phase_node_label_and_active_pods_at_once() {
    let vmi = bound();
    assert_eq!(vmi.status.phase, Phase::Scheduling);
    assert_eq!(vmi.status.node_name.as_deref(), Some("node1"));
    assert_eq!(vmi.labels()[NODE_NAME_LABEL], "node1");
    assert_eq!(vmi.status.active_pods, [("pod-0".to_owned(), "node1".to_owned())].into());
    assert_eq!(vmi.status.qos_class.as_deref(), Some("Burstable"));
    assert_eq!(
        vmi.status.launcher_container_image_version.as_deref(),
        Some("corten.test/launcher:1")
    );
    assert_eq!(
        vmi.status.memory.as_ref().unwrap().memory_overhead.as_ref().unwrap().as_str(),
        "18Mi"
    );
    assert!(planned(&vmi, Some(bound_pod(&vmi, |_| ())), 2).vmi.is_none(), "and then no more");
}

#[test]
fn a_container_that_runs_before_its_guest_makes_it_scheduled() {
    let vmi = bound();
    let plan = planned(&vmi, Some(running_pod(&vmi)), 2);
    let phases: Vec<_> =
        after(&plan).status.phase_transition_timestamps.iter().map(|entry| entry.phase).collect();
    assert_eq!(phases, [Phase::Pending, Phase::Scheduling, Phase::Scheduled]);
}

#[test]
fn running_is_left_as_the_agent_wrote_it_and_becomes_ready_with_the_pod() {
    let vmi = running();
    let plan = planned(&vmi, Some(running_pod(&vmi)), 3);
    let wanted = after(&plan);
    assert_eq!(wanted.status.phase, Phase::Running);
    assert_eq!(wanted.status.condition("Ready").unwrap().status, ConditionStatus::True);
    assert_eq!(wanted.status.phase_transition_timestamps, vmi.status.phase_transition_timestamps);
    assert!(planned(wanted, Some(running_pod(&vmi)), 9).vmi.is_none(), "and then nothing changes");
}

#[test]
fn an_image_that_cannot_be_pulled_is_told_in_a_condition_that_goes_away() {
    let vmi = bound();
    let stuck = bound_pod(&vmi, |pod| {
        pod["status"]["containerStatuses"] =
            container(&json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } }));
    });
    let plan = planned(&vmi, Some(stuck), 2);
    let condition = after(&plan).status.condition("Synchronized").unwrap();
    assert_eq!(
        (condition.reason.as_deref(), condition.message.as_deref()),
        (Some("ErrImagePull"), Some("not found"))
    );
    let better = planned(after(&plan), Some(running_pod(&vmi)), 3);
    assert!(after(&better).status.condition("Synchronized").is_none());
}

#[test]
fn the_end_comes_from_exit_status_and_termination_message() {
    let vmi = running();
    let plan = planned(&vmi, Some(ended_pod(&vmi, 81)), 9);
    let wanted = after(&plan);
    assert_eq!(
        (wanted.status.phase, wanted.status.reason.as_deref()),
        (Phase::Failed, Some("Panicked"))
    );
    let ready = wanted.status.condition("Ready").unwrap();
    assert_eq!(ready.status, ConditionStatus::False);
    assert!(ready.message.as_ref().unwrap().starts_with("the guest's kernel panicked"));
    assert_eq!((plan.notices[0].severity, plan.notices[0].reason), (Severity::Warning, "Stopped"));
}

#[test]
fn a_guest_that_powered_off_has_succeeded() {
    let vmi = running();
    let plan = planned(&vmi, Some(ended_pod(&vmi, 0)), 9);
    assert_eq!(after(&plan).status.phase, Phase::Succeeded);
    assert_eq!(plan.notices[0].severity, Severity::Normal);
}

#[test]
fn nothing_comes_after_the_end() {
    let vmi = running();
    let ended = after(&planned(&vmi, Some(ended_pod(&vmi, 81)), 9)).clone();
    for pod in [None, Some(ended_pod(&vmi, 81)), Some(running_pod(&vmi))] {
        let plan = planned(&ended, pod, 20);
        assert!(
            plan.vmi.is_none()
                && plan.create.is_none()
                && plan.delete.is_empty()
                && plan.notices.is_empty()
        );
    }
}

#[test]
fn a_pod_that_vanished_with_its_node_known_is_a_failure_and_no_new_pod() {
    let plan = planned(&running(), None, 9);
    assert_eq!(
        (after(&plan).status.phase, after(&plan).status.reason.as_deref()),
        (Phase::Failed, Some("PodDeleted"))
    );
    assert!(plan.create.is_none());
}

#[test]
fn a_launcher_that_was_started_again_ends_the_object_and_is_deleted() {
    let vmi = running();
    let restarted = bound_pod(&vmi, |pod| {
        pod["status"]["phase"] = json!("Running");
        let mut statuses = container(&json!({ "running": {} }));
        statuses[0]["restartCount"] = json!(1);
        statuses[0]["lastState"] = json!({ "terminated": { "exitCode": 80 } });
        pod["status"]["containerStatuses"] = statuses;
    });
    let plan = planned(&vmi, Some(restarted), 9);
    assert_eq!(after(&plan).status.phase, Phase::Failed);
    assert_eq!(plan.delete.len(), 1);
}

#[test]
fn a_second_pod_of_the_same_name_is_never_bound() {
    let vmi = running();
    let second = bound_pod(&vmi, |pod| pod["metadata"]["uid"] = json!("another"));
    let plan = planned(&vmi, Some(second), 9);
    let ended = after(&plan);
    assert_eq!(
        (ended.status.phase, ended.status.reason.as_deref()),
        (Phase::Failed, Some("PodDeleted"))
    );
    assert_eq!(ended.status.active_pods, vmi.status.active_pods);
    assert_eq!(plan.delete.len(), 1);
}

#[test]
fn a_pod_that_was_not_admitted_makes_a_next_attempt_after_a_pause() {
    let vmi = bound();
    let rejected = || {
        bound_pod(&vmi, |pod| {
            pod["status"] = json!({ "phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no device" });
        })
    };
    let early = planned(&vmi, Some(rejected()), 0);
    assert!(early.vmi.is_none() && early.delete.is_empty());
    assert_eq!(early.again, Some(Duration::from_secs(1)));

    let due = planned(&vmi, Some(rejected()), 1);
    let wanted = after(&due);
    assert_eq!(wanted.annotations()[LAUNCH_ATTEMPT_ANNOTATION], "1");
    assert_eq!((wanted.status.phase, &wanted.status.node_name), (Phase::Scheduling, &None));
    assert!(wanted.status.active_pods.is_empty() && !wanted.labels().contains_key(NODE_NAME_LABEL));
    assert_eq!(due.delete.len(), 1);
    assert!(due.notices.iter().all(|notice| notice.severity == Severity::Normal));

    let next = planned(wanted, None, 2).create.unwrap();
    assert_eq!(
        next.name_any(),
        launcher_pod(&vmi, 1, &Claims::new(), &settings()).unwrap().name_any()
    );
    assert_ne!(next.name_any(), rejected().name_any());
}

#[test]
fn the_pod_of_the_next_attempt_is_bound_anew() {
    let mut vmi = bound();
    status::unbind(&mut vmi);
    vmi.annotations_mut().insert(LAUNCH_ATTEMPT_ANNOTATION.to_owned(), "1".to_owned());
    let next = pod(&vmi, 1, |pod| pod["spec"]["nodeName"] = json!("node2"));
    let mut observed = observed(Some(next), None);
    observed.nodes = [("node2".to_owned(), Arc::new(node("node2", |_| ())))].into();
    let plan = plan(&vmi, &observed, &settings(), now(3));
    assert_eq!(after(&plan).status.active_pods, [("pod-1".to_owned(), "node2".to_owned())].into());
    assert_eq!(after(&plan).status.phase, Phase::Scheduling);
}

#[test]
fn pods_of_earlier_attempts_are_deleted_once() {
    let mut vmi = bound();
    vmi.annotations_mut().insert(LAUNCH_ATTEMPT_ANNOTATION.to_owned(), "1".to_owned());
    let left = pod(&vmi, 0, |_| ());
    let going =
        pod(&vmi, 0, |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    let observed = |pod| Observed { earlier: vec![Arc::new(pod)], ..Observed::default() };
    assert_eq!(plan(&vmi, &observed(left), &settings(), now(3)).delete.len(), 1);
    assert_eq!(plan(&vmi, &observed(going), &settings(), now(3)).delete.len(), 0);
}

#[test]
fn pauses_grow_to_a_minute() {
    let pauses = [0, 1, 2, 5, 6, 7, u32::MAX].map(|attempt| pause_after(attempt).as_secs());
    assert_eq!(pauses, [1, 2, 4, 32, 60, 60, 60]);
}

#[test]
fn a_pod_of_somebody_else_under_the_same_name_is_not_touched() {
    let vmi = accepted(|_| ());
    let foreign =
        bound_pod(&vmi, |pod| pod["metadata"]["ownerReferences"][0]["uid"] = json!("other"));
    let plan = planned(&vmi, Some(foreign.clone()), 1);
    assert!(after(&plan).status.active_pods.is_empty() && plan.delete.is_empty());
    let condition = after(&plan).status.condition("Synchronized").unwrap();
    assert_eq!(condition.reason.as_deref(), Some("FailedCreate"));

    let deletion = planned(&deleted(&vmi), Some(foreign), 2);
    assert!(deletion.delete.is_empty() && after(&deletion).finalizers().is_empty());
}

#[test]
fn a_pod_whose_controller_is_anything_but_this_object_is_not_bound() {
    let vmi = accepted(|_| ());
    for (field, value) in [
        ("kind", "Foo"),
        ("apiVersion", "example.com/v1"),
        ("apiVersion", "kubevirt.io.example.com/v1"),
        ("apiVersion", "v1"),
        ("name", "second"),
    ] {
        let pod =
            bound_pod(&vmi, |pod| pod["metadata"]["ownerReferences"][0][field] = json!(value));
        let plan = planned(&vmi, Some(pod), 1);
        assert!(after(&plan).status.active_pods.is_empty(), "{field} {value}");
    }
}
