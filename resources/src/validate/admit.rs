//! An object of any kind as it was sent: what a webhook asks, and a client before it sends it.

use super::{
    Finding, annotations, validate, validate_kubevirt, validate_machine, validate_migration,
    validate_replica_set,
};
use crate::Kind;
use crate::served::Scope;
use crate::types::{
    KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
    VirtualMachineInstanceReplicaSet,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Everything that keeps an object from being taken, and everything its user should know. `old` is what it follows, if it is
/// there already.
///
/// An object that is there may be labelled and lose its finalizers, whatever an earlier release has let in: only a
/// specification that changes is judged.
pub fn admit(kind: Kind, old: Option<&Value>, new: &Value, scope: Scope) -> Vec<Finding> {
    if let Some(old) = old {
        let same = |field: &str| new["metadata"][field] == old["metadata"][field];
        let is_going = !new["metadata"]["deletionTimestamp"].is_null();
        if is_going || (new["spec"] == old["spec"] && same("annotations")) {
            return Vec::new();
        }
        let changes = unchanged(kind, old, new);
        if !changes.is_empty() {
            return changes;
        }
    }
    match kind {
        Kind::Instance => decoded(new, |vmi: &VirtualMachineInstance| {
            let mut findings =
                annotations::check("metadata.annotations", &vmi.metadata.annotations);
            findings.extend(validate(&vmi.spec, scope));
            findings
        }),
        Kind::Machine => decoded(new, |vm: &VirtualMachine| validate_machine(&vm.spec, scope)),
        Kind::Migration => decoded(new, |migration: &VirtualMachineInstanceMigration| {
            validate_migration(&migration.spec, scope)
        }),
        Kind::ReplicaSet => decoded(new, |set: &VirtualMachineInstanceReplicaSet| {
            validate_replica_set(&set.spec, scope)
        }),
        Kind::KubeVirt => {
            decoded(new, |kubevirt: &KubeVirt| validate_kubevirt(&kubevirt.spec, scope))
        }
    }
}

/// What may not change has changed: the finding says what to do. Nothing if all of it is as it was.
pub fn unchanged(kind: Kind, old: &Value, new: &Value) -> Vec<Finding> {
    let (path, pointer, message) = match kind {
        Kind::Instance => (
            "spec",
            "/spec",
            "it cannot be changed: delete the VirtualMachineInstance and make it anew",
        ),
        Kind::Migration => {
            ("spec", "/spec", "it cannot be changed: delete the migration and make another")
        }
        Kind::ReplicaSet => (
            "spec.selector",
            "/spec/selector",
            "it cannot be changed: what it was made for would be nobody's",
        ),
        Kind::Machine | Kind::KubeVirt => return Vec::new(),
    };
    if old.pointer(pointer) == new.pointer(pointer) {
        return Vec::new();
    }
    vec![Finding::invalid(path, message)]
}

/// Reads the object and asks; what cannot be read is the finding, by its path.
fn decoded<T: DeserializeOwned>(
    value: &Value,
    ask: impl FnOnce(&T) -> Vec<Finding>,
) -> Vec<Finding> {
    // What the API server has not filled in yet is no mistake of its user's.
    let mut whole = value.clone();
    if let Value::Object(members) = &mut whole
        && members.get("metadata").is_none_or(Value::is_null)
    {
        members.insert("metadata".to_owned(), Value::Object(Map::new()));
    }
    match serde_path_to_error::deserialize(&whole) {
        Ok(object) => ask(&object),
        Err(error) => {
            let path = error.path().to_string();
            // The root's path is a dot, and a place that is not known a question mark.
            let path = match path.trim_matches(['.', '?']) {
                "" => "spec".to_owned(),
                path => path.to_owned(),
            };
            vec![Finding::invalid(path, format!("it cannot be read: {}", error.inner()))]
        }
    }
}
