//! What is to be done for a VirtualMachine, from what was observed. Pure.

use super::instance::instance_of;
use super::observe::{Instance, Observed};
use super::printable::{Facts, printable};
use super::revision::revision_of;
use super::strategy::{Decision, Step, Strategy, decide, is_going, take_up};
use super::volumes::{self, Progress, Volumes};
use super::{start_failure, status};
use crate::control::{conditions, owner};
use crate::vmi::Notice;
use corten_resources::cluster::{VirtualMachine, VirtualMachineInstance};
use corten_resources::names::VM_FINALIZER;
use corten_resources::types::{Phase, VirtualMachineStatus};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use kube::core::DynamicObject;
use std::sync::Arc;
use std::time::Duration;

/// What is to be done, in this order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The object as it should be, less its status, if it is not.
    pub vm: Option<Box<VirtualMachine>>,
    /// DataVolumes to create.
    pub volumes: Vec<DynamicObject>,
    /// The instance to create, and the revision that it is made from.
    pub create: Option<Box<(VirtualMachineInstance, ControllerRevision)>>,
    /// The status as it should be, if it is not. What follows from a creation is in it.
    pub status: Option<Box<VirtualMachineStatus>>,
    /// The instance that is to become the VirtualMachine's.
    pub adopt: Option<Arc<VirtualMachineInstance>>,
    /// The instance to delete.
    pub delete: Option<Arc<VirtualMachineInstance>>,
    /// Events to tell once the rest is done.
    pub notices: Vec<Notice>,
    /// When to look again although nothing changed.
    pub again: Option<Duration>,
}

/// Something that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What is to be done for a VirtualMachine.
pub fn plan(vm: &VirtualMachine, observed: &Observed, now: Timestamp) -> Plan {
    if vm.metadata.deletion_timestamp.is_some() {
        return end(vm, observed, now);
    }
    let mut plan = Plan::default();
    if !vm.finalizers().iter().any(|name| name == VM_FINALIZER) {
        let mut wanted = vm.clone();
        wanted.finalizers_mut().push(VM_FINALIZER.to_owned());
        plan.vm = Some(Box::new(wanted));
    }
    let mut wanted = vm.status.clone();
    let instance = observed.instance.get();
    let (strategy, mut problem) = match Strategy::of(&vm.spec) {
        Ok(strategy) => (Some(strategy), None),
        Err(finding) => {
            let (reason, message) = (finding.reason.as_str(), finding.to_string());
            (None, Some(Problem { reason, message }))
        }
    };
    let mut step = Step::Nothing;
    if let Some(strategy) = strategy {
        let known = vm.status.start_failure.as_ref();
        wanted.start_failure = start_failure::after(known, strategy, instance, now);
        let decision = decide(strategy, instance, &wanted, now);
        if decision.step == Step::BecomeAlways {
            return become_always(vm);
        }
        Decision { step, requests: wanted.state_change_requests } = decision;
    }
    if let Instance::Orphan(vmi) = &observed.instance {
        // What is to become of it is looked at when it is ours.
        plan.adopt = (!is_going(vmi)).then(|| Arc::clone(vmi));
        step = Step::Nothing;
    }
    match volumes::missing(vm, &observed.volumes) {
        Ok(missing) => plan.volumes = missing,
        Err(message) => {
            problem.get_or_insert(Problem { reason: "FailedDataVolumeCreate", message });
        }
    }
    let obstacle = obstacle(vm, observed, &step);
    problem = problem.or(obstacle);
    let progress = observed.volumes.progress();
    let waits = matches!(progress, Progress::Filling | Progress::Failed);
    let blocked = problem.is_some();
    let mut made = None;
    match (&step, &observed.instance) {
        (Step::Start { paused }, _) if !blocked && !waits => {
            let vmi = instance_of(vm, *paused);
            plan.create = Some(Box::new((vmi.clone(), revision_of(vm))));
            made = Some(vmi);
        }
        (Step::Start { .. }, _) => {
            wanted.state_change_requests.clone_from(&vm.status.state_change_requests);
            take_up(&mut wanted.state_change_requests, &vm.spec);
        }
        (Step::Stop, Instance::Own(vmi)) => plan.delete = Some(Arc::clone(vmi)),
        _ => {}
    }
    let shown = made.as_ref().or(instance);
    record(&mut wanted, strategy, shown.is_some());
    status::follow(&mut wanted, shown, now);
    let running = instance.filter(|vmi| !vmi.status.phase.is_final() && !is_going(vmi));
    status::compare(&mut wanted, vm, running, observed.made_from.as_deref(), now);
    let told = conditions::get(&vm.status.conditions, status::FAILURE);
    if let Some(Problem { reason, message }) = &problem
        && told.and_then(|told| told.message.as_ref()) != Some(message)
    {
        plan.notices.push(Notice::warning(reason, message.clone()));
    }
    status::fail(&mut wanted, problem.as_ref(), now);
    let failing = wanted.start_failure.is_some() && !matches!(step, Step::Start { .. });
    let facts = Facts {
        deleting: false,
        instance: shown,
        step: &step,
        blocked,
        failing,
        volumes: progress,
    };
    wanted.printable_status = Some(printable(&facts).to_owned());
    plan.again = again(observed, &wanted, &step, now);
    plan.status = (wanted != vm.status).then(|| Box::new(wanted));
    plan
}

/// Strategies that start by themselves once have done so when there is an instance; the others need no proof.
fn record(status: &mut VirtualMachineStatus, strategy: Option<Strategy>, is_there: bool) {
    let Some(strategy) = strategy else { return };
    if is_there || !matches!(strategy, Strategy::RerunOnFailure | Strategy::Once) {
        status.run_strategy = Some(strategy.as_str().to_owned());
    }
}

/// What keeps an instance from being made, other than that something takes its time.
fn obstacle(vm: &VirtualMachine, observed: &Observed, step: &Step) -> Option<Problem> {
    if observed.volumes == Volumes::NoImporter {
        let message = "spec.dataVolumeTemplates: nothing in this cluster serves cdi.kubevirt.io/v1beta1: \
                       install the Containerized Data Importer, or name PersistentVolumeClaims instead";
        return Some(Problem { reason: "FailedDataVolumeCreate", message: message.to_owned() });
    }
    if !matches!(step, Step::Start { .. }) {
        return None;
    }
    let reason = "FailedCreate";
    if let Instance::Foreign(whose) = &observed.instance {
        let name = vm.name_any();
        let message = format!(
            "a VirtualMachineInstance {name} is there already, and {whose}: delete it, or choose another name"
        );
        return Some(Problem { reason, message });
    }
    if vm.spec.template.as_ref().is_none_or(|template| template.spec.is_none()) {
        let message = "spec.template.spec: it is missing: say what is to be run";
        return Some(Problem { reason, message: message.to_owned() });
    }
    None
}

/// The strategy changes, and nothing else: all follows from that.
fn become_always(vm: &VirtualMachine) -> Plan {
    let mut wanted = vm.clone();
    if wanted.spec.running.is_some() {
        wanted.spec.running = Some(true);
    } else {
        wanted.spec.run_strategy = Some(Strategy::Always.as_str().to_owned());
    }
    Plan { vm: Some(Box::new(wanted)), ..Plan::default() }
}

/// When something is due of which no watch tells.
fn again(
    observed: &Observed,
    status: &VirtualMachineStatus,
    step: &Step,
    now: Timestamp,
) -> Option<Duration> {
    let until = |due: Timestamp| due.duration_since(now).try_into().unwrap_or(Duration::ZERO);
    let pause = match step {
        Step::Wait(due) => Some(until(*due)),
        _ => None,
    };
    let lasting = observed
        .instance
        .get()
        .filter(|vmi| status.start_failure.is_some() && vmi.status.phase == Phase::Running)
        .and_then(start_failure::lasting_from)
        .map(until);
    let volumes = match (&observed.volumes, observed.volumes.progress()) {
        (Volumes::NoImporter, _) => Some(volumes::ASK_AGAIN),
        (_, Progress::Ready) => None,
        _ => Some(volumes::LOOK_AGAIN),
    };
    [pause, lasting, volumes].into_iter().flatten().min()
}

/// The object is being deleted: first its instance goes, then it is let go. Unless its instance is to stay: then the
/// garbage collector takes the owner's reference away from it.
fn end(vm: &VirtualMachine, observed: &Observed, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if !vm.finalizers().iter().any(|name| name == VM_FINALIZER) {
        return plan;
    }
    let Instance::Own(vmi) = &observed.instance else { return release(vm) };
    if owner::leaves_orphans(vm) {
        return release(vm);
    }
    if !is_going(vmi) {
        plan.delete = Some(Arc::clone(vmi));
    }
    let mut wanted = vm.status.clone();
    status::follow(&mut wanted, Some(vmi), now);
    let facts = Facts {
        deleting: true,
        instance: Some(vmi),
        step: &Step::Stop,
        blocked: false,
        failing: false,
        volumes: Progress::Ready,
    };
    wanted.printable_status = Some(printable(&facts).to_owned());
    plan.status = (wanted != vm.status).then(|| Box::new(wanted));
    plan
}

fn release(vm: &VirtualMachine) -> Plan {
    let mut wanted = vm.clone();
    wanted.finalizers_mut().retain(|name| name != VM_FINALIZER);
    Plan { vm: Some(Box::new(wanted)), ..Plan::default() }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
