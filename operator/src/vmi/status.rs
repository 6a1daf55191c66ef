//! The parts of a VirtualMachineInstance that the operator writes. Pure: each changes an object in memory.
//!
//! Who else writes what is in `docs/operator.md`.

use super::ending::Ending;
use super::last_words::with_console;
use crate::pod::memory_overhead;
use corten_resources::Quantity;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{
    AGENTS_CONDITIONS, BOOT_ID_ANNOTATION, ENDED, LAUNCHER_USER, NODE_NAME_LABEL, VMI_FINALIZER,
    VMI_FINALIZER_OLD,
};
use corten_resources::types::{Condition, ConditionStatus, Phase, PhaseTransition};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// Condition: the operator and the node can do what the object says. As in KubeVirt it is there only while they cannot.
pub(super) const SYNCHRONIZED: &str = "Synchronized";
/// Condition: the Pod has a node. Copied from the Pod.
pub(super) const POD_SCHEDULED: &str = "PodScheduled";
/// Condition: the guest runs, and its Pod is ready.
pub(super) const READY: &str = "Ready";
/// Condition: something that it needs is being made.
pub(super) const PROVISIONING: &str = "Provisioning";
/// Condition: what its DataVolumes are to hold is there.
pub(super) const DATA_VOLUMES_READY: &str = "DataVolumesReady";
/// Condition: it can be moved to another node while it runs.
pub(super) const LIVE_MIGRATABLE: &str = "LiveMigratable";

/// Why a guest that has not started, or has ended, cannot be used.
pub(super) const NOT_RUNNING: (&str, &str) = ("GuestNotRunning", "the guest is not running");
/// Why one without a Pod cannot.
pub(super) const NO_POD: (&str, &str) = ("PodNotExists", "there is no launcher Pod yet");
const NO_MIGRATION: (&str, &str) =
    ("MigrationNotServed", "migration comes with a later release: the VM stays on its node");

/// Moves to a phase, and notes when. Nothing if it is there already.
pub(super) fn enter(vmi: &mut VirtualMachineInstance, phase: Phase, now: Timestamp) {
    if vmi.status.phase == phase {
        return;
    }
    vmi.status.phase = phase;
    let transition = PhaseTransition {
        phase,
        phase_transition_timestamp: time(now),
        ..PhaseTransition::default()
    };
    vmi.status.phase_transition_timestamps.push(transition);
}

/// As Kubernetes writes times: whole seconds.
pub(super) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Takes charge of an object. Where admission has done so there is nothing left to write.
pub(crate) fn accept(vmi: &mut VirtualMachineInstance, now: Timestamp) {
    if !is_accepted(vmi) {
        vmi.finalizers_mut().push(VMI_FINALIZER.to_owned());
    }
    if vmi.status.phase.is_unset() {
        enter(vmi, Phase::Pending, now);
        vmi.status.runtime_user = Some(LAUNCHER_USER);
        set(vmi, READY, ConditionStatus::False, Some(NO_POD), now);
    }
}

/// Lets go of an object that is being deleted.
pub(super) fn release(vmi: &mut VirtualMachineInstance) {
    vmi.finalizers_mut().retain(|name| !is_ours(name));
}

/// The object is in our charge.
pub(super) fn is_accepted(vmi: &VirtualMachineInstance) -> bool {
    vmi.finalizers().iter().any(|name| is_ours(name))
}

fn is_ours(finalizer: &str) -> bool {
    finalizer == VMI_FINALIZER || finalizer == VMI_FINALIZER_OLD
}

/// The Pod has a node: from now on its agent may give it what the VM needs. One write, so that nobody sees a part of it.
pub(super) fn bind(vmi: &mut VirtualMachineInstance, pod: &Pod, node: &str, now: Timestamp) {
    let uid = pod.uid().unwrap_or_default();
    vmi.status.node_name = Some(node.to_owned());
    vmi.status.active_pods = [(uid, node.to_owned())].into();
    vmi.labels_mut().insert(NODE_NAME_LABEL.to_owned(), node.to_owned());
    if matches!(vmi.status.phase, Phase::Unset | Phase::Pending) {
        enter(vmi, Phase::Scheduling, now);
    }
    let image = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.containers.first())
        .and_then(|container| container.image.clone());
    vmi.status.launcher_container_image_version = image;
    vmi.status.qos_class = pod.status.as_ref().and_then(|status| status.qos_class.clone());
    if vmi.status.runtime_user.is_none() {
        vmi.status.runtime_user = Some(LAUNCHER_USER);
    }
    if let Ok(overhead) = memory_overhead(&vmi.spec) {
        let overhead = Quantity::of_bytes(overhead);
        vmi.status.memory.get_or_insert_default().memory_overhead = Some(overhead);
    }
    set(vmi, POD_SCHEDULED, ConditionStatus::True, None, now);
    set(vmi, LIVE_MIGRATABLE, ConditionStatus::False, Some(NO_MIGRATION), now);
}

/// The object lists the Pod as the one that runs it. Only then can its VM have run: agents give others nothing.
pub(super) fn lists(vmi: &VirtualMachineInstance, pod: &Pod) -> bool {
    vmi.status.active_pods.contains_key(&pod.uid().unwrap_or_default())
}

/// The Pod is bound as the object says.
pub(super) fn is_bound(vmi: &VirtualMachineInstance, pod: &Pod, node: &str) -> bool {
    let listed = vmi.status.active_pods.get(&pod.uid().unwrap_or_default());
    let label = vmi.labels().get(NODE_NAME_LABEL);
    let early = matches!(vmi.status.phase, Phase::Unset | Phase::Pending);
    !early
        && listed.is_some_and(|listed| listed == node)
        && label.is_some_and(|label| label == node)
}

/// Forgets the Pod of an attempt that came to nothing.
pub(super) fn unbind(vmi: &mut VirtualMachineInstance) {
    vmi.status.node_name = None;
    vmi.status.active_pods.clear();
    vmi.labels_mut().remove(NODE_NAME_LABEL);
    vmi.annotations_mut().remove(BOOT_ID_ANNOTATION);
    clear_agents(vmi);
}

/// The boot in which its launcher was seen running.
pub(super) fn noted_boot_id(vmi: &VirtualMachineInstance) -> Option<&str> {
    let annotations = vmi.metadata.annotations.as_ref()?;
    annotations.get(BOOT_ID_ANNOTATION).map(String::as_str).filter(|id| !id.is_empty())
}

/// The guest has ended.
pub(super) fn end(vmi: &mut VirtualMachineInstance, ending: &Ending, now: Timestamp) {
    enter(vmi, ending.phase, now);
    vmi.status.reason = Some(ending.reason.clone());
    set(vmi, READY, ConditionStatus::False, Some((NOT_RUNNING.0, &ending.message)), now);
    let whole = with_console(&ending.message, &ending.console);
    set(vmi, ENDED, ConditionStatus::True, Some((&ending.reason, &whole)), now);
    clear(vmi, SYNCHRONIZED);
    clear(vmi, PROVISIONING);
    clear_agents(vmi);
}

/// What the agent said was in the way of this Pod's VM is in nobody's way any more, and the agent has no part in it.
fn clear_agents(vmi: &mut VirtualMachineInstance) {
    AGENTS_CONDITIONS.iter().for_each(|kind| clear(vmi, kind));
}

/// Sets a condition; its time changes only with its status. The list is also others': theirs stay as they are.
pub(super) fn set(
    vmi: &mut VirtualMachineInstance,
    kind: &str,
    status: ConditionStatus,
    why: Option<(&str, &str)>,
    now: Timestamp,
) {
    let reason = why.map(|(reason, _)| reason.to_owned());
    let message = why.map(|(_, message)| message.to_owned()).filter(|message| !message.is_empty());
    let conditions = &mut vmi.status.conditions;
    if let Some(condition) = conditions.iter_mut().find(|condition| condition.kind == kind) {
        if condition.status != status {
            condition.status = status;
            condition.last_transition_time = Some(time(now));
        }
        condition.reason = reason;
        condition.message = message;
        return;
    }
    conditions.push(Condition {
        kind: kind.to_owned(),
        status,
        last_transition_time: Some(time(now)),
        reason,
        message,
        ..Condition::default()
    });
}

/// Takes a condition away.
pub(super) fn clear(vmi: &mut VirtualMachineInstance, kind: &str) {
    vmi.status.conditions.retain(|condition| condition.kind != kind);
}

/// The reason that a condition gives.
pub(super) fn reason<'a>(vmi: &'a VirtualMachineInstance, kind: &str) -> Option<&'a str> {
    vmi.status.condition(kind)?.reason.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::{minimal_vmi, now};

    #[test]
    fn entering_a_phase_twice_is_noted_once_and_in_whole_seconds() {
        let mut vmi = minimal_vmi(|_| ());
        enter(&mut vmi, Phase::Pending, now(0));
        enter(&mut vmi, Phase::Pending, now(5));
        enter(&mut vmi, Phase::Scheduling, now(7) + jiff::SignedDuration::from_millis(900));
        let times: Vec<_> = vmi
            .status
            .phase_transition_timestamps
            .iter()
            .map(|entry| (entry.phase, entry.phase_transition_timestamp.as_str()))
            .collect();
        assert_eq!(
            times,
            [(Phase::Pending, "2026-01-01T00:00:00Z"), (Phase::Scheduling, "2026-01-01T00:00:07Z")]
        );
    }

    #[test]
    fn the_time_of_a_condition_changes_with_its_status_only() {
        let mut vmi = minimal_vmi(|_| ());
        set(&mut vmi, READY, ConditionStatus::False, Some(("A", "a")), now(0));
        set(&mut vmi, READY, ConditionStatus::False, Some(("B", "b")), now(1));
        let first = vmi.status.condition(READY).unwrap().clone();
        set(&mut vmi, READY, ConditionStatus::True, None, now(2));
        let second = vmi.status.condition(READY).unwrap();
        assert_eq!(first.last_transition_time.as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!((first.reason.as_deref(), first.message.as_deref()), (Some("B"), Some("b")));
        assert_eq!(second.last_transition_time.as_deref(), Some("2026-01-01T00:00:02Z"));
        assert_eq!((&second.reason, &second.message), (&None, &None));
    }

    #[test]
    fn conditions_of_others_stay() {
        let mut vmi = minimal_vmi(|vmi| {
            vmi["status"] = serde_json::json!({ "conditions": [{ "type": "Paused", "status": "True", "lastProbeTime": null }] });
        });
        let before = vmi.status.conditions[0].clone();
        set(&mut vmi, READY, ConditionStatus::True, None, now(0));
        assert_eq!(vmi.status.conditions[0], before);
    }

    #[test]
    fn either_name_of_the_finalizer_is_ours() {
        for name in [VMI_FINALIZER, VMI_FINALIZER_OLD] {
            let mut vmi = minimal_vmi(|vmi| {
                vmi["metadata"]["finalizers"] = serde_json::json!([name, "other/one"]);
            });
            accept(&mut vmi, now(0));
            assert_eq!(vmi.finalizers(), [name, "other/one"]);
            release(&mut vmi);
            assert_eq!(vmi.finalizers(), ["other/one"]);
        }
    }

    #[test]
    fn what_admission_has_accepted_needs_no_write() {
        let mut vmi = minimal_vmi(|vmi| {
            vmi["metadata"]["finalizers"] = serde_json::json!([VMI_FINALIZER]);
            vmi["status"] = serde_json::json!({ "phase": "Pending", "runtimeUser": 107 });
        });
        let before = vmi.clone();
        accept(&mut vmi, now(0));
        assert_eq!(vmi, before);
    }
}
