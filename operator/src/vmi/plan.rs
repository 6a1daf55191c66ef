//! What is to be done for a VirtualMachineInstance, from what was observed. Pure.

use super::ending::{self, Ending, Rejection};
use super::observe::{Observed, attempt};
use super::status;
use crate::Config;
use crate::pod::launcher_pod;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::LAUNCH_ATTEMPT_ANNOTATION;
use corten_resources::served::Scope;
use corten_resources::types::{ConditionStatus, Phase};
use corten_resources::validate::{Finding, validate};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use std::sync::Arc;
use std::time::Duration;

/// How soon to look at a Pod of which the watch may not tell.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What is to be done, in this order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The object as it should be, if it is not.
    pub vmi: Option<Box<VirtualMachineInstance>>,
    /// Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// A Pod to create.
    pub create: Option<Box<Pod>>,
    /// Events to tell once the rest is done.
    pub notices: Vec<Notice>,
    /// When to look again although nothing changed.
    pub again: Option<Duration>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether something went wrong. Tools take every warning for a failure.
    pub severity: Severity,
    /// In one word, as KubeVirt's.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// Whether something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It did not.
    Normal,
    /// It did.
    Warning,
}

impl Notice {
    pub(crate) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason, message: message.into() }
    }

    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, reason, message: message.into() }
    }
}

/// What is to be done for a VirtualMachineInstance.
pub fn plan(
    vmi: &VirtualMachineInstance,
    observed: &Observed,
    config: &Config,
    now: Timestamp,
) -> Plan {
    let mut wanted = vmi.clone();
    let mut plan = Plan::default();
    if vmi.metadata.deletion_timestamp.is_some() {
        delete(&mut wanted, observed, now, &mut plan);
    } else if !vmi.status.phase.is_final() {
        status::accept(&mut wanted, now);
        // Left over of attempts that came to nothing.
        plan.delete.extend(observed.earlier.iter().filter(|pod| !is_going(pod)).cloned());
        match &observed.pod {
            Some(pod) => live(&mut wanted, pod, now, &mut plan),
            None => start(&mut wanted, config, now, &mut plan),
        }
    }
    plan.vmi = (wanted != *vmi).then(|| Box::new(wanted));
    plan
}

/// There is no Pod.
fn start(vmi: &mut VirtualMachineInstance, config: &Config, now: Timestamp, plan: &mut Plan) {
    if !vmi.status.active_pods.is_empty() {
        // It was there and had a node, and its exit status is gone with it: deleted by force, or its node is lost.
        return end(vmi, &pod_gone(), now, plan);
    }
    let mut findings = validate(&vmi.spec, Scope::Cluster);
    findings.retain(Finding::is_refusal);
    let pod = match findings.first() {
        Some(first) => Err((first.reason.as_str(), list(&findings))),
        None => launcher_pod(vmi, attempt(vmi), config)
            .map_err(|found| (found.reason.as_str(), found.to_string())),
    };
    match pod {
        Ok(pod) => {
            // What stands in Synchronized goes away when the Pod is there: until then it may be why there is none.
            let message = format!("Created virtual machine pod {}", pod.name_any());
            plan.notices.push(Notice::normal("SuccessfulCreate", message));
            if vmi.spec.domain.devices.autoattach_pod_interface != Some(false) {
                let message = "the guest has no network: Pod networks are not served yet";
                plan.notices.push(Notice::normal("NoNetwork", message));
            }
            plan.create = Some(Box::new(pod));
        }
        Err((reason, message)) => {
            let told =
                vmi.status.condition(status::SYNCHRONIZED).and_then(|known| known.message.as_ref());
            if told != Some(&message) {
                plan.notices.push(Notice::warning("SyncFailed", message.clone()));
            }
            status::set(
                vmi,
                status::SYNCHRONIZED,
                ConditionStatus::False,
                Some((reason, &message)),
                now,
            );
        }
    }
}

fn list(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn pod_gone() -> Ending {
    Ending {
        phase: Phase::Failed,
        reason: "PodDeleted".to_owned(),
        message: "the launcher Pod was deleted, and nobody saw how it ended".to_owned(),
    }
}

/// There is a Pod.
fn live(vmi: &mut VirtualMachineInstance, pod: &Arc<Pod>, now: Timestamp, plan: &mut Plan) {
    if !is_of(pod, vmi) {
        let message = format!("Pod {} is not this object's: delete it", pod.name_any());
        status::set(
            vmi,
            status::SYNCHRONIZED,
            ConditionStatus::False,
            Some(("FailedCreate", &message)),
            now,
        );
        return;
    }
    if let Some(rejection) = ending::rejection(pod) {
        return retry(vmi, pod, &rejection, now, plan);
    }
    if let Some(ending) = ending::ending(pod, vmi.spec.grace_period()) {
        // One that kubelet has started again, as it does when its image was changed, is another launcher: not this VM's.
        delete_unless_over(pod, plan);
        return end(vmi, &ending, now, plan);
    }
    if !vmi.status.active_pods.is_empty() && !status::lists(vmi, pod) {
        // Another one of this name had the VM: this one was made from a cache that was behind.
        delete_unless_over(pod, plan);
        return end(vmi, &pod_gone(), now, plan);
    }
    let node = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .filter(|node| !node.is_empty());
    if let Some(node) = node
        && !status::is_bound(vmi, pod, node)
    {
        status::bind(vmi, pod, node, now);
    }
    if vmi.status.phase == Phase::Scheduling && status::is_up(pod) {
        status::enter(vmi, Phase::Scheduled, now);
    }
    status::follow(vmi, pod, now);
}

fn delete_unless_over(pod: &Arc<Pod>, plan: &mut Plan) {
    if !ending::has_ended(pod) && !is_going(pod) {
        plan.delete.push(Arc::clone(pod));
    }
}

/// The Pod's node did not admit it: a next attempt, after a while that grows. kubelet would never try again.
fn retry(
    vmi: &mut VirtualMachineInstance,
    pod: &Arc<Pod>,
    rejection: &Rejection,
    now: Timestamp,
    plan: &mut Plan,
) {
    let attempt = attempt(vmi);
    let created = pod.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let due = created + pause_after(attempt);
    if now < due {
        plan.again = Some(due.duration_since(now).unsigned_abs());
        return;
    }
    status::unbind(vmi);
    let next = attempt.saturating_add(1).to_string();
    vmi.annotations_mut().insert(LAUNCH_ATTEMPT_ANNOTATION.to_owned(), next);
    plan.delete.push(Arc::clone(pod));
    // Not a warning: it goes on.
    let Rejection { reason, message } = rejection;
    plan.notices.push(Notice::normal(
        "PodRejected",
        format!("{} was not admitted ({reason}): {message}", pod.name_any()),
    ));
}

/// One second, then twice as long each time, a minute at most.
fn pause_after(attempt: u32) -> SignedDuration {
    SignedDuration::from_secs(1 << attempt.min(6)).min(SignedDuration::from_secs(60))
}

fn end(vmi: &mut VirtualMachineInstance, ending: &Ending, now: Timestamp, plan: &mut Plan) {
    status::end(vmi, ending, now);
    let message =
        format!("The VirtualMachineInstance ended ({}): {}", ending.reason, ending.message);
    plan.notices.push(match ending.phase {
        Phase::Succeeded => Notice::normal("Stopped", message),
        _ => Notice::warning("Stopped", message),
    });
}

/// The object is being deleted: first its Pods end, then it is let go.
fn delete(vmi: &mut VirtualMachineInstance, observed: &Observed, now: Timestamp, plan: &mut Plan) {
    if !status::is_accepted(vmi) {
        return;
    }
    let own = observed.pod.iter().chain(&observed.earlier).filter(|pod| is_of(pod, vmi));
    let running: Vec<_> = own.filter(|pod| !ending::has_ended(pod)).cloned().collect();
    if !running.is_empty() {
        for pod in running.into_iter().filter(|pod| !is_going(pod)) {
            let message = format!("Deleted virtual machine pod {}", pod.name_any());
            plan.notices.push(Notice::normal("SuccessfulDelete", message));
            plan.delete.push(pod);
        }
        // The watch tells of its end, unless its label was taken away.
        plan.again = Some(LOOK_AGAIN);
        return;
    }
    if !vmi.status.phase.is_final() {
        let pod = observed.pod.as_ref();
        let ending = pod
            .and_then(|pod| ending::ending(pod, vmi.spec.grace_period()))
            .unwrap_or_else(pod_gone);
        status::end(vmi, &ending, now);
    }
    status::release(vmi);
}

/// Its deletion has been asked for.
fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The Pod is controlled by this very object, not by an earlier one of the same name.
///
/// Kind and group count: a policy lets nobody but the operator name a VirtualMachineInstance as a Pod's controller, but
/// anybody may name something else, with any uid.
fn is_of(pod: &Pod, vmi: &VirtualMachineInstance) -> bool {
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    owner.is_some_and(|owner| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        owner.kind == VirtualMachineInstance::kind(&())
            && group == Some(&*VirtualMachineInstance::group(&()))
            && owner.name == vmi.name_any()
            && vmi.uid().is_some_and(|uid| uid == owner.uid)
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
