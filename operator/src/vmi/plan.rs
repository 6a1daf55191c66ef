//! What is to be done for a VirtualMachineInstance, from what was observed. Pure.

use super::deletion::delete;
use super::ending::Ending;
use super::fate::{Fate, fate};
use super::last_words::for_event;
use super::live::live;
use super::notice::Notice;
use super::observe::Observed;
use super::start::start;
use super::status;
use crate::Settings;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{APP_LABEL, CREATED_BY_LABEL, LAUNCHER, LAUNCHER_FINALIZER};
use corten_resources::types::{ConditionStatus, Phase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How soon to look at a Pod of which the watch may not tell.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What is to be done, in this order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The object as it should be, if it is not.
    pub vmi: Option<Box<VirtualMachineInstance>>,
    /// What the readiness gate of its Pod is to say.
    pub gate: Option<(Arc<Pod>, Value)>,
    /// Pods of which nothing runs any more: they are let go.
    pub release: Vec<Arc<Pod>>,
    /// Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// A Pod to create.
    pub create: Option<Box<Pod>>,
    /// Events to tell once the rest is done.
    pub notices: Vec<Notice>,
    /// When to look again although nothing changed.
    pub again: Option<Duration>,
}

impl Plan {
    /// Looks again after this time at the latest.
    pub(super) fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |known| known.min(after)));
    }

    /// Deletes a Pod, unless that has been asked for.
    pub(super) fn delete(&mut self, pod: &Arc<Pod>) {
        if !is_going(pod) {
            self.delete.push(Arc::clone(pod));
        }
    }

    /// Lets a Pod go that is ours to hold.
    pub(super) fn release(&mut self, pod: &Arc<Pod>) {
        if is_held(pod) {
            self.release.push(Arc::clone(pod));
        }
    }
}

/// What is to be done for a VirtualMachineInstance.
pub fn plan(
    vmi: &VirtualMachineInstance,
    observed: &Observed,
    settings: &Settings,
    now: Timestamp,
) -> Plan {
    let mut wanted = vmi.clone();
    let mut plan = Plan::default();
    if vmi.metadata.deletion_timestamp.is_some() {
        delete(&mut wanted, observed, now, &mut plan);
    } else if vmi.status.phase.is_final() {
        let pods = observed.pod.iter().chain(&observed.earlier);
        for pod in pods.filter(|pod| is_of(pod, vmi) && is_dead(vmi, pod, observed)) {
            plan.release(pod);
        }
    } else {
        status::accept(&mut wanted, now);
        // Left over of attempts that came to nothing.
        for pod in observed.earlier.iter().filter(|pod| is_of(pod, vmi)) {
            if is_dead(vmi, pod, observed) {
                plan.release(pod);
            }
            plan.delete(pod);
        }
        match &observed.pod {
            Some(pod) => live(&mut wanted, pod, observed, now, &mut plan),
            None => start(&mut wanted, observed, settings, now, &mut plan),
        }
    }
    plan.vmi = (wanted != *vmi).then(|| Box::new(wanted));
    plan
}

/// Whether the launcher of one of its Pods may still be running. The noted boot is that of the one that it lists.
pub(super) fn fate_of(vmi: &VirtualMachineInstance, pod: &Pod, observed: &Observed) -> Fate {
    let noted = status::noted_boot_id(vmi).filter(|_| status::lists(vmi, pod));
    fate(pod, observed.node_of(pod), noted)
}

pub(super) fn is_dead(vmi: &VirtualMachineInstance, pod: &Pod, observed: &Observed) -> bool {
    matches!(fate_of(vmi, pod, observed), Fate::Dead(_))
}

pub(super) fn end(
    vmi: &mut VirtualMachineInstance,
    ending: &Ending,
    now: Timestamp,
    plan: &mut Plan,
) {
    status::end(vmi, ending, now);
    let message = told(ending);
    plan.notices.push(match ending.phase {
        Phase::Succeeded => Notice::normal("Stopped", message),
        _ => Notice::warning("Stopped", message),
    });
}

/// How it ended, for an event.
pub(super) fn told(ending: &Ending) -> String {
    let message =
        format!("The VirtualMachineInstance ended ({}): {}", ending.reason, ending.message);
    for_event(&message, &ending.console)
}

/// Its Pod is gone, and with it how it ended.
pub(super) fn pod_gone() -> Ending {
    Ending {
        phase: Phase::Failed,
        reason: "PodDeleted".to_owned(),
        message: "the launcher Pod was deleted, and nobody saw how it ended".to_owned(),
        console: String::new(),
    }
}

/// Its node is gone for certain.
pub(super) fn node_lost(proof: super::fate::Proof) -> Ending {
    Ending {
        phase: Phase::Failed,
        reason: super::NODE_UNRESPONSIVE.to_owned(),
        message: format!("the VM ended with its node: {}", proof.text()),
        console: String::new(),
    }
}

/// Its node does not answer: nobody knows whether it runs, so nothing is begun anew. Told once.
pub(super) fn unresponsive(
    vmi: &mut VirtualMachineInstance,
    node: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    let waiting = if vmi.metadata.deletion_timestamp.is_some() {
        "the object is deleted once its end is proven"
    } else {
        "it is started nowhere else until its end is proven"
    };
    let message = format!(
        "node {node} does not answer and may still run the VM: {waiting}; bring the node back, or make sure that it is off and \
         delete its Node or give it the taint node.kubernetes.io/out-of-service:NoExecute"
    );
    let known = status::reason(vmi, status::READY) == Some(super::NODE_UNRESPONSIVE);
    let why = Some((super::NODE_UNRESPONSIVE, message.as_str()));
    status::set(vmi, status::READY, ConditionStatus::False, why, now);
    if !known {
        plan.notices.push(Notice::warning(super::NODE_UNRESPONSIVE, message));
    }
}

/// Its deletion has been asked for.
pub(super) fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The Pod is that of this very object, not of an earlier one of the same name.
///
/// Kind and group count: a policy lets nobody but the operator name a VirtualMachineInstance as a Pod's controller, but
/// anybody may name something else, with any uid. Who deletes an object without its dependents has the reference taken
/// away; what the Pod runs is the object's all the same, by labels that the policy keeps as they are.
pub(super) fn is_of(pod: &Pod, vmi: &VirtualMachineInstance) -> bool {
    let Some(uid) = vmi.uid() else { return false };
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    match owner {
        Some(owner) => {
            let group = owner.api_version.split_once('/').map(|(group, _)| group);
            owner.kind == VirtualMachineInstance::kind(&())
                && group == Some(&*VirtualMachineInstance::group(&()))
                && owner.name == vmi.name_any()
                && uid == owner.uid
        }
        None => is_held(pod) && created_by(pod) == Some(uid.as_str()),
    }
}

/// Our finalizer keeps the Pod until it is proven that nothing of it runs.
pub(super) fn is_held(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|name| name == LAUNCHER_FINALIZER)
}

/// Uid of the object that a launcher Pod was made for.
pub(super) fn created_by(pod: &Pod) -> Option<&str> {
    let is_launcher = pod.labels().get(APP_LABEL).is_some_and(|app| app == LAUNCHER);
    pod.labels().get(CREATED_BY_LABEL).filter(|_| is_launcher).map(String::as_str)
}
