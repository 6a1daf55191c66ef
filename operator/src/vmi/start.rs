//! A VirtualMachineInstance without a Pod: it gets one, or is told why not. Pure.

use super::claims::{Standing, standing};
use super::conditions::data_volumes;
use super::ending::Setback;
use super::fate::{Fate, fate_on};
use super::live::next_attempt;
use super::notice::Notice;
use super::observe::{Observed, attempt};
use super::plan::{LOOK_AGAIN, Plan, end, is_dead, node_lost, pod_gone, unresponsive};
use super::status;
use crate::Settings;
use crate::pod::launcher_pod;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::served::Scope;
use corten_resources::types::{ConditionStatus, Phase};
use corten_resources::validate::{Finding, validate};
use jiff::Timestamp;
use kube::ResourceExt;

/// Why there is no Pod.
struct Hindrance {
    reason: String,
    message: String,
    /// The event; none if it is only a matter of time.
    event: Option<&'static str>,
}

/// There is no Pod.
pub(super) fn start(
    vmi: &mut VirtualMachineInstance,
    observed: &Observed,
    settings: &Settings,
    now: Timestamp,
    plan: &mut Plan,
) {
    if !vmi.status.active_pods.is_empty() {
        return gone(vmi, observed, now, plan);
    }
    let mut findings = validate(&vmi.spec, Scope::Cluster);
    findings.retain(Finding::is_refusal);
    if let Some(first) = findings.first() {
        let message = findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let reason = first.reason.as_str().to_owned();
        return hinder(vmi, Hindrance { reason, message, event: Some("SyncFailed") }, now, plan);
    }
    create(vmi, observed, settings, now, plan);
}

/// What can be run gets its Pod, if all that it needs is there.
pub(super) fn create(
    vmi: &mut VirtualMachineInstance,
    observed: &Observed,
    settings: &Settings,
    now: Timestamp,
    plan: &mut Plan,
) {
    if let Some(pod) = observed.left.iter().find(|pod| !is_dead(vmi, pod, observed)) {
        let message = format!(
            "Pod {} of an earlier VirtualMachineInstance of this name may still run the VM: it is deleted, and this one starts once its end is proven",
            pod.name_any()
        );
        let reason = "EarlierPodRuns".to_owned();
        hinder(vmi, Hindrance { reason, message, event: Some("SyncFailed") }, now, plan);
        return plan.look_again(LOOK_AGAIN);
    }
    let claims = standing(&vmi.spec, &observed.claims);
    if let Some(hindrance) = hindrance(&claims) {
        if let Some(waiting) = &claims.data_volumes {
            data_volumes(vmi, waiting, now);
        }
        return hinder(vmi, hindrance, now, plan);
    }
    match launcher_pod(vmi, attempt(vmi), &observed.claims, settings) {
        Ok(pod) => {
            // What stands in Synchronized goes away when the Pod is there: until then it may be why there is none.
            let message = format!("Created virtual machine pod {}", pod.name_any());
            plan.notices.push(Notice::normal("SuccessfulCreate", message));
            plan.create = Some(Box::new(pod));
        }
        Err(found) => {
            let (reason, message) = (found.reason.as_str().to_owned(), found.to_string());
            hinder(vmi, Hindrance { reason, message, event: Some("SyncFailed") }, now, plan);
        }
    }
}

/// What is wrong with claims. One without a volume is none: the Pod may be the consumer that it waits for.
fn hindrance(claims: &Standing) -> Option<Hindrance> {
    let named = |names: &[String]| names.join(", ");
    if !claims.missing.is_empty() {
        return Some(Hindrance {
            reason: "FailedPvcNotFound".to_owned(),
            message: format!("PersistentVolumeClaim {} is not there", named(&claims.missing)),
            event: Some("FailedPvcNotFound"),
        });
    }
    if !claims.lost.is_empty() {
        let names = named(&claims.lost);
        return Some(Hindrance {
            reason: "ClaimLost".to_owned(),
            message: format!("the volume of PersistentVolumeClaim {names} is gone"),
            event: Some("SyncFailed"),
        });
    }
    (!claims.filling.is_empty()).then(|| Hindrance {
        reason: "ClaimNotFilled".to_owned(),
        message: format!("PersistentVolumeClaim {} is being filled", named(&claims.filling)),
        event: None,
    })
}

/// Says why there is no Pod, in conditions and, once, in an event.
fn hinder(vmi: &mut VirtualMachineInstance, hindrance: Hindrance, now: Timestamp, plan: &mut Plan) {
    let Hindrance { reason, message, event } = hindrance;
    let told = vmi.status.condition(status::SYNCHRONIZED).and_then(|known| known.message.as_ref());
    if let Some(event) = event.filter(|_| told != Some(&message)) {
        plan.notices.push(Notice::warning(event, message.clone()));
    }
    let why = Some((reason.as_str(), message.as_str()));
    if event.is_some() {
        status::clear(vmi, status::PROVISIONING);
        status::set(vmi, status::SYNCHRONIZED, ConditionStatus::False, why, now);
    } else {
        status::clear(vmi, status::SYNCHRONIZED);
        status::set(vmi, status::PROVISIONING, ConditionStatus::True, why, now);
    }
    status::set(vmi, status::READY, ConditionStatus::False, Some(status::NO_POD), now);
}

/// There was a Pod, on a node, and it is gone: somebody took away what held it, or it was made without.
fn gone(vmi: &mut VirtualMachineInstance, observed: &Observed, now: Timestamp, plan: &mut Plan) {
    let node = vmi.status.active_pods.values().next().cloned().unwrap_or_default();
    let there = observed.nodes.get(&node).map(AsRef::as_ref);
    match fate_on(there, status::noted_boot_id(vmi)) {
        Fate::Dead(proof) if vmi.status.phase == Phase::Running => {
            end(vmi, &node_lost(proof), now, plan);
        }
        Fate::Dead(proof) => {
            let setback =
                Setback { reason: "NodeLost".to_owned(), message: proof.text().to_owned() };
            next_attempt(vmi, &setback, "its Pod", now, plan);
        }
        // kubelet ends what is not in the API server; that is all there is to go by.
        Fate::Alive => end(vmi, &pod_gone(), now, plan),
        Fate::Unknown => {
            unresponsive(vmi, &node, now, plan);
            plan.look_again(LOOK_AGAIN);
        }
    }
}
