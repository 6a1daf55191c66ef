//! Who may do what. The operator and the node agents have what their code calls, and nothing else; whoever has the usual
//! roles of a namespace has them for VirtualMachineInstances too.

use super::{NODE_AGENT, OPERATOR, labels, metadata};
use crate::cluster::GROUP;
use crate::names::SYSTEM_NAMESPACE;
use crate::types::VirtualMachineInstance;
use serde_json::{Value, json};

/// Service accounts, roles and bindings.
pub(super) fn objects() -> Vec<Value> {
    let instances = VirtualMachineInstance::PLURAL;
    let operator = json!([
        rule(&[GROUP], &[instances], &["get", "list", "watch", "patch"]),
        // With OwnerReferencesPermissionEnforcement on, an owner reference that blocks deletion needs it.
        rule(&[GROUP], &[&format!("{instances}/finalizers")], &["update"]),
        rule(&[""], &["pods"], &["get", "list", "watch", "create", "delete"]),
        rule(&["events.k8s.io"], &["events"], &["create", "patch"]),
    ]);
    let agent = json!([
        rule(&[GROUP], &[instances], &["get", "list", "watch", "patch"]),
        rule(&[""], &["pods"], &["get", "list", "watch"]),
    ]);
    let mut objects = Vec::new();
    for (name, rules) in [(OPERATOR, operator), (NODE_AGENT, agent)] {
        objects.push(
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name) }),
        );
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": name, "labels": labels(name) },
            "rules": rules,
        }));
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": name, "labels": labels(name) },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": SYSTEM_NAMESPACE }],
        }));
    }
    let read: &[&str] = &["get", "list", "watch"];
    let write: &[&str] =
        &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    for (role, verbs) in [("admin", write), ("edit", write), ("view", read)] {
        let mut labels = labels(OPERATOR);
        labels[format!("rbac.authorization.k8s.io/aggregate-to-{role}")] = json!("true");
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            // KubeVirt's names, which its users bind.
            "metadata": { "name": format!("{GROUP}:{role}"), "labels": labels },
            "rules": [rule(&[GROUP], &[instances], verbs)],
        }));
    }
    objects
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "verbs": verbs })
}
