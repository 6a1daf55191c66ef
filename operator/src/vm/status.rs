//! The status of a VirtualMachine. Pure.

use super::instance::generation_of;
use super::plan::Problem;
use super::restart;
use super::strategy::take_up;
use crate::control::conditions;
use corten_resources::cluster::{VirtualMachine, VirtualMachineInstance};
use corten_resources::names::ENDED;
use corten_resources::types::{ConditionStatus, VirtualMachineInstanceSpec, VirtualMachineStatus};
use jiff::Timestamp;

/// Condition: its guest runs, and is ready to serve.
pub(super) const READY: &str = "Ready";
/// Condition: what should be done cannot be. There only while that is so.
pub(super) const FAILURE: &str = "Failure";
/// Condition: it was changed, and the instance that runs is not what it says. There only while that is so.
pub(super) const RESTART_REQUIRED: &str = "RestartRequired";

/// Condition: how its last instance ended. It stays when the instance is gone, whose own conditions go with it.
pub(super) const LAST_END: &str = "LastInstanceEnded";

/// Conditions of its own; every other one is a copy of the instance's.
const OWN: [&str; 5] = [READY, FAILURE, RESTART_REQUIRED, LAST_END, "ManualRecoveryRequired"];

/// What the instance tells.
pub(super) fn follow(
    status: &mut VirtualMachineStatus,
    instance: Option<&VirtualMachineInstance>,
    now: Timestamp,
) {
    let theirs = instance.map_or(&[][..], |vmi| &vmi.status.conditions);
    let is_theirs = |kind: &str| conditions::get(theirs, kind).is_some();
    let all = &mut status.conditions;
    all.retain(|condition| OWN.contains(&condition.kind.as_str()) || is_theirs(&condition.kind));
    let copied = |kind: &str| kind == READY || !OWN.contains(&kind);
    for condition in theirs.iter().filter(|condition| copied(&condition.kind)) {
        let mut condition = condition.clone();
        if condition.kind == ENDED {
            LAST_END.clone_into(&mut condition.kind);
        }
        match all.iter_mut().find(|known| known.kind == condition.kind) {
            Some(known) => *known = condition,
            None => all.push(condition),
        }
    }
    if !is_theirs(READY) {
        let why = match instance {
            Some(_) => ("VMIConditionMissing", "the VirtualMachineInstance does not say yet"),
            None => ("VMINotExists", "there is no VirtualMachineInstance"),
        };
        conditions::set(all, READY, ConditionStatus::False, Some(why), now);
    }
    let ready = conditions::get(all, READY);
    let ready = ready.is_some_and(|condition| condition.status == ConditionStatus::True);
    // As KubeVirt, nothing is said of what is not so.
    status.created = instance.is_some().then_some(true);
    status.ready = ready.then_some(true);
}

/// Which generation the instance is of, and what is to be applied by a restart. `instance` is one that runs.
pub(super) fn compare(
    status: &mut VirtualMachineStatus,
    vm: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
    made_from: Option<&VirtualMachineInstanceSpec>,
    now: Timestamp,
) {
    let template = vm.spec.template.as_ref().and_then(|template| template.spec.as_ref());
    let outdated = instance.zip(made_from).and_then(|(vmi, made_from)| {
        let difference = restart::difference(made_from, template?)?;
        Some((generation_of(vmi), difference))
    });
    status.desired_generation = vm.metadata.generation;
    match outdated {
        Some((generation, difference)) => {
            status.observed_generation = generation;
            let why = Some((RESTART_REQUIRED, difference.as_str()));
            let all = &mut status.conditions;
            conditions::set(all, RESTART_REQUIRED, ConditionStatus::True, why, now);
        }
        None => {
            status.observed_generation = vm.metadata.generation;
            conditions::clear(&mut status.conditions, RESTART_REQUIRED);
        }
    }
}

/// What is in the way.
pub(super) fn fail(status: &mut VirtualMachineStatus, problem: Option<&Problem>, now: Timestamp) {
    match problem {
        Some(Problem { reason, message }) => {
            let why = Some((*reason, message.as_str()));
            conditions::set(&mut status.conditions, FAILURE, ConditionStatus::True, why, now);
        }
        None => conditions::clear(&mut status.conditions, FAILURE),
    }
}

/// The instance could not be made: the status that was planned, less what follows from there being one.
pub(super) fn not_made(
    vm: &VirtualMachine,
    planned: &VirtualMachineStatus,
    problem: &Problem,
    now: Timestamp,
) -> VirtualMachineStatus {
    let mut status = planned.clone();
    status.run_strategy.clone_from(&vm.status.run_strategy);
    status.state_change_requests.clone_from(&vm.status.state_change_requests);
    take_up(&mut status.state_change_requests, &vm.spec);
    status.conditions.clone_from(&vm.status.conditions);
    follow(&mut status, None, now);
    conditions::clear(&mut status.conditions, RESTART_REQUIRED);
    fail(&mut status, Some(problem), now);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::testing::{running, starting, vm};
    use crate::vmi::testing::now;
    use serde_json::json;

    fn kinds(status: &VirtualMachineStatus) -> Vec<(&str, ConditionStatus)> {
        status.conditions.iter().map(|one| (one.kind.as_str(), one.status)).collect()
    }

    #[test]
    fn conditions_of_the_instance_are_copied_and_go_with_it() {
        use ConditionStatus::{False, True};
        let mut status = VirtualMachineStatus::default();
        fail(&mut status, Some(&Problem { reason: "FailedCreate", message: "x".into() }), now(0));
        let vmi = running(|vmi| {
            vmi["status"]["conditions"] = json!([
                { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z" },
                { "type": "Paused", "status": "True", "reason": "PausedByUser" },
                { "type": "LiveMigratable", "status": "False" }]);
        });
        follow(&mut status, Some(&vmi), now(20));
        assert_eq!(
            kinds(&status),
            [("Failure", True), ("Ready", True), ("Paused", True), ("LiveMigratable", False)]
        );
        assert_eq!((status.created, status.ready), (Some(true), Some(true)));
        let ready = conditions::get(&status.conditions, READY).unwrap();
        assert_eq!(ready.last_transition_time.as_deref(), Some("2026-01-01T00:00:09Z"));

        follow(&mut status, None, now(30));
        fail(&mut status, None, now(30));
        assert_eq!(kinds(&status), [("Ready", False)]);
        assert_eq!(status.conditions[0].reason.as_deref(), Some("VMINotExists"));
        assert_eq!((status.created, status.ready), (None, None));
    }

    #[test]
    fn how_the_last_instance_ended_stays_until_the_next_one_ends() {
        let ended = |reason: &str| {
            running(|vmi| {
                vmi["status"]["conditions"] = json!([{ "type": "Ended", "status": "True", "reason": reason, "message": "why" }]);
            })
        };
        let mut status = VirtualMachineStatus::default();
        let told = |status: &VirtualMachineStatus| {
            assert!(conditions::get(&status.conditions, ENDED).is_none());
            conditions::get(&status.conditions, LAST_END).and_then(|last| last.reason.clone())
        };
        follow(&mut status, Some(&running(|_| ())), now(0));
        assert_eq!(told(&status), None);
        follow(&mut status, Some(&ended("Panicked")), now(1));
        assert_eq!(told(&status).as_deref(), Some("Panicked"));
        for instance in [None, Some(starting()), Some(running(|_| ()))] {
            follow(&mut status, instance.as_ref(), now(2));
            assert_eq!(told(&status).as_deref(), Some("Panicked"));
        }
        follow(&mut status, Some(&ended("PoweredOff")), now(3));
        assert_eq!(told(&status).as_deref(), Some("PoweredOff"));
    }

    #[test]
    fn an_instance_that_says_nothing_yet_is_not_ready() {
        let mut status = VirtualMachineStatus::default();
        follow(&mut status, Some(&starting()), now(0));
        assert_eq!(status.conditions[0].reason.as_deref(), Some("VMIConditionMissing"));
        assert_eq!((status.created, status.ready), (Some(true), None));
    }

    #[test]
    fn a_changed_template_asks_for_a_restart_and_one_that_was_changed_back_does_not() {
        let vm = vm("Always", |vm| {
            vm["metadata"]["generation"] = json!(4);
            vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = json!("512Mi");
        });
        let now_template = vm.spec.template.clone().unwrap().spec.unwrap();
        let mut was = now_template.clone();
        was.domain.memory.as_mut().unwrap().guest = Some(corten_resources::Quantity::new("256Mi"));
        let vmi = running(|_| ());
        let mut status = VirtualMachineStatus::default();
        compare(&mut status, &vm, Some(&vmi), Some(&was), now(0));
        assert_eq!((status.observed_generation, status.desired_generation), (Some(3), Some(4)));
        let condition = conditions::get(&status.conditions, RESTART_REQUIRED).unwrap();
        assert!(
            condition.message.as_ref().unwrap().contains("spec.template.spec.domain.memory.guest")
        );

        compare(&mut status, &vm, Some(&vmi), Some(&now_template), now(1));
        assert_eq!((status.observed_generation, status.conditions.len()), (Some(4), 0));
    }
}
