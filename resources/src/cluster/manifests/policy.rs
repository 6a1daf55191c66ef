//! Guards that hold also while the operator is down.
//!
//! What opens a VM's resources to a Pod is that the VirtualMachineInstance lists it in `status.activePods`. The operator
//! lists Pods that it knows by name and controller reference. So two things must be the operator's alone: making such
//! Pods, and writing that status. Once made, a launcher's Pod is what the operator made of it: kubelet starts a container
//! whose image was changed again, and the operator finds its Pods by a label.

use super::{NODE_AGENT, OPERATOR, labels};
use crate::cluster::GROUP;
use crate::names::{
    APP_LABEL, CREATED_BY_LABEL, LAUNCH_ATTEMPT_ANNOTATION, NODE_NAME_LABEL, SYSTEM_NAMESPACE,
    VM_NAME_LABEL,
};
use crate::types::VirtualMachineInstance;
use serde_json::{Value, json};

/// The node of the Pod that a service account's token was made for, as the API server found it in the token.
const TOKENS_NODE: &str =
    "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')";

/// Who takes owner references out of objects whose owner is deleted without them.
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// The policies with their bindings.
pub(super) fn objects() -> Vec<Value> {
    [launcher_pods(), reported_state()].concat()
}

fn account(name: &str) -> String {
    format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{name}")
}

/// Only the operator makes Pods that it would take for its own, and nobody changes what they are.
///
/// Anyone who may create Pods in the namespace could put one there under the name that comes next.
fn launcher_pods() -> Vec<Value> {
    let kind = VirtualMachineInstance::KIND;
    let owned = |object: &str| {
        format!(
            "has({object}.metadata.ownerReferences) && {object}.metadata.ownerReferences.exists(o, \
             o.kind == '{kind}' && o.apiVersion.startsWith('{GROUP}/') && has(o.controller) && o.controller)"
        )
    };
    let was_owned = format!("oldObject != null && ({})", owned("oldObject"));
    let same = |path: &str| format!("object.{path} == oldObject.{path}");
    let kept = [APP_LABEL, CREATED_BY_LABEL, VM_NAME_LABEL]
        .map(|label| same(&format!("metadata.?labels[?'{label}']")))
        .into_iter()
        .chain([same("spec")])
        .collect::<Vec<_>>()
        .join(" && ");
    policy(
        "corten-launcher-pods",
        json!({
            "matchConstraints": changes_of("", "v1", "pods"),
            "matchConditions": [
                {
                    "name": "controlled-by-a-vmi",
                    "expression": format!("({}) || ({was_owned})", owned("object")),
                },
                {
                    "name": "not-the-operator",
                    "expression": format!("request.userInfo.username != '{}'", account(OPERATOR)),
                },
            ],
            "variables": [{ "name": "was", "expression": was_owned }],
            "validations": [
                {
                    "expression": "variables.was",
                    "message": format!("only Corten's operator makes Pods that a {kind} controls"),
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
            ],
        }),
    )
}

/// Only Corten writes what it reports on a VirtualMachineInstance, and a node agent only on those of its own node, and
/// nothing that decides which Pod may run which VM. Nobody changes a spec: its Pod was made for it, with what the
/// namespace's quota and the scheduler granted.
///
/// The object has no status subresource, as in KubeVirt, so a role that allows to patch it allows to patch all of it.
fn reported_state() -> Vec<Value> {
    let same = |path: &str| format!("object.{path} == oldObject.{path}");
    let label = format!("metadata.?labels[?'{NODE_NAME_LABEL}']");
    let attempt = format!("metadata.?annotations[?'{LAUNCH_ATTEMPT_ANNOTATION}']");
    let placement = [same(&label), same(&attempt)].join(" && ");
    let kept = format!("{} && {placement}", same("?status"));
    let absent = format!(
        "object.?status.orValue({{}}).size() == 0 && !object.{label}.hasValue() && !object.{attempt}.hasValue()"
    );
    // All of it but status, and of that nothing that decides who runs where, or that it is over.
    let untouched = ["labels", "annotations", "finalizers", "ownerReferences"]
        .map(|field| same(&format!("metadata.?{field}")))
        .into_iter()
        .chain(["?status.?activePods", "?status.?nodeName"].map(same))
        .collect::<Vec<_>>()
        .join(" && ");
    let agents_part = format!(
        "oldObject != null && oldObject.{label}.orValue('') == variables.node && {untouched} && \
         ({} || (object.?status.?phase.orValue('') == 'Running' && \
         !(oldObject.?status.?phase.orValue('') in ['Succeeded', 'Failed'])))",
        same("?status.?phase"),
    );
    policy(
        "corten-reported-state",
        json!({
            "matchConstraints": changes_of(GROUP, "*", VirtualMachineInstance::PLURAL),
            "matchConditions": [{
                "name": "not-the-operator",
                "expression": format!("request.userInfo.username != '{}'", account(OPERATOR)),
            }],
            "variables": [
                { "name": "agent", "expression": format!("request.userInfo.username == '{}'", account(NODE_AGENT)) },
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
                    "message": format!(
                        "leave out status, label {NODE_NAME_LABEL} and annotation {LAUNCH_ATTEMPT_ANNOTATION}: \
                         they are what Corten reports"
                    ),
                    "reason": "Invalid",
                },
                {
                    "expression": format!("variables.agent || oldObject == null || ({kept})"),
                    "message": format!(
                        "only Corten writes status, label {NODE_NAME_LABEL} and annotation \
                         {LAUNCH_ATTEMPT_ANNOTATION}: leave them as they are"
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

fn changes_of(group: &str, version: &str, resource: &str) -> Value {
    json!({ "resourceRules": [{
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE", "UPDATE"],
        "resources": [resource],
    }] })
}

/// A policy with its binding. What it cannot judge it refuses.
fn policy(name: &str, mut spec: Value) -> Vec<Value> {
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
