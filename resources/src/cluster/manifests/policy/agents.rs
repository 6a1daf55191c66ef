//! What node agents write besides VirtualMachineInstances. A node that somebody has taken over must not speak for others.

use super::{TOKENS_NODE, an_agent, changes_of, same, with_binding};
use crate::cluster::GROUP;
use crate::cluster::manifests::NODE_AGENT;
use crate::types::VirtualMachineInstance;
use serde_json::{Value, json};

pub(super) const NODES_NAME: &str = "corten-agents-nodes";
pub(super) const PODS_NAME: &str = "corten-agents-pods";
pub(super) const EVENTS_NAME: &str = "corten-agents-events";

/// On its own node, labels and annotations of KubeVirt's.
pub(super) fn of_nodes(namespace: &str) -> Vec<Value> {
    let ours = |field: &str| {
        let of = |object: &str| format!("{object}.metadata.?{field}.orValue({{}})");
        let (new, old) = (of("object"), of("oldObject"));
        format!(
            "{new}.all(k, k.contains('kubevirt.io/') || (k in {old} && {old}[k] == {new}[k])) && \
             {old}.all(k, k.contains('kubevirt.io/') || k in {new})"
        )
    };
    with_binding(
        NODES_NAME,
        json!({
            "matchConstraints": changes_of("", "v1", &["nodes"], &["UPDATE"]),
            "matchConditions": [an_agent(namespace)],
            "variables": [{ "name": "node", "expression": TOKENS_NODE }],
            "validations": [{
                "expression": format!(
                    "object.metadata.name == variables.node && {} && {} && {}",
                    same("spec"), ours("labels"), ours("annotations")
                ),
                "message": "a node agent writes labels and annotations of kubevirt.io on its own node",
                "reason": "Forbidden",
            }],
        }),
    )
}

/// The status of Pods on its own node, should it be allowed to write any: its role does not.
pub(super) fn of_pods(namespace: &str) -> Vec<Value> {
    with_binding(
        PODS_NAME,
        json!({
            "matchConstraints": changes_of("", "v1", &["pods/status"], &["UPDATE"]),
            "matchConditions": [an_agent(namespace)],
            "variables": [{ "name": "node", "expression": TOKENS_NODE }],
            "validations": [{
                "expression": "oldObject.spec.?nodeName.orValue('') == variables.node && variables.node != ''",
                "message": "a node agent writes the status of Pods on its own node",
                "reason": "Forbidden",
            }],
        }),
    )
}

/// Events of VirtualMachineInstances, in the name of its own node.
pub(super) fn of_events(namespace: &str) -> Vec<Value> {
    let kind = VirtualMachineInstance::KIND;
    with_binding(
        EVENTS_NAME,
        json!({
            "matchConstraints": changes_of("events.k8s.io", "v1", &["events"], &["CREATE", "UPDATE"]),
            "matchConditions": [an_agent(namespace)],
            "variables": [{ "name": "node", "expression": TOKENS_NODE }],
            "validations": [{
                "expression": format!(
                    "oldObject == null && variables.node != '' && \
                     object.?regarding.?kind.orValue('') == '{kind}' && \
                     object.?regarding.?apiVersion.orValue('').startsWith('{GROUP}/') && \
                     object.?reportingController.orValue('') == '{NODE_AGENT}' && \
                     object.?reportingInstance.orValue('') == variables.node"
                ),
                "message": format!("a node agent tells events of {kind}s, in the name of its own node"),
                "reason": "Forbidden",
            }],
        }),
    )
}
