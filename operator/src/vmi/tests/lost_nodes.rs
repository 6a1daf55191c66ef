//! Nodes that are lost, and what proves it.

use super::*;
use corten_resources::names::BOOT_ID_ANNOTATION;
use kube::ResourceExt;

fn silent() -> Node {
    node("node1", |node| node["status"]["conditions"][0]["status"] = json!("Unknown"))
}

fn out_of_service() -> Node {
    node("node1", |node| {
        node["status"]["conditions"][0]["status"] = json!("Unknown");
        node["spec"]["taints"] =
            json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
    })
}

fn booted_again() -> Node {
    node("node1", |node| node["status"]["nodeInfo"]["bootID"] = json!("boot-2"))
}

/// One whose launcher was seen running in the node's present boot.
fn noted() -> VirtualMachineInstance {
    let mut vmi = running();
    vmi.annotations_mut().insert(BOOT_ID_ANNOTATION.to_owned(), "boot-1".to_owned());
    vmi
}

#[test]
fn a_silent_node_changes_nothing_but_ready_and_is_told_once() {
    let vmi = running();
    for pod in [Some(running_pod(&vmi)), Some(going(running_pod(&vmi))), None] {
        let plan = planned_on(&vmi, pod.clone(), Some(silent()), 60);
        let wanted = after(&plan);
        assert_eq!(wanted.status.phase, Phase::Running);
        assert_eq!(wanted.status.active_pods, vmi.status.active_pods);
        let (status, reason, _) = condition(wanted, "Ready");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NodeUnresponsive"));
        assert_eq!(
            plan.notices.iter().map(|notice| notice.reason).collect::<Vec<_>>(),
            ["NodeUnresponsive"]
        );
        assert!(plan.create.is_none() && plan.delete.is_empty() && plan.release.is_empty());
        let again = planned_on(wanted, pod, Some(silent()), 90);
        assert!(again.vmi.is_none() && again.notices.is_empty());
    }
}

#[test]
fn a_node_that_comes_back_makes_it_ready_again() {
    let vmi = running();
    let lost = planned_on(&vmi, Some(running_pod(&vmi)), Some(silent()), 60);
    let back = planned(after(&lost), Some(running_pod(&vmi)), 90);
    assert_eq!(condition(after(&back), "Ready").0, "True");
}

#[test]
fn proof_ends_it_and_lets_its_pod_go() {
    let vmi = noted();
    let table = [
        ("deleted", None),
        ("out of service", Some(out_of_service())),
        ("booted", Some(booted_again())),
    ];
    for (case, node) in table {
        for pod in [running_pod(&vmi), going(running_pod(&vmi))] {
            let plan = planned_on(&vmi, Some(pod.clone()), node.clone(), 60);
            let wanted = after(&plan);
            assert_eq!(
                (wanted.status.phase, wanted.status.reason.as_deref()),
                (Phase::Failed, Some("NodeUnresponsive")),
                "{case}"
            );
            assert_eq!((plan.release.len(), plan.create.is_none()), (1, true), "{case}");
            assert_eq!(
                plan.delete.len(),
                usize::from(pod.metadata.deletion_timestamp.is_none()),
                "{case}"
            );
        }
        let without = planned_on(&vmi, None, node.clone(), 60);
        assert_eq!(after(&without).status.phase, Phase::Failed, "{case}");
    }
}

#[test]
fn another_boot_proves_nothing_for_a_launcher_that_was_not_seen_in_the_one_before() {
    let vmi = running();
    let plan = planned_on(&vmi, Some(running_pod(&vmi)), Some(booted_again()), 60);
    assert_eq!(after(&plan).status.phase, Phase::Running);
    assert!(plan.release.is_empty());
}

#[test]
fn the_boot_is_noted_once_it_is_certain() {
    let vmi = running();
    let started = |second| {
        bound_pod(&vmi, |pod| {
            pod["status"]["phase"] = json!("Running");
            pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
            pod["status"]["containerStatuses"] =
                container(&json!({ "running": { "startedAt": now(second).to_string() } }));
        })
    };
    let reported = node("node1", |node| {
        node["status"]["conditions"][0]["lastHeartbeatTime"] = json!(now(9).to_string());
    });
    let early = planned_on(&vmi, Some(started(9)), Some(reported.clone()), 10);
    assert!(!after(&early).annotations().contains_key(BOOT_ID_ANNOTATION));
    assert!(early.again.is_some());
    let plan = planned_on(&vmi, Some(started(5)), Some(reported), 10);
    assert_eq!(after(&plan).annotations()[BOOT_ID_ANNOTATION], "boot-1");
    assert_eq!(condition(after(&plan), "Ready").0, "True", "in the same write");
}

#[test]
fn a_node_that_is_lost_before_the_vm_ran_makes_a_next_attempt() {
    let vmi = bound();
    for pod in [Some(bound_pod(&vmi, |_| ())), None] {
        let plan = planned_on(&vmi, pod.clone(), None, 60);
        let wanted = after(&plan);
        assert_eq!(wanted.annotations()["corten.kubevirt.io/launch-attempt"], "1");
        assert!(wanted.status.active_pods.is_empty() && !wanted.status.phase.is_final());
        assert_eq!(plan.release.len(), usize::from(pod.is_some()));
    }
}

#[test]
fn an_ended_pod_is_let_go_once_its_end_is_written() {
    let vmi = running();
    let plan = planned(&vmi, Some(going(ended_pod(&vmi, 0))), 9);
    assert_eq!((after(&plan).status.phase, plan.release.len()), (Phase::Succeeded, 1));
    // The operator was stopped in between.
    let again = planned(after(&plan), Some(going(ended_pod(&vmi, 0))), 10);
    assert_eq!((again.vmi.is_none(), again.release.len()), (true, 1));
}

#[test]
fn deletion_on_a_silent_node_waits_for_proof_and_says_so() {
    let vmi = deleted(&noted());
    let plan = planned_on(&vmi, Some(running_pod(&vmi)), Some(silent()), 60);
    assert_eq!((plan.delete.len(), plan.release.len()), (1, 0));
    let (_, reason, message) = condition(after(&plan), "Ready");
    assert_eq!(reason, "NodeUnresponsive");
    assert!(message.contains("deleted once its end is proven"), "{message}");
    let waiting = after(&plan).clone();
    for pod in [Some(going(running_pod(&vmi))), None] {
        let plan = planned_on(&waiting, pod, Some(silent()), 600);
        assert!(plan.vmi.is_none() && plan.release.is_empty(), "by force or not");
    }
    for node in [None, Some(out_of_service()), Some(booted_again())] {
        let proven = planned_on(&waiting, Some(going(running_pod(&vmi))), node.clone(), 601);
        assert_eq!((after(&proven).status.phase, proven.release.len()), (Phase::Failed, 1));
        let last = planned_on(after(&proven), None, node, 602);
        assert!(after(&last).finalizers().is_empty());
    }
}
