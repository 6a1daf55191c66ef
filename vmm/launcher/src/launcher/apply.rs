//! Changes of the VMI while its guest runs.
//!
//! What the launcher heeds is known by its hash: the agent compares it with that of the object, and the object's status says whether its
//! user has what he asked for. A change is heeded whole or not at all.

use std::collections::BTreeSet;
use std::time::Duration;

use corten_link::launcher::{Answer, ToAgent};
use corten_resources::spec_hash;
use corten_resources::types::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use serde_json::{Map, Value};

use super::Launcher;
use crate::log::say;

/// Fields of the specification that are only the Pod's, the operator's or the launcher's business, with all that is in them.
const NOT_THE_MACHINES: &[&str] = &[
    "spec.affinity",
    "spec.evictionStrategy",
    "spec.livenessProbe",
    "spec.nodeSelector",
    "spec.priorityClassName",
    "spec.readinessProbe",
    "spec.schedulerName",
    // What has been started is not started again.
    "spec.startStrategy",
    "spec.terminationGracePeriodSeconds",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
];
/// The Pod's business, too, as long as the machine that is made of it stays the same.
const RESOURCES: &str = "spec.domain.resources";
/// As many paths are named.
const NAMED: usize = 8;

/// A VMI as it is heeded.
#[derive(Debug)]
pub(super) struct Heeded {
    pub(super) uid: String,
    spec: Value,
    pub(super) hash: String,
}

impl Heeded {
    /// As it came.
    pub(super) fn new(uid: String, object: &Map<String, Value>) -> Self {
        let spec = spec_of(object);
        Self { uid, hash: spec_hash(&spec), spec }
    }
}

impl Launcher {
    pub(super) fn on_apply(&mut self, id: u64, object: Map<String, Value>, grace_seconds: u32) {
        let Some(heeded) = &self.heeded else {
            return self.refuse(id, "no VM was started yet".into());
        };
        let spec = spec_of(&object);
        let vmi: VirtualMachineInstance = match serde_json::from_value(Value::Object(object)) {
            Ok(vmi) => vmi,
            Err(error) => {
                let reason = format!("the object is no VirtualMachineInstance: {error}");
                return self.refuse(id, reason);
            }
        };
        if vmi.metadata.uid != heeded.uid {
            let reason = format!("this launcher runs the VMI of uid {}", heeded.uid);
            return self.refuse(id, reason);
        }
        let refused = machine_changes(&heeded.spec, &spec);
        if !refused.is_empty() {
            return self.refuse(id, refusal(&refused));
        }
        self.stop.set_grace(Duration::from_secs(grace_seconds.into()));
        if heeded.spec != spec {
            say("changes of the VMI are heeded");
        }
        self.heeded = Some(Heeded { uid: vmi.metadata.uid, hash: spec_hash(&spec), spec });
        self.answer(id, Answer::Done);
        self.tell_applied();
    }

    /// Tells which specification is heeded.
    pub(super) fn tell_applied(&mut self) {
        if let Some(hash) = self.heeded.as_ref().map(|heeded| heeded.hash.clone()) {
            self.tell(&ToAgent::Applied { hash });
        }
    }
}

fn spec_of(object: &Map<String, Value>) -> Value {
    object.get("spec").cloned().unwrap_or_else(|| Map::new().into())
}

fn refusal(paths: &[String]) -> String {
    let named = paths[..paths.len().min(NAMED)].join(", ");
    let more = match paths.len().checked_sub(NAMED) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    format!("cannot be changed while the guest runs: {named}{more}; restart it to have them")
}

/// What differs between two specifications and would be another machine.
fn machine_changes(before: &Value, after: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    compare("spec", before, after, &mut paths);
    let is_same_size = size(before).is_some() && size(before) == size(after);
    paths.retain(|path| {
        let is_in = |field: &str| {
            path.strip_prefix(field)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let is_free = NOT_THE_MACHINES.iter().any(|field| is_in(field));
        !(is_free || is_same_size && is_in(RESOURCES))
    });
    paths
}

/// Processors and memory, which are derived from more than one field.
fn size(spec: &Value) -> Option<(u32, u64)> {
    let spec: VirtualMachineInstanceSpec = serde_json::from_value(spec.clone()).ok()?;
    Some((spec.topology().ok()?.vcpus(), spec.guest_memory().ok()?))
}

/// Paths at which two values differ. Lists of different lengths differ as a whole.
fn compare(path: &str, before: &Value, after: &Value, paths: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let value = |members: &Map<String, Value>| members.get(name).cloned();
                let (old, new) = (value(old).unwrap_or_default(), value(new).unwrap_or_default());
                compare(&format!("{path}.{name}"), &old, &new, paths);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (number, (old, new)) in old.iter().zip(new).enumerate() {
                compare(&format!("{path}[{number}]"), old, new, paths);
            }
        }
        (old, new) if old == new => {}
        _ => paths.push(path.into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> Value {
        json!({
            "terminationGracePeriodSeconds": 30,
            "domain": {
                "cpu": {"cores": 2},
                "memory": {"guest": "64Mi"},
                "resources": {"requests": {"cpu": "1"}},
                "devices": {"disks": [{"name": "root"}, {"name": "data"}]},
            },
            "volumes": [
                {"name": "root", "containerDisk": {"image": "i"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
            ],
        })
    }

    fn changed(pointer: &str, value: Value) -> Vec<String> {
        let mut after = spec();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match after.pointer_mut(parent).unwrap() {
            Value::Object(members) => drop(members.insert(name.into(), value)),
            Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
            _ => unreachable!(),
        }
        machine_changes(&spec(), &after)
    }

    #[test]
    fn what_is_not_the_machines_is_heeded() {
        let probe = json!({"tcpSocket": {"port": 1}});
        for (pointer, value) in [
            ("/terminationGracePeriodSeconds", json!(5)),
            ("/readinessProbe", probe.clone()),
            ("/livenessProbe", probe),
            ("/tolerations", json!([{"key": "k"}])),
            ("/nodeSelector", json!({"a": "b"})),
            ("/evictionStrategy", json!("None")),
            ("/startStrategy", json!("Paused")),
            ("/domain/resources/requests/cpu", json!("500m")),
            ("/domain/resources", json!({"limits": {"memory": "1Gi"}})),
        ] {
            assert_eq!(changed(pointer, value), [""; 0], "{pointer}");
        }
        assert_eq!(machine_changes(&spec(), &spec()), [""; 0]);
    }

    #[test]
    fn what_is_the_machines_is_refused_by_its_path() {
        for (pointer, value, path) in [
            ("/domain/cpu/cores", json!(3), "spec.domain.cpu.cores"),
            ("/domain/devices/disks/1/name", json!("e"), "spec.domain.devices.disks[1].name"),
            ("/domain/devices/disks", json!([]), "spec.domain.devices.disks"),
            (
                "/volumes/1/persistentVolumeClaim/claimName",
                json!("d"),
                "spec.volumes[1].persistentVolumeClaim.claimName",
            ),
            ("/networks", json!([{"name": "n", "pod": {}}]), "spec.networks"),
            ("/hostname", json!("h"), "spec.hostname"),
            ("/inTheFuture", json!(1), "spec.inTheFuture"),
            ("/affinityOfMine", json!({}), "spec.affinityOfMine"),
        ] {
            assert_eq!(changed(pointer, value), [path], "{pointer}");
        }
    }

    #[test]
    fn resources_that_make_another_machine_are_refused() {
        let without = |limit: &str| json!({"domain": {"resources": {"limits": {"memory": limit}}}});
        let refused = machine_changes(&without("1Gi"), &without("2Gi"));
        assert_eq!(refused, ["spec.domain.resources.limits.memory"]);
    }

    #[test]
    fn refusal_names_some_paths_and_counts_the_rest() {
        let paths: Vec<String> = (0..10).map(|number| format!("spec.f{number}")).collect();
        let text = refusal(&paths);
        assert!(text.contains("spec.f7 and 2 more;") && !text.contains("spec.f8"), "{text}");
        assert!(refusal(&paths[..1]).contains(": spec.f0; restart"));
    }
}
