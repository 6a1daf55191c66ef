//! Conditions that follow from the Pod, its claims and what kubelet says of it. Pure.

use super::claims::standing;
use super::ending::{container, disruption};
use super::fate::node_name;
use super::gate::is_opening;
use super::notice::Notice;
use super::observe::{Observed, Said};
use super::status::{self, NOT_RUNNING, set};
use super::{going, kvm, linking};
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::types::{ConditionStatus, Phase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};

/// How long a Pod on a node may take until somebody asks why its container is not there, and what it waits for.
pub(super) const PATIENCE: SignedDuration = SignedDuration::from_secs(3);

/// Why a Pod has no node, in the scheduler's word.
pub(super) const UNSCHEDULABLE: &str = "Unschedulable";

/// Sets what follows from a Pod whose node, as far as it has one, answers.
///
/// Until the Pod has a node, only what keeps it from one is worth a write; the rest comes with the node.
pub(super) fn follow(
    vmi: &mut VirtualMachineInstance,
    pod: &Pod,
    observed: &Observed,
    now: Timestamp,
) {
    let before = vmi.status.conditions.clone();
    if let Some((reason, said)) = unscheduled(pod) {
        let nowhere = kvm::nowhere(&observed.all_nodes).filter(|_| reason == UNSCHEDULABLE);
        let message = nowhere.map(|why| format!("{why}; the scheduler says: {said}"));
        let why = Some((reason, message.as_deref().unwrap_or(said)));
        set(vmi, status::POD_SCHEDULED, ConditionStatus::False, why, now);
    }
    let claims = standing(&vmi.spec, &observed.claims);
    provision(vmi, pod, &claims.pending, now);
    let stuck = stuck(pod, observed.said.as_ref());
    let waits = linking::hindrance(vmi, pod, observed.node_of(pod), now);
    let waits = waits.as_ref().map(|(reason, message)| (*reason, message.as_str()));
    match stuck.or(waits) {
        Some(why) => set(vmi, status::SYNCHRONIZED, ConditionStatus::False, Some(why), now),
        None => status::clear(vmi, status::SYNCHRONIZED),
    }
    if node_name(pod).is_some() || vmi.status.conditions != before {
        if let Some(waiting) = &claims.data_volumes {
            data_volumes(vmi, waiting, now);
        }
        ready(vmi, pod, now);
    }
}

fn provision(vmi: &mut VirtualMachineInstance, pod: &Pod, pending: &[String], now: Timestamp) {
    let waits = node_name(pod).is_none() && !pending.is_empty();
    if !waits {
        return status::clear(vmi, status::PROVISIONING);
    }
    if age(pod, now) >= PATIENCE {
        let message = format!(
            "waiting for storage: {} has no volume yet; where the storage class waits for its first consumer, the Pod is it",
            pending.join(", ")
        );
        let why = Some(("WaitForFirstConsumer", message.as_str()));
        set(vmi, status::PROVISIONING, ConditionStatus::True, why, now);
    }
}

/// Whether DataVolumes hold what they are to hold.
pub(super) fn data_volumes(vmi: &mut VirtualMachineInstance, waiting: &[String], now: Timestamp) {
    if waiting.is_empty() {
        let why = Some(("AllDVsReady", "all DataVolumes can be used"));
        return set(vmi, status::DATA_VOLUMES_READY, ConditionStatus::True, why, now);
    }
    let message = format!("waiting for {}", waiting.join(", "));
    let why = Some(("NotAllDVsReady", message.as_str()));
    set(vmi, status::DATA_VOLUMES_READY, ConditionStatus::False, why, now);
}

/// Whether the guest can be used.
fn ready(vmi: &mut VirtualMachineInstance, pod: &Pod, now: Timestamp) {
    let going = pod.metadata.deletion_timestamp.is_some();
    let terminating = match disruption(pod) {
        Some((reason, message)) => format!("the Pod is being deleted ({reason}): {message}"),
        None => "the Pod is being deleted".to_owned(),
    };
    let of_pod = condition(pod, "Ready");
    let slow = going::told(vmi, pod, now);
    let why = match (vmi.status.phase, of_pod) {
        _ if slow.is_some() => slow.as_ref().map(|(reason, message)| (*reason, message.as_str())),
        _ if going => Some(("PodTerminating", terminating.as_str())),
        (Phase::Running, Some(ready)) if ready.status == "True" => None,
        // Comes with the next word of kubelet, and is not worth a write of its own.
        (Phase::Running, Some(_)) if is_opening(vmi, pod) => return,
        (Phase::Running, Some(ready)) => Some((
            ready.reason.as_deref().unwrap_or("PodNotReady"),
            ready.message.as_deref().unwrap_or("the Pod is not ready"),
        )),
        (Phase::Running, None) => {
            Some(("PodConditionMissing", "the Pod does not say whether it is ready"))
        }
        _ => Some(NOT_RUNNING),
    };
    let is_ready = if why.is_some() { ConditionStatus::False } else { ConditionStatus::True };
    set(vmi, status::READY, is_ready, why, now);
}

/// What of these conditions is worth an event: what was not there before, and nobody else tells of the object.
pub(super) fn news(before: &VirtualMachineInstance, after: &VirtualMachineInstance) -> Vec<Notice> {
    let mut notices = Vec::new();
    let says = |vmi: &VirtualMachineInstance, kind: &str| {
        let said = vmi.status.condition(kind)?;
        let why = (said.reason.clone()?, said.message.clone().unwrap_or_default());
        (said.status == ConditionStatus::False).then_some(why)
    };
    // One after the other may be in the way; each time that nothing was, it is told.
    if let Some((reason, message)) = says(after, status::SYNCHRONIZED)
        && says(before, status::SYNCHRONIZED).is_none()
    {
        notices.push(Notice::warning("SyncFailed", format!("{reason}: {message}")));
    }
    let nowhere =
        |vmi| says(vmi, status::POD_SCHEDULED).filter(|(_, told)| told.starts_with(kvm::NOWHERE));
    if let Some((_, message)) = nowhere(after)
        && nowhere(before).is_none()
    {
        notices.push(Notice::warning("NoNodeWithKvm", message));
    }
    notices.extend(stopping_news(before, after));
    notices
}

/// The same of a guest that takes its time to power off, which is no failure.
pub(super) fn stopping_news(
    before: &VirtualMachineInstance,
    after: &VirtualMachineInstance,
) -> Option<Notice> {
    let reason = status::reason(after, status::READY)?;
    if status::reason(before, status::READY) == Some(reason) {
        return None;
    }
    let message = after.status.condition(status::READY)?.message.clone().unwrap_or_default();
    match reason {
        going::SLOW => Some(Notice::normal(going::SLOW, message)),
        going::STUCK => Some(Notice::warning(going::STUCK, message)),
        _ => None,
    }
}

pub(super) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

pub(super) fn unscheduled(pod: &Pod) -> Option<(&str, &str)> {
    let condition =
        condition(pod, "PodScheduled").filter(|condition| condition.status == "False")?;
    Some((
        condition.reason.as_deref().unwrap_or(UNSCHEDULABLE),
        condition.message.as_deref().unwrap_or_default(),
    ))
}

/// Why the container does not start, if something is in its way.
fn stuck<'a>(pod: &'a Pod, said: Option<&'a Said>) -> Option<(&'a str, &'a str)> {
    let waiting = container(pod).and_then(|status| status.state.as_ref()?.waiting.as_ref());
    match waiting.and_then(|waiting| Some((waiting.reason.as_deref()?, waiting))) {
        // These two are the ordinary way.
        None | Some(("ContainerCreating" | "PodInitializing", _)) => {
            let said = said.filter(|_| is_awaited(pod))?;
            Some((said.reason.as_str(), said.message.as_str()))
        }
        Some((reason, waiting)) => Some((reason, waiting.message.as_deref().unwrap_or_default())),
    }
}

/// The Pod has a node, and its container has not been made yet.
fn is_awaited(pod: &Pod) -> bool {
    let state = container(pod).and_then(|status| status.state.as_ref());
    let is_made = state.is_some_and(|state| state.running.is_some() || state.terminated.is_some());
    node_name(pod).is_some() && !is_made && !super::ending::has_ended(pod)
}

/// How long the container has been awaited, if it is.
pub(super) fn awaited_for(pod: &Pod, now: Timestamp) -> Option<SignedDuration> {
    let since =
        condition(pod, "PodScheduled").and_then(|placed| placed.last_transition_time.as_ref());
    let since = since.or(pod.metadata.creation_timestamp.as_ref());
    is_awaited(pod).then(|| since.map_or(SignedDuration::ZERO, |since| now.duration_since(since.0)))
}

/// How long ago the Pod was made.
pub(super) fn age(pod: &Pod, now: Timestamp) -> SignedDuration {
    let created = pod.metadata.creation_timestamp.as_ref();
    created.map_or(SignedDuration::ZERO, |created| now.duration_since(created.0))
}

/// How long the launcher's container has been running, if it is.
pub(super) fn up_for(pod: &Pod, now: Timestamp) -> Option<SignedDuration> {
    let running = container(pod)?.state.as_ref()?.running.as_ref()?;
    let started = running.started_at.as_ref();
    Some(started.map_or(SignedDuration::MAX, |started| now.duration_since(started.0)))
}
