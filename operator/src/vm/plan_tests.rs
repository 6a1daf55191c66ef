//! The life of a VirtualMachine, step by step.

use super::*;
use crate::vm::testing::{VMI_UID, ended, going, running, starting, vm};
use crate::vm::volumes::VolumeState;
use crate::vmi::Severity;
use crate::vmi::testing::now;
use corten_resources::types::ConditionStatus;
use serde_json::{Value, json};

fn own(vmi: VirtualMachineInstance) -> Observed {
    Observed { instance: Instance::Own(Arc::new(vmi)), ..Observed::default() }
}

fn absent() -> Observed {
    Observed::default()
}

fn printed(plan: &Plan) -> &str {
    plan.status.as_ref().expect("the status changes").printable_status.as_deref().unwrap()
}

fn failure(plan: &Plan) -> Option<(&str, &str)> {
    let status = plan.status.as_ref().expect("the status changes");
    let condition = conditions::get(&status.conditions, "Failure")?;
    assert_eq!(condition.status, ConditionStatus::True);
    Some((condition.reason.as_deref().unwrap(), condition.message.as_deref().unwrap()))
}

/// The object with the status that was planned.
fn after(vm: &VirtualMachine, plan: &Plan) -> VirtualMachine {
    let mut vm = vm.clone();
    if let Some(status) = &plan.status {
        vm.status = status.as_ref().clone();
    }
    vm
}

/// One that is being deleted, with these finalizers.
fn deleted(finalizers: &Value) -> VirtualMachine {
    vm("Always", |vm| {
        vm["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        vm["metadata"]["finalizers"] = finalizers.clone();
    })
}

#[test]
fn a_new_machine_gets_finalizer_instance_and_status_at_once() {
    let vm = vm("Always", |vm| vm["metadata"]["finalizers"] = json!([]));
    let plan = plan(&vm, &absent(), now(0));
    assert_eq!(plan.vm.as_ref().unwrap().finalizers(), [VM_FINALIZER]);
    let (vmi, revision) = &**plan.create.as_ref().unwrap();
    assert_eq!(vmi.name_any(), "first");
    assert_eq!(vmi.status.virtual_machine_revision_name, Some(revision.name_any()));
    assert_eq!(printed(&plan), "Starting");
    let status = plan.status.as_ref().unwrap();
    assert_eq!((status.created, status.ready), (Some(true), None));
    assert_eq!(status.run_strategy.as_deref(), Some("Always"));
    assert_eq!((status.observed_generation, status.desired_generation), (Some(3), Some(3)));
    assert!(plan.delete.is_none() && plan.notices.is_empty());
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    let vmi = running(|_| ());
    let first = vm("Always", |_| ());
    let settled = after(&first, &plan(&first, &own(vmi.clone()), now(40)));
    let plan = plan(&settled, &own(vmi), now(41));
    assert!(plan.vm.is_none() && plan.status.is_none() && plan.create.is_none());
    assert!(plan.delete.is_none() && plan.again.is_none() && plan.notices.is_empty());
    assert_eq!(settled.status.printable_status.as_deref(), Some("Running"));
    assert_eq!(settled.status.ready, Some(true));
}

#[test]
fn a_halted_machine_stops_what_runs_and_says_so() {
    let vm = vm("Halted", |_| ());
    let stop = plan(&vm, &own(running(|_| ())), now(0));
    assert_eq!(stop.delete.as_ref().unwrap().metadata.uid.as_deref(), Some(VMI_UID));
    assert_eq!(printed(&stop), "Stopping");
    let gone = plan(&after(&vm, &stop), &absent(), now(1));
    assert!(gone.create.is_none());
    assert_eq!(printed(&gone), "Stopped");
    assert_eq!(gone.status.unwrap().created, None);
}

#[test]
fn one_that_ends_under_always_is_deleted_and_made_again() {
    let vm = vm("Always", |_| ());
    let lasted = ended(Phase::Failed, |vmi| {
        vmi["status"]["phaseTransitionTimestamps"] = json!([
            crate::vm::testing::transition(Phase::Running, 0),
            crate::vm::testing::transition(Phase::Failed, 100)
        ]);
    });
    let stop = plan(&vm, &own(lasted), now(101));
    assert!(stop.delete.is_some());
    assert_eq!(stop.status.as_ref().unwrap().start_failure, None);
    let again = plan(&after(&vm, &stop), &absent(), now(102));
    assert!(again.create.is_some());
}

#[test]
fn one_that_never_ran_is_noted_before_it_is_deleted_and_made_again_after_a_pause() {
    let vm = vm("Always", |_| ());
    let stop = plan(&vm, &own(ended(Phase::Failed, |_| ())), now(0));
    assert!(stop.delete.is_some());
    assert_eq!(printed(&stop), "CrashLoopBackOff");
    let failure = stop.status.as_ref().unwrap().start_failure.clone().unwrap();
    assert_eq!(failure.last_failed_vmi_uid.as_deref(), Some(VMI_UID));

    let waiting = after(&vm, &stop);
    let wait = plan(&waiting, &absent(), now(1));
    assert!(wait.create.is_none());
    let due = wait.again.unwrap().as_secs();
    assert!((9..=14).contains(&due), "{due}");
    assert_eq!(printed(&wait), "CrashLoopBackOff");

    let start = plan(&after(&waiting, &wait), &absent(), now(15));
    assert!(start.create.is_some());
    assert_eq!(printed(&start), "Starting");
    assert_eq!(start.status.as_ref().unwrap().start_failure, Some(failure), "until it lasts");
}

#[test]
fn the_count_of_failures_is_looked_at_again_when_the_instance_has_lasted() {
    let vm = vm("Always", |vm| vm["status"]["startFailure"] = json!({ "consecutiveFailCount": 2 }));
    let early = plan(&vm, &own(running(|_| ())), now(10));
    assert_eq!(early.again, Some(Duration::from_secs(20)));
    let lasting = plan(&vm, &own(running(|_| ())), now(30));
    assert_eq!(lasting.status.unwrap().start_failure, None);
    assert_eq!(lasting.again, None);
}

#[test]
fn a_failed_run_is_rerun_and_a_successful_one_stays_to_be_looked_at() {
    let vm = vm("RerunOnFailure", |vm| vm["status"]["runStrategy"] = json!("RerunOnFailure"));
    let stop = plan(&vm, &own(ended(Phase::Failed, |_| ())), now(0));
    assert!(stop.delete.is_some());
    let rerun = plan(&after(&vm, &stop), &absent(), now(60));
    assert!(rerun.create.is_some());
    assert!(rerun.status.unwrap().state_change_requests.is_empty(), "served with the start");

    let over = plan(&vm, &own(ended(Phase::Succeeded, |_| ())), now(0));
    assert!(over.delete.is_none() && over.create.is_none());
    assert_eq!(printed(&over), "Stopped");
}

#[test]
fn once_is_once() {
    let new = vm("Once", |_| ());
    let start = plan(&new, &absent(), now(0));
    assert!(start.create.is_some());
    let started = after(&new, &start);
    assert_eq!(started.status.run_strategy.as_deref(), Some("Once"));
    let over = plan(&started, &own(ended(Phase::Failed, |_| ())), now(1));
    assert!(over.delete.is_none() && over.create.is_none());
    let gone = plan(&after(&started, &over), &absent(), now(2));
    assert!(gone.create.is_none(), "also after somebody deleted it");
}

#[test]
fn a_stop_is_served_when_the_instance_is_on_its_way_out() {
    let asked = vm("Manual", |vm| {
        vm["status"] = json!({ "runStrategy": "Manual",
            "stateChangeRequests": [{ "action": "Stop", "uid": VMI_UID }] });
    });
    let stop = plan(&asked, &own(running(|_| ())), now(0));
    assert!(stop.delete.is_some());
    let waiting = after(&asked, &stop);
    assert_eq!(waiting.status.state_change_requests.len(), 1);
    let served = plan(&waiting, &own(going(&running(|_| ()))), now(1));
    assert!(served.delete.is_none());
    assert!(served.status.unwrap().state_change_requests.is_empty());
}

#[test]
fn a_paused_start_of_a_halted_machine_makes_it_always() {
    let requests = json!([{ "action": "Start", "data": { "paused": "true" } }]);
    let halted = vm("Halted", |vm| vm["status"]["stateChangeRequests"] = requests.clone());
    let change = plan(&halted, &absent(), now(0));
    let mut wanted = *change.vm.unwrap();
    assert_eq!(wanted.spec.run_strategy.as_deref(), Some("Always"));
    assert!(change.create.is_none() && change.status.is_none());
    wanted.status = halted.status;
    let (vmi, _) = *plan(&wanted, &absent(), now(1)).create.unwrap();
    assert_eq!(vmi.spec.start_strategy.as_deref(), Some("Paused"));

    let old = vm("Halted", |vm| {
        vm["spec"] = json!({ "running": false, "template": vm["spec"]["template"] });
        vm["status"]["stateChangeRequests"] = requests;
    });
    let wanted = plan(&old, &absent(), now(0)).vm.unwrap();
    assert_eq!((wanted.spec.running, wanted.spec.run_strategy), (Some(true), None));
}

#[test]
fn somebody_elses_instance_of_the_name_is_told_and_not_touched() {
    let foreign = Observed {
        instance: Instance::Foreign("it belongs to no VirtualMachine".to_owned()),
        ..Observed::default()
    };
    let always = vm("Always", |_| ());
    let stuck = plan(&always, &foreign, now(0));
    assert!(stuck.create.is_none() && stuck.delete.is_none() && stuck.adopt.is_none());
    let (reason, message) = failure(&stuck).unwrap();
    assert_eq!(reason, "FailedCreate");
    assert!(message.contains("VirtualMachineInstance first is there already"), "{message}");
    assert_eq!(stuck.notices.len(), 1);
    assert_eq!(stuck.notices[0].severity, Severity::Warning);
    assert_eq!(printed(&stuck), "Stopped");
    let again = plan(&after(&always, &stuck), &foreign, now(1));
    assert!(again.notices.is_empty() && again.status.is_none(), "it is told once");

    let halted = plan(&vm("Halted", |_| ()), &foreign, now(0));
    assert_eq!(failure(&halted), None, "it is in nobody's way");
}

#[test]
fn an_orphan_of_the_name_is_adopted_before_anything_is_done_to_it() {
    let vmi = running(|vmi| vmi["metadata"]["ownerReferences"] = json!([]));
    let observed = Observed { instance: Instance::Orphan(Arc::new(vmi)), ..Observed::default() };
    for strategy in ["Always", "Halted"] {
        let plan = plan(&vm(strategy, |_| ()), &observed, now(0));
        assert!(plan.adopt.is_some() && plan.delete.is_none() && plan.create.is_none());
        assert_eq!(printed(&plan), "Running");
    }
}

#[test]
fn a_strategy_that_is_not_served_is_told_by_its_path_and_nothing_is_done() {
    let vm = vm("WaitAsReceiver", |_| ());
    for observed in [absent(), own(running(|_| ()))] {
        let plan = plan(&vm, &observed, now(0));
        assert!(plan.create.is_none() && plan.delete.is_none());
        assert!(failure(&plan).unwrap().1.starts_with("spec.runStrategy: "));
    }
}

#[test]
fn without_the_importer_templates_of_data_volumes_are_told_by_their_path() {
    let vm = vm("Always", |vm| {
        vm["spec"]["dataVolumeTemplates"] = json!([{ "metadata": { "name": "root" }, "spec": {} }]);
    });
    let observed = Observed { volumes: Volumes::NoImporter, ..Observed::default() };
    let plan = plan(&vm, &observed, now(0));
    assert!(plan.create.is_none());
    assert!(failure(&plan).unwrap().1.starts_with("spec.dataVolumeTemplates: "));
    assert_eq!(plan.again, Some(volumes::ASK_AGAIN));
    assert_eq!(plan.status.unwrap().run_strategy.as_deref(), Some("Always"));
}

#[test]
fn the_instance_is_made_when_its_data_volumes_can_be_used() {
    let vm = vm("Once", |vm| {
        vm["spec"]["dataVolumeTemplates"] = json!([{ "metadata": { "name": "root" }, "spec": {} }]);
        vm["status"]["stateChangeRequests"] = json!([{ "action": "Start" }]);
    });
    let with = |phase: Option<&str>| Observed {
        volumes: Volumes::Known(vec![VolumeState {
            phase: phase.map(str::to_owned),
            claimed: false,
        }]),
        ..Observed::default()
    };
    let table = [
        (None, 1, false, "Provisioning"),
        (Some("ImportInProgress"), 0, false, "Provisioning"),
        (Some("Failed"), 0, false, "DataVolumeError"),
        (Some("WaitForFirstConsumer"), 0, true, "WaitingForVolumeBinding"),
        (Some("Succeeded"), 0, true, "Starting"),
    ];
    for (phase, made, started, word) in table {
        let plan = plan(&vm, &with(phase), now(0));
        assert_eq!(plan.volumes.len(), made, "{phase:?}");
        assert_eq!(plan.create.is_some(), started, "{phase:?}");
        assert_eq!(printed(&plan), word, "{phase:?}");
        let status = plan.status.unwrap();
        assert_eq!(status.run_strategy.is_some(), started, "{phase:?}");
        assert_eq!(status.state_change_requests.is_empty(), started, "{phase:?}");
    }
}

#[test]
fn a_halted_machine_has_its_data_volumes_made_all_the_same() {
    let vm = vm("Halted", |vm| {
        vm["spec"]["dataVolumeTemplates"] = json!([{ "metadata": { "name": "root" }, "spec": {} }]);
    });
    let volumes = Volumes::Known(vec![VolumeState::default()]);
    let plan = plan(&vm, &Observed { volumes, ..Observed::default() }, now(0));
    assert_eq!(plan.volumes.len(), 1);
    assert_eq!(printed(&plan), "Stopped");
}

#[test]
fn what_was_changed_since_the_start_is_told() {
    let changed = vm("Always", |vm| {
        vm["metadata"]["generation"] = json!(4);
        vm["spec"]["template"]["spec"]["nodeSelector"] = json!({ "zone": "b" });
    });
    let made_from = vm("Always", |_| ()).spec.template.unwrap().spec.map(Box::new);
    let observed = Observed { made_from, ..own(running(|_| ())) };
    let plan = plan(&changed, &observed, now(0));
    let status = plan.status.unwrap();
    let condition = conditions::get(&status.conditions, "RestartRequired").unwrap();
    assert_eq!(condition.status, ConditionStatus::True);
    assert!(condition.message.as_ref().unwrap().contains("spec.template.spec.nodeSelector"));
    assert_eq!((status.observed_generation, status.desired_generation), (Some(3), Some(4)));
    assert!(plan.delete.is_none());
}

#[test]
fn a_machine_that_is_deleted_waits_for_its_instance() {
    let vm = deleted(&json!([VM_FINALIZER]));
    let stop = plan(&vm, &own(running(|_| ())), now(0));
    assert!(stop.delete.is_some() && stop.vm.is_none());
    assert_eq!(printed(&stop), "Terminating");
    let wait = plan(&vm, &own(going(&running(|_| ()))), now(1));
    assert!(wait.delete.is_none() && wait.vm.is_none());
    let gone = plan(&vm, &absent(), now(2));
    assert!(gone.vm.unwrap().finalizers().is_empty());
    assert!(gone.create.is_none() && gone.status.is_none());
}

#[test]
fn a_machine_that_is_deleted_and_leaves_its_instance_does_not_touch_it() {
    let vm = deleted(&json!([VM_FINALIZER, "orphan"]));
    let leave = plan(&vm, &own(running(|_| ())), now(0));
    assert!(leave.delete.is_none());
    assert_eq!(leave.vm.unwrap().finalizers(), ["orphan"]);
    let left = running(|vmi| vmi["metadata"]["ownerReferences"] = json!([]));
    let orphan = Observed { instance: Instance::Orphan(Arc::new(left)), ..Observed::default() };
    let vm = deleted(&json!([VM_FINALIZER]));
    let released = plan(&vm, &orphan, now(1));
    assert!(released.delete.is_none() && released.adopt.is_none() && released.vm.is_some());
}

#[test]
fn a_machine_that_others_still_hold_is_left_alone() {
    let plan = plan(&deleted(&json!(["other/one"])), &own(starting()), now(0));
    assert!(plan.vm.is_none() && plan.delete.is_none() && plan.status.is_none());
}

#[test]
fn a_creation_that_was_refused_leaves_request_and_strategy_as_they_were() {
    let asked =
        vm("Once", |vm| vm["status"]["stateChangeRequests"] = json!([{ "action": "Start" }]));
    let start = plan(&asked, &absent(), now(0));
    let problem = Problem { reason: "FailedCreate", message: "over quota".to_owned() };
    let status = status::not_made(&asked, start.status.as_ref().unwrap(), &problem, now(0));
    assert_eq!((status.run_strategy, status.state_change_requests.len()), (None, 1));
    assert_eq!(status.created, None);
    let told = conditions::get(&status.conditions, "Failure").unwrap();
    assert_eq!(told.message.as_deref(), Some("over quota"));
    assert_eq!(status.printable_status.as_deref(), Some("Starting"), "it is tried again");
}
