//! Launcher Pods: only the operator makes them, and nobody changes what they are.

use super::{COLLECTOR, changes_of, not_the_operator, same, still_held, with_binding};
use crate::cluster::GROUP;
use crate::names::{
    APP_LABEL, CREATED_BY_LABEL, LAUNCHER, LAUNCHER_FINALIZER, VM_NAME_LABEL, VMI_ID_LABEL,
};
use crate::types::VirtualMachineInstance;
use serde_json::{Value, json};

pub(super) const NAME: &str = "corten-launcher-pods";

/// What changes a Pod's spec. A container that is added later could read and write its volumes, which are the VM's disks, and
/// memory that is taken from it is the guest's.
const CHANGED_BY: [&str; 3] = ["pods", "pods/ephemeralcontainers", "pods/resize"];

/// Anyone who may create Pods in the namespace could put one there under the name that comes next, or with the labels by
/// which launchers are found. And a Pod that is deleted by force while its node is cut off would free its name although the
/// VM runs on: its finalizer is taken off by the operator alone, on proof that nothing runs.
pub(super) fn policy(namespace: &str) -> Vec<Value> {
    let kind = VirtualMachineInstance::KIND;
    let launcher = |object: &str| {
        format!(
            "{object}.metadata.?labels[?'{APP_LABEL}'].orValue('') == '{LAUNCHER}' || \
             {object}.metadata.?ownerReferences.orValue([]).exists(o, \
             o.kind == '{kind}' && o.apiVersion.startsWith('{GROUP}/') && o.?controller.orValue(false))"
        )
    };
    let was = format!("oldObject != null && ({})", launcher("oldObject"));
    let kept = [APP_LABEL, CREATED_BY_LABEL, VM_NAME_LABEL, VMI_ID_LABEL]
        .map(|label| same(&format!("metadata.?labels[?'{label}']")))
        .into_iter()
        .chain([same("spec")])
        .collect::<Vec<_>>()
        .join(" && ");
    with_binding(
        NAME,
        json!({
            "matchConstraints": changes_of("", "v1", &CHANGED_BY, &["CREATE", "UPDATE"]),
            "matchConditions": [
                { "name": "of-a-launcher", "expression": format!("({}) || ({was})", launcher("object")) },
                not_the_operator(namespace),
            ],
            "variables": [{ "name": "was", "expression": was }],
            "validations": [
                {
                    "expression": "variables.was",
                    "message": format!(
                        "only Corten's operator makes Pods that a {kind} controls or that are labelled \
                         {APP_LABEL}={LAUNCHER}"
                    ),
                    "reason": "Forbidden",
                },
                {
                    "expression": format!("!variables.was || ({kept})"),
                    "message": format!(
                        "the Pod of a {kind} stays as Corten's operator made it: delete the {kind} and make it anew"
                    ),
                    "reason": "Forbidden",
                },
                {
                    // When an owner is deleted without its dependents, the collector takes the reference out.
                    "expression": format!(
                        "!variables.was || {} || request.userInfo.username == '{COLLECTOR}'",
                        same("metadata.?ownerReferences")
                    ),
                    "message": format!("the Pod of a {kind} stays its own: delete the {kind}"),
                    "reason": "Forbidden",
                },
                {
                    "expression": format!("!variables.was || {}", still_held(LAUNCHER_FINALIZER)),
                    "message": format!(
                        "finalizer {LAUNCHER_FINALIZER} goes when it is proven that the VM has ended: if its node is lost, \
                         delete the Node or taint it with node.kubernetes.io/out-of-service:NoExecute"
                    ),
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
    fn the_operator_is_known_by_its_namespace() {
        let text = Value::from(policy("elsewhere")).to_string();
        assert!(text.contains("system:serviceaccount:elsewhere:corten-operator"));
        assert!(!text.contains("system:serviceaccount:kubevirt:"));
    }
}
