//! What Corten reports on a VirtualMachineInstance.

use super::{TOKENS_NODE, changes_of, is_from, not_the_operator, same, still_held, with_binding};
use crate::cluster::GROUP;
use crate::cluster::manifests::NODE_AGENT;
use crate::names::{
    NODE_NAME_LABEL, REPORTED_ANNOTATIONS, REPORTED_LABELS, VMI_FINALIZER, VMI_FINALIZER_OLD,
};
use crate::types::VirtualMachineInstance;
use serde_json::{Value, json};

pub(super) const NAME: &str = "corten-reported-state";

/// Only Corten writes what it reports on a VirtualMachineInstance, and a node agent only on those of its own node, and
/// nothing that decides which Pod may run which VM. Nobody changes a spec: its Pod was made for it, with what the
/// namespace's quota and the scheduler granted.
///
/// The object has no status subresource, as in KubeVirt, so a role that allows to patch it allows to patch all of it. A new
/// object has the status that the operator's webhook gave it, which refuses any other: that it waits.
pub(super) fn policy(namespace: &str) -> Vec<Value> {
    let label = format!("metadata.?labels[?'{NODE_NAME_LABEL}']");
    let labels = REPORTED_LABELS.map(|name| format!("metadata.?labels[?'{name}']"));
    let annotations = REPORTED_ANNOTATIONS.map(|name| format!("metadata.?annotations[?'{name}']"));
    let reported: Vec<_> = labels.into_iter().chain(annotations).collect();
    let all = |terms: Vec<String>| terms.join(" && ");
    let kept =
        all([same("?status")].into_iter().chain(reported.iter().map(|path| same(path))).collect());
    let nobodys = [
        "?status.?activePods",
        "?status.?nodeName",
        "?status.?interfaces",
        "?status.?virtualMachineRevisionName",
    ];
    let absent = all(nobodys
        .map(str::to_owned)
        .iter()
        .chain(&reported)
        .map(|path| format!("!object.{path}.hasValue()"))
        .chain(["object.?status.?phase.orValue('') in ['', 'Pending']".to_owned()])
        .collect());
    // All of it but status, and of that nothing that decides who runs where, or that it is over.
    let untouched = all(["labels", "annotations", "finalizers", "ownerReferences"]
        .map(|field| same(&format!("metadata.?{field}")))
        .into_iter()
        .chain(["?status.?activePods", "?status.?nodeName"].map(same))
        .collect());
    let agents_part = format!(
        "oldObject != null && oldObject.{label}.orValue('') == variables.node && variables.node != '' && {untouched} && \
         ({} || (object.?status.?phase.orValue('') == 'Running' && \
         !(oldObject.?status.?phase.orValue('') in ['Succeeded', 'Failed'])))",
        same("?status.?phase"),
    );
    let what = format!(
        "status, label {} and annotations {}",
        REPORTED_LABELS.join(" and "),
        REPORTED_ANNOTATIONS.join(" and ")
    );
    with_binding(
        NAME,
        json!({
            "matchConstraints": changes_of(GROUP, "*", &[VirtualMachineInstance::PLURAL], &["CREATE", "UPDATE"]),
            "matchConditions": [not_the_operator(namespace)],
            "variables": [
                { "name": "agent", "expression": is_from(NODE_AGENT, namespace) },
                { "name": "node", "expression": TOKENS_NODE },
            ],
            "validations": [
                {
                    "expression": format!("oldObject == null || {}", same("spec")),
                    "message": "the spec cannot be changed: delete the VirtualMachineInstance and make it anew",
                    "reason": "Invalid",
                },
                {
                    "expression": format!("variables.agent || oldObject != null || ({absent})"),
                    "message": format!("leave out {what}: they are what Corten reports"),
                    "reason": "Invalid",
                },
                {
                    "expression": format!("variables.agent || oldObject == null || ({kept})"),
                    "message": format!("only Corten writes {what}: leave them as they are"),
                    "reason": "Forbidden",
                },
                {
                    // Without it the name would be free, and a second VM could be made while the first runs.
                    "expression": format!(
                        "oldObject == null || ({})",
                        all([VMI_FINALIZER, VMI_FINALIZER_OLD].map(still_held).to_vec())
                    ),
                    "message": format!(
                        "finalizer {VMI_FINALIZER} goes when it is proven that the VM has ended: delete the \
                         VirtualMachineInstance; if its node is lost, delete the Node or taint it with \
                         node.kubernetes.io/out-of-service:NoExecute"
                    ),
                    "reason": "Forbidden",
                },
                {
                    "expression": format!("!variables.agent || ({agents_part})"),
                    "message": "a node agent writes status of its own node's VirtualMachineInstances, and not which Pod runs them",
                    "reason": "Forbidden",
                },
            ],
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finalizer_is_kept_by_its_present_and_its_earlier_name() {
        let policy = policy("kubevirt");
        let validations = policy[0]["spec"]["validations"].as_array().unwrap();
        let expression = |it: &Value| it["expression"].as_str().unwrap().to_owned();
        let guard = validations.iter().map(expression).find(|it| {
            let kept = [VMI_FINALIZER, VMI_FINALIZER_OLD].map(still_held);
            kept.iter().all(|kept| it.contains(kept.as_str()))
        });
        assert!(guard.unwrap().starts_with("oldObject == null || "));
    }
}
