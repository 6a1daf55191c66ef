//! Why a VirtualMachineInstance does not run, as its conditions and events tell it.

use super::*;
use crate::vmi::observe::Said;
use crate::vmi::start::create;
use crate::vmi::testing::{claim, claims};
use kube::ResourceExt;
use std::time::Duration;

fn with_claim() -> VirtualMachineInstance {
    accepted(|vmi| {
        vmi["spec"]["volumes"] = json!([
            { "name": "root", "persistentVolumeClaim": { "claimName": "disk" } },
            { "name": "data", "dataVolume": { "name": "imported" } },
        ]);
    })
}

/// What is done for an object that can be run and has no Pod.
fn created(vmi: &VirtualMachineInstance, observed: &Observed) -> (VirtualMachineInstance, Plan) {
    let (mut wanted, mut plan) = (vmi.clone(), Plan::default());
    create(&mut wanted, observed, &settings(), now(1), &mut plan);
    (wanted, plan)
}

fn with_phases(disk: Option<&str>, imported: Option<&str>) -> Observed {
    let given = [("disk", disk), ("imported", imported)].into_iter();
    let all = given.filter_map(|(name, phase)| {
        let phase = phase?.to_owned();
        Some(claim(name, move |claim| claim["status"]["phase"] = json!(phase)))
    });
    Observed { claims: claims(all), ..Observed::default() }
}

#[test]
fn a_missing_claim_keeps_the_pod_from_being_made_and_is_told_once() {
    let vmi = with_claim();
    let (wanted, plan) = created(&vmi, &with_phases(None, Some("Bound")));
    assert!(plan.create.is_none());
    let message = "PersistentVolumeClaim disk is not there".to_owned();
    assert_eq!(
        condition(&wanted, "Synchronized"),
        ("False".into(), "FailedPvcNotFound".into(), message.clone())
    );
    assert_eq!(condition(&wanted, "Ready").1, "PodNotExists");
    assert_eq!(plan.notices, [Notice::warning("FailedPvcNotFound", message)]);
    let (again, plan) = created(&wanted, &with_phases(None, Some("Bound")));
    assert!(again == wanted && plan.notices.is_empty());
    let (_, plan) = created(&wanted, &with_phases(Some("Bound"), Some("Bound")));
    assert!(plan.create.is_some(), "it starts once the claim is there");
}

#[test]
fn a_claim_without_a_volume_is_what_the_pod_is_made_for() {
    let (wanted, plan) = created(&with_claim(), &with_phases(Some("Pending"), Some("Bound")));
    assert!(plan.create.is_some() && wanted == with_claim());
}

#[test]
fn a_lost_claim_is_told() {
    let (wanted, plan) = created(&with_claim(), &with_phases(Some("Lost"), Some("Bound")));
    assert!(plan.create.is_none());
    assert_eq!(condition(&wanted, "Synchronized").1, "ClaimLost");
}

#[test]
fn a_claim_that_is_being_filled_is_waited_for_without_a_warning() {
    let mut observed = with_phases(Some("Bound"), None);
    let filling = claim("imported", |claim| {
        claim["metadata"]["annotations"] =
            json!({ "cdi.kubevirt.io/storage.pod.phase": "Running" });
    });
    observed.claims.extend(claims([filling]));
    let (wanted, plan) = created(&with_claim(), &observed);
    assert!(plan.create.is_none() && plan.notices.is_empty());
    assert_eq!(condition(&wanted, "Provisioning").0, "True");
    let ready = condition(&wanted, "DataVolumesReady");
    assert_eq!((ready.0.as_str(), ready.1.as_str()), ("False", "NotAllDVsReady"));
}

#[test]
fn storage_that_waits_for_its_consumer_is_told_after_a_while() {
    let vmi = with_claim();
    let waiting = || Observed {
        pod: Some(Arc::new(pod(&vmi, 0, |_| ()))),
        ..with_phases(Some("Pending"), Some("Bound"))
    };
    let early = plan(&vmi, &waiting(), &settings(), now(1));
    assert!(early.vmi.is_none());
    assert_eq!(early.again, Some(Duration::from_secs(2)));
    let late = plan(&vmi, &waiting(), &settings(), now(3));
    let told = condition(after(&late), "Provisioning");
    assert_eq!((told.0.as_str(), told.1.as_str()), ("True", "WaitForFirstConsumer"));
    let placed = Observed {
        pod: Some(Arc::new(bound_pod(&vmi, |_| ()))),
        nodes: [("node1".to_owned(), Arc::new(node("node1", |_| ())))].into(),
        ..with_phases(Some("Bound"), Some("Bound"))
    };
    let placed = plan(after(&late), &placed, &settings(), now(5));
    let vmi = after(&placed);
    assert!(vmi.status.condition("Provisioning").is_none());
    assert_eq!(condition(vmi, "DataVolumesReady").1, "AllDVsReady");
    assert_eq!(vmi.status.volume_status.len(), 2);
}

#[test]
fn what_kubelet_says_of_a_container_that_is_not_coming_is_told() {
    let vmi = bound();
    let creating = || {
        bound_pod(&vmi, |pod| {
            pod["status"]["containerStatuses"] =
                container(&json!({ "waiting": { "reason": "ContainerCreating" } }));
        })
    };
    let early = planned(&vmi, Some(creating()), 1);
    assert_eq!((early.vmi.is_none(), early.again), (true, Some(Duration::from_secs(2))));
    let said = Said { reason: "FailedMount".into(), message: "secret \"keys\" not found".into() };
    let mut stuck = observed(Some(creating()), Some(node("node1", |_| ())));
    stuck.said = Some(said);
    let told = plan(&vmi, &stuck, &settings(), now(4));
    let (status, reason, message) = condition(after(&told), "Synchronized");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "FailedMount"));
    assert!(message.contains("keys"));
    assert_eq!(told.again, Some(Duration::from_secs(10)));
    let better = planned(after(&told), Some(running_pod(&vmi)), 20);
    assert!(after(&better).status.condition("Synchronized").is_none());
}

#[test]
fn a_preempted_pod_says_so_while_it_goes_and_is_replaced_if_its_vm_never_ran() {
    let disrupted = json!([{ "type": "DisruptionTarget", "status": "True",
        "reason": "PreemptionByScheduler", "message": "for another" }]);
    let preempted = |vmi: &VirtualMachineInstance, status: Value| {
        going(bound_pod(vmi, |pod| {
            pod["status"] = status;
            pod["status"]["conditions"] = disrupted.clone();
        }))
    };
    let vmi = bound();
    let going = planned(&vmi, Some(preempted(&vmi, json!({ "phase": "Pending" }))), 5);
    let ready = condition(after(&going), "Ready");
    assert_eq!(ready.1, "PodTerminating");
    assert!(ready.2.contains("PreemptionByScheduler"), "{}", ready.2);

    let over = || json!({ "phase": "Failed", "containerStatuses": container(&json!({ "terminated": { "exitCode": 80 } })) });
    let next = planned(&vmi, Some(preempted(&vmi, over())), 5);
    assert_eq!(after(&next).annotations()["corten.kubevirt.io/launch-attempt"], "1");
    assert_eq!((after(&next).status.phase, next.release.len()), (Phase::Scheduling, 1));
    assert!(next.notices.iter().all(|notice| notice.severity == Severity::Normal));

    let ran = running();
    let ended = planned(&ran, Some(preempted(&ran, over())), 5);
    assert_eq!(after(&ended).status.phase, Phase::Failed);
    assert!(condition(after(&ended), "Ready").2.contains("PreemptionByScheduler"));
}

#[test]
fn a_pod_that_was_deleted_before_it_had_a_node_is_made_anew() {
    let vmi = accepted(|_| ());
    let gone = planned(&vmi, Some(going(pod(&vmi, 0, |_| ()))), 1);
    assert_eq!((gone.vmi.is_none(), gone.release.len()), (true, 1));
    assert!(planned(&vmi, None, 2).create.is_some());
}

#[test]
fn a_pod_that_goes_before_it_was_listed_is_given_nothing() {
    let vmi = accepted(|_| ());
    let plan = planned(&vmi, Some(going(bound_pod(&vmi, |_| ()))), 1);
    assert!(after(&plan).status.active_pods.is_empty());
    assert_eq!(after(&plan).status.phase, Phase::Pending);
}

#[test]
fn a_cluster_that_drops_image_volumes_is_told_and_tried_again() {
    let vmi = accepted(|_| ());
    let dropped = |change: fn(&mut Value)| {
        pod(&vmi, 0, |pod| {
            pod["spec"]["volumes"] = json!([{ "name": "kernel-boot", "emptyDir": {} }]);
            change(pod);
        })
    };
    let plan = planned(&vmi, Some(dropped(|pod| pod["spec"]["nodeName"] = json!("node1"))), 1);
    let told = after(&plan);
    assert_eq!(condition(told, "Synchronized").1, "ImageVolumesNotServed");
    assert!(told.status.active_pods.is_empty(), "it is given nothing");
    assert_eq!((plan.delete.len(), plan.notices.len()), (1, 1));
    let next = planned(told, Some(going(dropped(|_| ()))), 2);
    assert_eq!(next.release.len(), 1);
    assert_eq!(after(&next).annotations()["corten.kubevirt.io/launch-attempt"], "1");
}

#[test]
fn scheduled_is_written_only_if_the_guest_takes_its_time() {
    let vmi = bound();
    let up = || {
        let mut pod = running_pod(&vmi);
        pod.status.as_mut().unwrap().container_statuses = serde_json::from_value(container(
            &json!({ "running": { "startedAt": now(5).to_string() } }),
        ))
        .unwrap();
        pod
    };
    let early = planned(&vmi, Some(up()), 6);
    assert!(early.vmi.is_none(), "the agent's word may come any moment");
    assert_eq!(early.again, Some(Duration::from_secs(1)));
    assert_eq!(after(&planned(&vmi, Some(up()), 7)).status.phase, Phase::Scheduled);
}

#[test]
fn from_creation_to_ready_the_operator_writes_three_times() {
    let vmi = minimal_vmi(|vmi| {
        vmi["metadata"]["finalizers"] = json!(["kubevirt.io/foregroundDeleteVirtualMachine"]);
        vmi["status"] = json!({ "phase": "Pending", "runtimeUser": 107,
            "phaseTransitionTimestamps": [{ "phase": "Pending", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z" }] });
    });
    let first = planned(&vmi, None, 0);
    assert!(first.create.is_some() && first.vmi.is_none(), "1: the Pod");
    assert!(planned(&vmi, Some(pod(&vmi, 0, |_| ())), 0).vmi.is_none());
    let mut vmi = after(&planned(&vmi, Some(bound_pod(&vmi, |_| ())), 1)).clone();
    assert_eq!(vmi.status.phase, Phase::Scheduling, "2: its node");
    assert!(planned(&vmi, Some(bound_pod(&vmi, |_| ())), 1).vmi.is_none());
    status::enter(&mut vmi, Phase::Running, now(2));
    let last = planned(&vmi, Some(running_pod(&vmi)), 2);
    assert_eq!(condition(after(&last), "Ready").0, "True", "3, after the agent's: it is ready");
    assert!(planned(after(&last), Some(running_pod(&vmi)), 3).vmi.is_none());
}

#[test]
fn migration_is_said_to_come_later() {
    let (status, reason, _) = condition(&bound(), "LiveMigratable");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "MigrationNotServed"));
}
