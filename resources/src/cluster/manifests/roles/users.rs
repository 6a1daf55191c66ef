//! Roles that users of KubeVirt bind, by its names. Those of a namespace become part of a cluster's admin, edit and view.
//!
//! Status is in none of them: what Corten reports is written by Corten. The group of subresources is served by a later
//! release; roles that name it do no harm, and bindings need not be made anew.

use super::{READ, role, rule};
use crate::Kind;
use crate::cluster::GROUP;
use crate::cluster::manifests::{OPERATOR, labels};
use serde_json::{Value, json};

/// What virtctl asks for.
const SUBRESOURCES: &str = "subresources.kubevirt.io";

/// What a guest says of itself, and what a machine comes to.
const LOOK: [&str; 4] = [
    "virtualmachineinstances/filesystemlist",
    "virtualmachineinstances/guestosinfo",
    "virtualmachineinstances/userlist",
    "virtualmachines/expand-spec",
];
/// Ways into a guest.
const ENTER: [&str; 7] = [
    "virtualmachineinstances/console",
    "virtualmachineinstances/portforward",
    "virtualmachineinstances/usbredir",
    "virtualmachineinstances/vnc",
    "virtualmachineinstances/vnc/screenshot",
    "virtualmachineinstances/vsock",
    "virtualmachines/portforward",
];
/// What is done to a machine.
const ACT: [&str; 17] = [
    "virtualmachineinstances/addvolume",
    "virtualmachineinstances/freeze",
    "virtualmachineinstances/pause",
    "virtualmachineinstances/removevolume",
    "virtualmachineinstances/reset",
    "virtualmachineinstances/softreboot",
    "virtualmachineinstances/unfreeze",
    "virtualmachineinstances/unpause",
    "virtualmachines/addvolume",
    "virtualmachines/memorydump",
    "virtualmachines/removememorydump",
    "virtualmachines/removevolume",
    "virtualmachines/restart",
    "virtualmachines/start",
    "virtualmachines/stop",
    "virtualmachineinstances/evacuate/cancel",
    "virtualmachines/evacuate/cancel",
];

pub(super) fn objects() -> Vec<Value> {
    let write = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let migrations = Kind::Migration.plural();
    let machines = [Kind::Machine, Kind::Instance, Kind::ReplicaSet].map(Kind::plural);
    let scale = format!("{}/scale", Kind::ReplicaSet.plural());
    // As in KubeVirt, to move machines from node to node is not a matter of a namespace.
    let own = json!([
        rule(&[GROUP], &machines, &write),
        rule(&[GROUP], &[&scale], &["get", "update", "patch"]),
        rule(&[GROUP], &[migrations], READ),
        rule(&[SUBRESOURCES], &[&LOOK[..], &ENTER].concat(), &["get"]),
        rule(&[SUBRESOURCES], &ACT, &["update"]),
        rule(&[SUBRESOURCES], &["expand-vm-spec"], &["update"]),
    ]);
    let view = json!([
        rule(&[GROUP], &[&machines[..], &[migrations]].concat(), READ),
        rule(&[GROUP], &[&scale], &["get"]),
        rule(&[SUBRESOURCES], &LOOK, &["get"]),
        rule(&[SUBRESOURCES], &["expand-vm-spec"], &["update"]),
    ]);
    let migrate = json!([
        rule(&[GROUP], &[migrations], &write),
        rule(&[SUBRESOURCES], &["virtualmachines/migrate"], &["update"]),
    ]);
    let everybody = json!([
        rule(&[GROUP], &[Kind::KubeVirt.plural()], &["get", "list"]),
        rule(&[SUBRESOURCES], &["version", "guestfs"], &["get", "list"]),
    ]);
    let named = |name: &str| format!("{GROUP}:{name}");
    let mut objects = Vec::new();
    for (name, rules) in [("admin", &own), ("edit", &own), ("view", &view)] {
        let mut labels = labels(OPERATOR);
        labels[format!("rbac.authorization.k8s.io/aggregate-to-{name}")] = json!("true");
        let metadata = json!({ "name": named(name), "labels": labels });
        objects.push(role("ClusterRole", &metadata, rules));
    }
    for (name, rules) in [("migrate", &migrate), ("default", &everybody)] {
        let metadata = json!({ "name": named(name), "labels": labels(OPERATOR) });
        objects.push(role("ClusterRole", &metadata, rules));
    }
    let metadata = json!({ "name": named("default"), "labels": labels(OPERATOR) });
    let group = json!([{
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Group",
        "name": "system:authenticated",
    }]);
    objects.push(super::binding("ClusterRole", &metadata, &named("default"), &group));
    objects
}
