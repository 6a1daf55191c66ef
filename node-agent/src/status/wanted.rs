//! Facts -> what the object should say. Pure.

use corten_resources::difference;
use corten_resources::types::{Phase, VirtualMachineInstance};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::Facts;
use super::{conditions, guest, interfaces, machine, phase};
use crate::identity::Known;

/// The merge patch that makes the status of `vmi` say what is known of it, if that is news and ours to say.
///
/// It holds the resourceVersion, so it fails if the object has changed meanwhile.
pub fn patch(
    vmi: &VirtualMachineInstance,
    pod_uid: &str,
    known: &Known,
    facts: &Facts,
    now: Timestamp,
) -> Option<Value> {
    let is_ours = vmi.status.active_pods.get(pod_uid) == Some(&known.node);
    let before = matches!(vmi.status.phase, Phase::Pending | Phase::Scheduling | Phase::Scheduled);
    if !is_ours || !(before || vmi.status.phase == Phase::Running) {
        return None;
    }
    let mut status = vmi.status.clone();
    if let Some(times) = facts.times {
        if before {
            phase::run(&mut status, times);
        }
        machine::write(&mut status, &vmi.spec);
        interfaces::write(&mut status, vmi, known.pod(pod_uid), facts);
        if let Some(report) = &facts.guest {
            guest::write(&mut status, report);
        }
    }
    conditions::write(&mut status, facts, facts.times.is_some(), now);
    let value = |status| serde_json::to_value(status).ok();
    let changed = difference(&value(&vmi.status)?, &value(&status)?)?;
    let version = vmi.metadata.other.get("resourceVersion")?;
    Some(json!({ "metadata": { "resourceVersion": version }, "status": changed }))
}
