//! A VirtualMachineInstance with a Pod. Pure.

use super::conditions::{self, PATIENCE, awaited_for, up_for};
use super::ending::{self, Setback};
use super::fate::{Fate, certain_boot_id, fate_on, node_name};
use super::gate::gate;
use super::notice::Notice;
use super::observe::{Observed, attempt};
use super::plan::{
    LOOK_AGAIN, Plan, end, fate_of, is_going, is_of, node_lost, pod_gone, unresponsive,
};
use super::{NO_IMAGES, claims, linking, status};
use crate::pod::lacks_images;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{BOOT_ID_ANNOTATION, LAUNCH_ATTEMPT_ANNOTATION};
use corten_resources::types::{ConditionStatus, Phase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// How long a container may run before its VM is said not to: until then the agent's word is awaited, which says both at
/// once.
const UNTIL_SCHEDULED: SignedDuration = SignedDuration::from_secs(2);
/// How often to ask again why a container is not coming.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// How often to look whether a node has reported since a container started on it. kubelet does every five minutes.
const UNTIL_CERTAIN: Duration = Duration::from_secs(60);

/// There is a Pod.
pub(super) fn live(
    vmi: &mut VirtualMachineInstance,
    pod: &Arc<Pod>,
    observed: &Observed,
    now: Timestamp,
    plan: &mut Plan,
) {
    if !is_of(pod, vmi) {
        let message = format!("Pod {} is not this object's: delete it", pod.name_any());
        let why = Some(("FailedCreate", message.as_str()));
        return status::set(vmi, status::SYNCHRONIZED, ConditionStatus::False, why, now);
    }
    let fate = fate_of(vmi, pod, observed);
    if lacks_images(pod, &vmi.spec) && !status::lists(vmi, pod) {
        return without_images(vmi, pod, fate, now, plan);
    }
    if let Some(setback) = setback(vmi, pod, fate) {
        return retry(vmi, pod, &setback, now, plan);
    }
    if let Some(ending) = ending::ending(pod, vmi.spec.grace_period()) {
        match fate {
            Fate::Dead(_) => plan.release(pod),
            // One that kubelet has started again, as it does when its image was changed, is another launcher: not this VM's.
            Fate::Alive | Fate::Unknown => plan.delete(pod),
        }
        return end(vmi, &ending, now, plan);
    }
    if let Fate::Dead(proof) = fate {
        plan.release(pod);
        if proof.is_of_node() {
            plan.delete(pod);
            end(vmi, &node_lost(proof), now, plan);
        }
        // One that never had a node is made anew once its name is free.
        return;
    }
    if !vmi.status.active_pods.is_empty() && !status::lists(vmi, pod) {
        return second(vmi, pod, observed, now, plan);
    }
    match (node_name(pod), fate) {
        (Some(node), Fate::Unknown) => return unresponsive(vmi, node, now, plan),
        // One that is being deleted and was given nothing is not given anything any more.
        (Some(_), _) if is_going(pod) && !status::lists(vmi, pod) => {}
        (Some(node), _) if !status::is_bound(vmi, pod, node) => status::bind(vmi, pod, node, now),
        _ => {}
    }
    if node_name(pod).is_some() {
        claims::show(vmi, &observed.claims);
    }
    let before = vmi.clone();
    conditions::follow(vmi, pod, observed, now);
    plan.notices.extend(conditions::news(&before, vmi));
    plan.gate = gate(vmi, pod, now).map(|said| (Arc::clone(pod), said));
    come_up(vmi, pod, observed, now, plan);
}

/// The way from a node to a guest that runs: what is written when, and when to look again.
fn come_up(
    vmi: &mut VirtualMachineInstance,
    pod: &Pod,
    observed: &Observed,
    now: Timestamp,
    plan: &mut Plan,
) {
    if let Some(waited) = awaited_for(pod, now) {
        plan.look_again(left(PATIENCE, waited).unwrap_or(ASK_AGAIN));
    }
    if let Some(due) = linking::due(vmi, pod, now) {
        plan.look_again(due);
    }
    if is_going(pod) {
        plan.look_again(LOOK_AGAIN);
    }
    if node_name(pod).is_none() && !claims::standing(&vmi.spec, &observed.claims).pending.is_empty()
    {
        plan.again = plan.again.or(left(PATIENCE, conditions::age(pod, now)));
    }
    match (vmi.status.phase, up_for(pod, now)) {
        (Phase::Scheduling, Some(time)) => match left(UNTIL_SCHEDULED, time) {
            Some(left) => plan.look_again(left),
            None => status::enter(vmi, Phase::Scheduled, now),
        },
        (Phase::Running, Some(_)) if status::noted_boot_id(vmi).is_none() => {
            match observed.node_of(pod).and_then(|node| certain_boot_id(pod, node)) {
                Some(id) => {
                    let id = id.to_owned();
                    vmi.annotations_mut().insert(BOOT_ID_ANNOTATION.to_owned(), id);
                }
                None => plan.look_again(UNTIL_CERTAIN),
            }
        }
        _ => {}
    }
}

/// What is left of a time; none if it is over.
fn left(whole: SignedDuration, passed: SignedDuration) -> Option<Duration> {
    let left = whole.saturating_sub(passed);
    left.is_positive().then(|| left.unsigned_abs())
}

/// Whether a Pod that came to nothing is the reason for a next attempt, and not the end.
fn setback(vmi: &VirtualMachineInstance, pod: &Pod, fate: Fate) -> Option<Setback> {
    let phase = vmi.status.phase;
    match fate {
        // A phase of a later release may be one in which the guest runs.
        Fate::Dead(proof)
            if proof.is_of_node()
                && matches!(phase, Phase::Pending | Phase::Scheduling | Phase::Scheduled) =>
        {
            Some(Setback { reason: "NodeLost".to_owned(), message: proof.text().to_owned() })
        }
        Fate::Dead(_) => ending::setback(pod, phase),
        Fate::Alive | Fate::Unknown => None,
    }
}

/// Another Pod of this name had the VM: this one was made from a cache that was behind, and was given nothing.
fn second(
    vmi: &mut VirtualMachineInstance,
    pod: &Arc<Pod>,
    observed: &Observed,
    now: Timestamp,
    plan: &mut Plan,
) {
    plan.delete(pod);
    let node = vmi.status.active_pods.values().next().cloned().unwrap_or_default();
    match fate_on(observed.nodes.get(&node).map(AsRef::as_ref), status::noted_boot_id(vmi)) {
        Fate::Unknown => unresponsive(vmi, &node, now, plan),
        Fate::Dead(proof) => end(vmi, &node_lost(proof), now, plan),
        Fate::Alive => end(vmi, &pod_gone(), now, plan),
    }
}

/// The API server has left out what the Pod was to boot from. It is given nothing and goes; the next attempt may find a
/// cluster that was set right.
fn without_images(
    vmi: &mut VirtualMachineInstance,
    pod: &Arc<Pod>,
    fate: Fate,
    now: Timestamp,
    plan: &mut Plan,
) {
    let (reason, message) = NO_IMAGES;
    if status::reason(vmi, status::SYNCHRONIZED) != Some(reason) {
        plan.notices.push(Notice::warning("FailedCreate", message));
    }
    status::set(vmi, status::SYNCHRONIZED, ConditionStatus::False, Some(NO_IMAGES), now);
    status::set(vmi, status::READY, ConditionStatus::False, Some(status::NO_POD), now);
    if let Fate::Dead(_) = fate {
        let setback = Setback { reason: reason.to_owned(), message: message.to_owned() };
        return retry(vmi, pod, &setback, now, plan);
    }
    plan.delete(pod);
    plan.look_again(LOOK_AGAIN);
}

/// A next attempt, after a while that grows. kubelet would never try again.
fn retry(
    vmi: &mut VirtualMachineInstance,
    pod: &Arc<Pod>,
    setback: &Setback,
    now: Timestamp,
    plan: &mut Plan,
) {
    let created = pod.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let due = created + pause_after(attempt(vmi));
    if now < due {
        return plan.look_again(due.duration_since(now).unsigned_abs());
    }
    plan.release(pod);
    plan.delete(pod);
    next_attempt(vmi, setback, &pod.name_any(), now, plan);
}

/// Begins the next attempt. What was in the way is told until its Pod is there.
pub(super) fn next_attempt(
    vmi: &mut VirtualMachineInstance,
    setback: &Setback,
    pod: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    status::unbind(vmi);
    let next = attempt(vmi).saturating_add(1).to_string();
    vmi.annotations_mut().insert(LAUNCH_ATTEMPT_ANNOTATION.to_owned(), next);
    let Setback { reason, message } = setback;
    let why = Some((reason.as_str(), message.as_str()));
    status::set(vmi, status::SYNCHRONIZED, ConditionStatus::False, why, now);
    // Not a warning: it goes on.
    let message = format!("{pod} came to nothing before the VM ran ({reason}): {message}");
    plan.notices.push(Notice::normal("PodRejected", message));
}

/// One second, then twice as long each time, a minute at most.
pub(super) fn pause_after(attempt: u32) -> SignedDuration {
    SignedDuration::from_secs(1 << attempt.min(6)).min(SignedDuration::from_secs(60))
}
