//! Guards that hold also while the operator is down.

use super::{OPERATOR, labels};
use crate::cluster::GROUP;
use crate::names::SYSTEM_NAMESPACE;
use crate::types::VirtualMachineInstance;
use serde_json::{Value, json};

/// Only the operator makes Pods that it would take for its own.
///
/// The operator knows its Pods by name and controller reference, and lists them in `status.activePods`, which is what
/// opens a VM's resources to a Pod. Anyone who may create Pods in the namespace could put one there under the name that
/// comes next. Labels alone give a Pod nothing, so they are not guarded.
pub(super) fn objects() -> Vec<Value> {
    const NAME: &str = "corten-launcher-pods";
    let operator = format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{OPERATOR}");
    let kind = VirtualMachineInstance::KIND;
    let owned = |object: &str| {
        format!(
            "has({object}.metadata.ownerReferences) && {object}.metadata.ownerReferences.exists(o, \
             o.kind == '{kind}' && o.apiVersion.startsWith('{GROUP}/') && has(o.controller) && o.controller)"
        )
    };
    vec![
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": NAME, "labels": labels(OPERATOR) },
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["pods"],
                }] },
                "matchConditions": [
                    { "name": "controlled-by-a-vmi", "expression": owned("object") },
                    // Others may change a Pod that is so already: kubelet and users do, in status and labels.
                    { "name": "newly", "expression": format!("oldObject == null || !({})", owned("oldObject")) },
                ],
                "validations": [{
                    "expression": format!("request.userInfo.username == '{operator}'"),
                    "message": format!("only Corten's operator makes Pods that a {kind} controls"),
                    "reason": "Forbidden",
                }],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": NAME, "labels": labels(OPERATOR) },
            "spec": { "policyName": NAME, "validationActions": ["Deny"] },
        }),
    ]
}
