//! Who may do what. The operator and the node agents have what their code calls, and nothing else.
//!
//! | file | holds |
//! |---|---|
//! | `operator`, `agent` | Corten's own service accounts |
//! | `users` | roles that users of KubeVirt bind, and that become part of a cluster's usual ones |

mod agent;
mod operator;
mod users;

use super::labels;
use serde_json::{Value, json};

/// Service accounts, roles and bindings.
pub(super) fn objects(namespace: &str) -> Vec<Value> {
    [operator::objects(namespace), agent::objects(namespace), users::objects()].concat()
}

/// What only reads.
const READ: &[&str] = &["get", "list", "watch"];

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "verbs": verbs })
}

/// One that holds for objects of these names only.
fn rule_for(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs })
}

fn service_account(name: &str, namespace: &str) -> Value {
    let metadata = super::metadata(name, namespace);
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata })
}

/// A role for the whole cluster, and its binding to the service account of the same name.
fn cluster_role(name: &str, namespace: &str, rules: &Value) -> Vec<Value> {
    let metadata = json!({ "name": name, "labels": labels(name) });
    let subjects = json!([{ "kind": "ServiceAccount", "name": name, "namespace": namespace }]);
    vec![role("ClusterRole", &metadata, rules), binding("ClusterRole", &metadata, name, &subjects)]
}

/// A role for the namespace of the installation, likewise.
fn own_role(name: &str, namespace: &str, rules: &Value) -> Vec<Value> {
    let metadata = super::metadata(name, namespace);
    let subjects = json!([{ "kind": "ServiceAccount", "name": name, "namespace": namespace }]);
    vec![role("Role", &metadata, rules), binding("Role", &metadata, name, &subjects)]
}

fn role(kind: &str, metadata: &Value, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": rules,
    })
}

fn binding(kind: &str, metadata: &Value, name: &str, subjects: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{kind}Binding"),
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name },
        "subjects": subjects,
    })
}
