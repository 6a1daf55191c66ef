//! Objects for tests.

use crate::control::owner;
use crate::vmi::testing::minimal_vmi;
use corten_resources::cluster::{VirtualMachineInstance, VirtualMachineInstanceReplicaSet};
use corten_resources::names::replica_name;
use corten_resources::types::Phase;
use serde_json::{Value, json};

/// A set that is to have so many, with `change` made to it.
pub(super) fn set(
    replicas: i32,
    change: impl FnOnce(&mut Value),
) -> VirtualMachineInstanceReplicaSet {
    let mut set = json!({
        "metadata": { "name": "web", "namespace": "guests", "uid": "set-uid", "resourceVersion": "5" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" }, "annotations": { "note": "a" } },
                "spec": minimal_vmi(|_| ()).spec,
            },
        },
    });
    change(&mut set);
    serde_json::from_value(set).unwrap()
}

/// What it has at a place, ready unless `change` says otherwise.
pub(super) fn member(
    place: u32,
    phase: Phase,
    change: impl FnOnce(&mut Value),
) -> VirtualMachineInstance {
    minimal_vmi(|vmi| {
        vmi["metadata"]["name"] = json!(replica_name("web", "set-uid", place));
        vmi["metadata"]["uid"] = json!(format!("member-{place}"));
        vmi["metadata"]["ownerReferences"] = json!([owner::reference(&set(0, |_| ()))]);
        vmi["status"]["phase"] = json!(phase);
        vmi["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        change(vmi);
    })
}
