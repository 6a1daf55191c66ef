//! An object of any kind as it was sent: what a webhook asks, and a client before it sends it.

use super::{
    Decoded, Finding, Findings, Reason, annotations, decode, instance, judge, machine, metadata,
    replica_set,
};
use crate::Kind;
use crate::served::Scope;
use crate::types::{
    KubeVirt, ObjectMeta, OtherFields, VirtualMachine, VirtualMachineInstance,
    VirtualMachineInstanceMigration, VirtualMachineInstanceReplicaSet,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Everything that keeps an object from being taken, and everything its user should know: the one judge of a webhook, of
/// `corten validate` and of `corten run`. `old` is what it follows, if it is there already.
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
    let judged = match kind {
        Kind::Instance => judged(new, scope, |vmi: &VirtualMachineInstance| {
            let mut findings = Findings::default();
            // On one that is there they are Corten's own.
            if old.is_none() {
                metadata::reported("metadata", &vmi.metadata, scope, &mut findings);
            }
            let annotations = &vmi.metadata.annotations;
            findings.extend(annotations::check("metadata.annotations", annotations));
            findings.extend(annotations::kept_back("metadata.annotations", annotations, scope));
            findings.add(instance(&vmi.spec, scope), Some);
            (findings, &vmi.metadata, &vmi.other)
        }),
        Kind::Machine => judged(new, scope, |vm: &VirtualMachine| {
            (machine(&vm.spec, scope), &vm.metadata, &vm.other)
        }),
        Kind::Migration => judged(new, scope, |migration: &VirtualMachineInstanceMigration| {
            let (spec, metadata) = (&migration.spec, &migration.metadata);
            let findings = judge(kind, spec, scope, |rules| super::migration::check(spec, rules));
            (findings, metadata, &migration.other)
        }),
        Kind::ReplicaSet => judged(new, scope, |set: &VirtualMachineInstanceReplicaSet| {
            (replica_set(&set.spec, scope), &set.metadata, &set.other)
        }),
        Kind::KubeVirt => judged(new, scope, |kubevirt: &KubeVirt| {
            let (spec, metadata) = (&kubevirt.spec, &kubevirt.metadata);
            let findings = judge(kind, spec, scope, |rules| super::kubevirt::check(spec, rules));
            (findings, metadata, &kubevirt.other)
        }),
    };
    judged.told()
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

/// What a kind has to say of an object: findings, and where its metadata and what no member stands for are.
type Said<'a> = (Findings, &'a ObjectMeta, &'a OtherFields);

/// Reads the object and asks. Of one with values that cannot be read only that is told which does not hang on them.
fn judged<T: DeserializeOwned>(
    value: &Value,
    scope: Scope,
    ask: impl FnOnce(&T) -> Said<'_>,
) -> Findings {
    let decoded: Decoded<T> = decode(value);
    let mut findings = Findings::default();
    findings.extend(decoded.findings.iter().cloned());
    let Some(object) = &decoded.object else { return findings };
    let (said, metadata, other) = ask(object);
    let mut own = Findings::default();
    metadata::unknown("", other, &mut own);
    metadata::fields("metadata", metadata, scope, &mut own);
    metadata::name(metadata, scope, &mut own);
    own.add(said, Some);
    let is_whole = decoded.findings.is_empty();
    let stands = |reason| matches!(reason, Reason::NotServed | Reason::NoEffect);
    findings.add(own, |finding| {
        (is_whole || (stands(finding.reason) && !decoded.is_about(&finding.path)))
            .then_some(finding)
    });
    findings
}
