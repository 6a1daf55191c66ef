//! Guards that hold also while the operator is down.
//!
//! What opens a VM's resources to a Pod is that the VirtualMachineInstance lists it in `status.activePods`. The operator
//! lists Pods that it knows by name and controller reference. So two things must be the operator's alone: making such
//! Pods, and writing that status. Once made, a launcher's Pod is what the operator made of it: kubelet starts a container
//! whose image was changed again, and the operator finds its Pods by a label.
//!
//! | file | guards |
//! |---|---|
//! | `launchers` | launcher Pods |
//! | `state` | what Corten reports on a VirtualMachineInstance |
//! | `agents` | what node agents write elsewhere: their node, their Pods' status, events |

mod agents;
mod launchers;
mod state;

use super::{NODE_AGENT, OPERATOR, labels};
use serde_json::{Value, json};

/// Names of the policies, and of their bindings.
pub(super) const NAMES: [&str; 5] =
    [launchers::NAME, state::NAME, agents::NODES_NAME, agents::PODS_NAME, agents::EVENTS_NAME];

/// The node of the Pod that a service account's token was made for, as the API server found it in the token.
const TOKENS_NODE: &str =
    "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')";

/// Who takes owner references out of objects whose owner is deleted without them.
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// The policies with their bindings, for an installation in this namespace.
pub(super) fn objects(namespace: &str) -> Vec<Value> {
    [
        launchers::policy(namespace),
        state::policy(namespace),
        agents::of_nodes(namespace),
        agents::of_pods(namespace),
        agents::of_events(namespace),
    ]
    .concat()
}

/// Whether a request is a service account's of the installation.
fn is_from(name: &str, namespace: &str) -> String {
    format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{name}'")
}

/// A condition: whoever asks is not the operator.
fn not_the_operator(namespace: &str) -> Value {
    let expression = format!("!({})", is_from(OPERATOR, namespace));
    json!({ "name": "not-the-operator", "expression": expression })
}

/// A condition: a node agent asks.
fn an_agent(namespace: &str) -> Value {
    json!({ "name": "a-node-agent", "expression": is_from(NODE_AGENT, namespace) })
}

/// A field is as it was.
fn same(path: &str) -> String {
    format!("object.{path} == oldObject.{path}")
}

/// A finalizer that was there still is.
fn still_held(finalizer: &str) -> String {
    let held = |object: &str| format!("'{finalizer}' in {object}.metadata.?finalizers.orValue([])");
    format!("(!({}) || {})", held("oldObject"), held("object"))
}

fn changes_of(group: &str, version: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({ "resourceRules": [{
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations,
        "resources": resources,
    }] })
}

/// A policy with its binding. What it cannot judge it refuses.
fn with_binding(name: &str, mut spec: Value) -> Vec<Value> {
    spec["failurePolicy"] = json!("Fail");
    let metadata = json!({ "name": name, "labels": labels(OPERATOR) });
    vec![
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": spec,
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": { "policyName": name, "validationActions": ["Deny"] },
        }),
    ]
}
