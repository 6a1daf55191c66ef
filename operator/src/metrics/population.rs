//! How many VMs there are, where, and how long they took to get there.
//!
//! They are counted from the controllers' watches; only the leader has those, so only its numbers are not 0.

use super::{TRANSITION, TRANSITION_FROM_CREATION};
use crate::control::Stores;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::types::{Phase, PhaseTransition};
use corten_serving::metrics::{Kind, heading, whole};
use futures::StreamExt;
use jiff::Timestamp;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{LazyLock, Mutex, PoisonError};

/// VMs that the watches have told of.
#[derive(Default)]
pub struct Population(Mutex<Known>);

struct Known {
    /// Since when this process may be the one to measure: what happened before was measured by another leader, or is in
    /// the histograms already.
    since: Timestamp,
    instances: BTreeMap<(String, String), Instance>,
    /// Status of each VirtualMachine.
    machines: BTreeMap<(String, String), String>,
}

impl Default for Known {
    fn default() -> Self {
        let (instances, machines) = (BTreeMap::new(), BTreeMap::new());
        Self { since: Timestamp::now(), instances, machines }
    }
}

struct Instance {
    uid: String,
    phase: Phase,
    node: String,
    /// Of its phases' times, so many were measured.
    measured: usize,
}

static POPULATION: LazyLock<Population> = LazyLock::new(Population::default);

/// That of this process.
pub fn population() -> &'static Population {
    &POPULATION
}

/// Notes all that comes, changes and goes, until the watches end.
pub async fn follow(stores: &Stores) {
    let instances = stores.instances.changes().for_each(|(object, gone)| {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        match &object.0 {
            Ok(vmi) if !gone => population().note_instance(vmi),
            _ => population().forget_instance(&namespace, &name),
        }
        ready(())
    });
    let machines = stores.machines.changes().for_each(|(object, gone)| {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        match &object.0 {
            Ok(vm) if !gone => {
                let status = vm.status.printable_status.as_deref().unwrap_or_default();
                population().note_machine(&namespace, &name, status);
            }
            _ => population().forget_machine(&namespace, &name),
        }
        ready(())
    });
    futures::join!(instances, machines);
}

impl Population {
    /// A VirtualMachineInstance was looked at.
    pub fn note_instance(&self, vmi: &VirtualMachineInstance) {
        let uid = vmi.uid().unwrap_or_default();
        let entries = &vmi.status.phase_transition_timestamps;
        let key = (vmi.namespace().unwrap_or_default(), vmi.name_any());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.instances.get(&key).filter(|known| known.uid == uid);
        let first = before.map_or_else(
            || entries.iter().take_while(|it| time(it).is_none_or(|it| it < known.since)).count(),
            |known| known.measured,
        );
        measure(vmi, entries, first);
        let (phase, node) = (vmi.status.phase, vmi.status.node_name.clone().unwrap_or_default());
        known.instances.insert(key, Instance { uid, phase, node, measured: entries.len() });
    }

    /// A VirtualMachine was looked at; this is its printable status.
    pub fn note_machine(&self, namespace: &str, name: &str, status: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.machines.insert((namespace.to_owned(), name.to_owned()), status.to_owned());
    }

    /// The VirtualMachineInstance is gone.
    pub fn forget_instance(&self, namespace: &str, name: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.instances.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// The VirtualMachine is gone.
    pub fn forget_machine(&self, namespace: &str, name: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.machines.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// This replica leads no more, and sees nothing of what comes next.
    pub fn forget_all(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }

    pub(super) fn write(&self, text: &mut String) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut phases: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for instance in known.instances.values() {
            *phases.entry((&instance.node, name(instance.phase))).or_default() += 1;
        }
        let mut count = "kubevirt_vmi_phase_count";
        heading(text, count, "VirtualMachineInstances by node and phase.", Kind::Gauge);
        for ((node, phase), number) in phases {
            whole(text, count, &[("node", node), ("phase", phase)], number);
        }
        let info = "kubevirt_vmi_info";
        heading(text, info, "One for each VirtualMachineInstance.", Kind::Gauge);
        for ((namespace, vmi), instance) in &known.instances {
            let labels = [
                ("namespace", namespace.as_str()),
                ("name", vmi),
                ("node", &instance.node),
                ("phase", name(instance.phase)),
            ];
            whole(text, info, &labels, 1);
        }
        let mut machines: BTreeMap<&str, u64> = BTreeMap::new();
        for (namespace, _) in known.machines.keys() {
            *machines.entry(namespace).or_default() += 1;
        }
        count = "kubevirt_number_of_vms";
        heading(text, count, "VirtualMachines by namespace.", Kind::Gauge);
        for (namespace, number) in machines {
            whole(text, count, &[("namespace", namespace)], number);
        }
        let info = "kubevirt_vm_info";
        heading(text, info, "One for each VirtualMachine.", Kind::Gauge);
        for ((namespace, vm), status) in &known.machines {
            let labels = [("namespace", namespace.as_str()), ("name", vm), ("status", status)];
            whole(text, info, &labels, 1);
        }
    }
}

/// Measures phases from the one of this number on.
fn measure(vmi: &VirtualMachineInstance, entries: &[PhaseTransition], first: usize) {
    let created = vmi.metadata.creation_timestamp.as_ref().map(|time| time.0);
    for (index, entry) in entries.iter().enumerate().skip(first) {
        let Some(at) = time(entry) else { continue };
        let phase = name(entry.phase);
        if let Some(created) = created {
            TRANSITION_FROM_CREATION.observe(&[phase], seconds(created, at));
        }
        let last = index.checked_sub(1).and_then(|last| entries.get(last));
        if let Some((last, since)) = last.and_then(|last| Some((last, time(last)?))) {
            TRANSITION.observe(&[phase, name(last.phase)], seconds(since, at));
        }
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

fn time(entry: &PhaseTransition) -> Option<Timestamp> {
    entry.phase_transition_timestamp.parse().ok()
}

/// As KubeVirt's metrics write it.
fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Unset => "",
        Phase::Pending => "pending",
        Phase::Scheduling => "scheduling",
        Phase::Scheduled => "scheduled",
        Phase::Running => "running",
        Phase::Succeeded => "succeeded",
        Phase::Failed => "failed",
        Phase::WaitingForSync => "waitingforsync",
        Phase::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::minimal_vmi;
    use serde_json::json;

    fn written(population: &Population) -> Vec<String> {
        let mut text = String::new();
        population.write(&mut text);
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn instances_are_counted_by_node_and_phase_until_they_are_gone() {
        let population = Population::default();
        for (name, phase) in [("a", "Running"), ("b", "Running"), ("c", "Pending")] {
            population.note_instance(&minimal_vmi(|vmi| {
                vmi["metadata"]["name"] = json!(name);
                vmi["status"] = json!({ "phase": phase, "nodeName": if phase == "Running" { "n" } else { "" } });
            }));
        }
        population.note_machine("guests", "m", "Running");
        let lines = written(&population);
        assert_eq!(
            lines[..2],
            [
                "kubevirt_vmi_phase_count{node=\"\",phase=\"pending\"} 1",
                "kubevirt_vmi_phase_count{node=\"n\",phase=\"running\"} 2",
            ]
        );
        assert!(lines.contains(
            &"kubevirt_vmi_info{namespace=\"guests\",name=\"a\",node=\"n\",phase=\"running\"} 1".to_owned()
        ));
        assert!(lines.contains(&"kubevirt_number_of_vms{namespace=\"guests\"} 1".to_owned()));
        for name in ["a", "b", "c"] {
            population.forget_instance("guests", name);
        }
        population.forget_machine("guests", "m");
        assert_eq!(written(&population), Vec::<String>::new());
    }

    #[test]
    fn a_phase_is_measured_once() {
        let population = Population::default();
        let start = Timestamp::now();
        let later = |seconds: i64| (start + jiff::SignedDuration::from_secs(seconds)).to_string();
        let vmi = |phases: &[(&str, i64)]| {
            minimal_vmi(|vmi| {
                vmi["metadata"]["creationTimestamp"] = json!(later(10));
                let entries = phases.iter().map(
                    |(phase, at)| json!({ "phase": phase, "phaseTransitionTimestamp": later(*at) }),
                );
                vmi["status"]["phaseTransitionTimestamps"] = entries.collect();
            })
        };
        // WaitingForSync, so that no other test counts along.
        population.note_instance(&vmi(&[("Pending", 10), ("WaitingForSync", 13)]));
        population.note_instance(&vmi(&[("Pending", 10), ("WaitingForSync", 13)]));
        // Another leader has measured that, or this one before it lost its Lease.
        population.forget_all();
        population.note_instance(&vmi(&[("Pending", -20), ("WaitingForSync", -10)]));
        let mut text = String::new();
        TRANSITION.write(&mut text);
        assert!(
            text.contains("_count{phase=\"waitingforsync\",last_phase=\"pending\"} 1"),
            "{text}"
        );
        assert!(text.contains("_sum{phase=\"waitingforsync\",last_phase=\"pending\"} 3"), "{text}");
    }
}
