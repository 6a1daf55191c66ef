//! A VirtualMachineInstance that is being deleted: first its Pods end, then they are let go, then it is. Pure.

use super::conditions::stopping_news;
use super::ending;
use super::fate::{Fate, fate_on, node_name};
use super::notice::Notice;
use super::observe::Observed;
use super::plan::{
    LOOK_AGAIN, Plan, fate_of, is_going, is_of, node_lost, pod_gone, told, unresponsive,
};
use super::{going, status};
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::types::ConditionStatus;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// How soon to let the object go after its Pods. The watch tells of them, unless a label was taken away.
const AFTER_PODS: Duration = Duration::from_secs(1);

/// The object is being deleted.
pub(super) fn delete(
    vmi: &mut VirtualMachineInstance,
    observed: &Observed,
    now: Timestamp,
    plan: &mut Plan,
) {
    if !status::is_accepted(vmi) {
        return;
    }
    let mut waiting = false;
    let mut proof = None;
    let own = observed.pod.iter().chain(&observed.earlier);
    let own: Vec<_> = own.filter(|pod| is_of(pod, vmi)).map(Arc::clone).collect();
    for pod in &own {
        match fate_of(vmi, pod, observed) {
            Fate::Dead(found) => {
                proof = proof.or(Some(found).filter(|found| found.is_of_node()));
                plan.release(pod);
                continue;
            }
            Fate::Unknown => {
                let node = node_name(pod).unwrap_or_default().to_owned();
                unresponsive(vmi, &node, now, plan);
            }
            Fate::Alive => slow(vmi, pod, now, plan),
        }
        waiting = true;
        if !is_going(pod) {
            let message = format!("Deleted virtual machine pod {}", pod.name_any());
            plan.notices.push(Notice::normal("SuccessfulDelete", message));
            plan.delete(pod);
        }
    }
    if !vmi.status.phase.is_final() {
        // A Pod that it lists and that is gone without a word: what is known is its node.
        let is_there = |uid: &String| own.iter().any(|pod| pod.uid().as_ref() == Some(uid));
        let listed = vmi.status.active_pods.clone();
        for (_, node) in listed.into_iter().filter(|(uid, _)| !is_there(uid)) {
            let there = observed.nodes.get(&node).map(AsRef::as_ref);
            match fate_on(there, status::noted_boot_id(vmi)) {
                Fate::Dead(found) => proof = Some(found),
                Fate::Unknown => {
                    unresponsive(vmi, &node, now, plan);
                    waiting = true;
                }
                Fate::Alive => {}
            }
        }
    }
    if waiting {
        // The watch tells of its end, unless its label was taken away.
        return plan.look_again(LOOK_AGAIN);
    }
    if !vmi.status.phase.is_final() {
        let pod = observed.pod.as_ref().filter(|pod| is_of(pod, vmi));
        let ending = pod.and_then(|pod| ending::ending(pod, vmi.spec.grace_period()));
        let ending = ending.or_else(|| proof.map(node_lost)).unwrap_or_else(pod_gone);
        status::end(vmi, &ending, now);
        // Its end is what was asked for.
        plan.notices.push(Notice::normal("Stopped", told(&ending)));
    }
    if plan.release.is_empty() {
        status::release(vmi);
    } else {
        // One after the other: nobody would look after a Pod whose object is gone.
        plan.look_again(AFTER_PODS);
    }
}

/// Its guest takes its time to power off. Told once.
fn slow(vmi: &mut VirtualMachineInstance, pod: &Pod, now: Timestamp, plan: &mut Plan) {
    let Some((reason, message)) = going::told(vmi, pod, now) else { return };
    let before = vmi.clone();
    status::set(vmi, status::READY, ConditionStatus::False, Some((reason, &message)), now);
    plan.notices.extend(stopping_news(&before, vmi));
}
