//! Names, columns, versions and subresources of each kind, as KubeVirt has them.

use super::{describe, schema};
use crate::Kind;
use crate::cluster::{GROUP, VERSION};
use crate::types::{
    KubeVirtSpec, KubeVirtStatus, VirtualMachineInstanceMigrationSpec,
    VirtualMachineInstanceMigrationStatus, VirtualMachineInstanceReplicaSetSpec,
    VirtualMachineInstanceReplicaSetStatus, VirtualMachineInstanceSpec,
    VirtualMachineInstanceStatus, VirtualMachineSpec, VirtualMachineStatus,
};
use serde_json::{Value, json};

/// What clients of years ago write. The same schema: objects are not converted.
const OLD_VERSION: &str = "v1alpha3";

/// The definitions of every kind.
pub fn definitions() -> Vec<Value> {
    Kind::ALL.map(definition).into()
}

/// The definition of a kind.
///
/// Only the stored version is described: two descriptions of every field would make the definition too large for
/// `kubectl apply`, which keeps a copy of it in an annotation.
pub fn definition(kind: Kind) -> Value {
    let mut described = root_schema(kind);
    describe::tell_what_is_served(kind, &mut described);
    let mut plain = described.clone();
    describe::strip(&mut plain);
    let version = |name: &str, schema: Value| {
        let mut version = json!({
            "name": name,
            "served": true,
            "storage": name == VERSION,
            "additionalPrinterColumns": columns(kind),
            "schema": { "openAPIV3Schema": schema },
        });
        if let Some(subresources) = subresources(kind) {
            version["subresources"] = subresources;
        }
        if name == OLD_VERSION {
            version["deprecated"] = json!(true);
        }
        version
    };
    let (plural, name) = (kind.plural(), kind.name());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            "labels": { "app.kubernetes.io/part-of": "corten", GROUP: "" },
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "categories": ["all"],
                "kind": name,
                "listKind": format!("{name}List"),
                "plural": plural,
                "singular": name.to_lowercase(),
                "shortNames": short_names(kind),
            },
            "versions": [version(VERSION, described), version(OLD_VERSION, plain)],
        },
    })
}

fn root_schema(kind: Kind) -> Value {
    let (about, spec, status) = match kind {
        Kind::Instance => (
            "A virtual machine that runs, or is about to, or has run.",
            schema::of::<VirtualMachineInstanceSpec>(),
            schema::of::<VirtualMachineInstanceStatus>(),
        ),
        Kind::Machine => (
            "A virtual machine that may be started and stopped: it stays when its VirtualMachineInstance ends.",
            schema::of::<VirtualMachineSpec>(),
            schema::of::<VirtualMachineStatus>(),
        ),
        Kind::Migration => (
            "The wish that a VirtualMachineInstance moves to another node while it runs.",
            schema::of::<VirtualMachineInstanceMigrationSpec>(),
            schema::of::<VirtualMachineInstanceMigrationStatus>(),
        ),
        Kind::ReplicaSet => (
            "So many VirtualMachineInstances of one make.",
            schema::of::<VirtualMachineInstanceReplicaSetSpec>(),
            schema::of::<VirtualMachineInstanceReplicaSetStatus>(),
        ),
        Kind::KubeVirt => (
            "The installation itself: how a cluster's virtual machines are run.",
            schema::of::<KubeVirtSpec>(),
            schema::of::<KubeVirtStatus>(),
        ),
    };
    json!({
        "description": about,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": { "type": "object" },
            "spec": spec,
            "status": status,
        },
    })
}

fn short_names(kind: Kind) -> [&'static str; 2] {
    match kind {
        Kind::Instance => ["vmi", "vmis"],
        Kind::Machine => ["vm", "vms"],
        Kind::Migration => ["vmim", "vmims"],
        Kind::ReplicaSet => ["vmirs", "vmirss"],
        Kind::KubeVirt => ["kv", "kvs"],
    }
}

/// A VirtualMachineInstance has no status subresource, as KubeVirt's has none: label and status move in one write, and
/// clients write the object as one.
fn subresources(kind: Kind) -> Option<Value> {
    match kind {
        Kind::Instance => None,
        Kind::Machine | Kind::Migration | Kind::KubeVirt => Some(json!({ "status": {} })),
        Kind::ReplicaSet => Some(json!({
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.labelSelector",
            },
        })),
    }
}

fn columns(kind: Kind) -> Vec<Value> {
    let age = || column("Age", "date", ".metadata.creationTimestamp");
    let phase = || column("Phase", "string", ".status.phase");
    match kind {
        Kind::Instance => vec![
            age(),
            phase(),
            column("IP", "string", ".status.interfaces[0].ipAddress"),
            column("NodeName", "string", ".status.nodeName"),
            column("Ready", "string", &condition("Ready")),
            wide_column("Live-Migratable", &condition("LiveMigratable")),
            wide_column("Paused", &condition("Paused")),
        ],
        Kind::Machine => vec![
            age(),
            column("Status", "string", ".status.printableStatus"),
            column("Ready", "string", &condition("Ready")),
        ],
        Kind::Migration => vec![phase(), column("VMI", "string", ".spec.vmiName")],
        Kind::ReplicaSet => vec![
            column("Desired", "integer", ".spec.replicas"),
            column("Current", "integer", ".status.replicas"),
            column("Ready", "integer", ".status.readyReplicas"),
            age(),
        ],
        Kind::KubeVirt => vec![age(), phase()],
    }
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path })
}

/// One that is shown with `-o wide` only.
fn wide_column(name: &str, path: &str) -> Value {
    json!({ "name": name, "type": "string", "jsonPath": path, "priority": 1 })
}

fn condition(kind: &str) -> String {
    format!(".status.conditions[?(@.type=='{kind}')].status")
}
