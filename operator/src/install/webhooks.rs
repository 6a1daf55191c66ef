//! What the API server asks the operator, as data.
//!
//! It is asked when an object is made, and when a spec changes. Changes of metadata and status are not asked for, whoever
//! makes them: so the operator and the agents report, finalizers are taken away and VMs end also while nobody answers.

use super::SERVICE;
use corten_resources::cluster::manifests::{DEFINITIONS_GUARD, OPERATOR};
use corten_resources::cluster::{GROUP, VERSION};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// Kinds whose objects are filled in.
const FILLED_IN: [&str; 4] = [
    "virtualmachineinstances",
    "virtualmachines",
    "virtualmachineinstancereplicasets",
    "virtualmachineinstancemigrations",
];

/// Webhooks that trust these authorities.
pub(super) fn webhooks(namespace: &str, bundle: &str) -> Vec<Value> {
    let client = |path: String| client(namespace, bundle, &path);
    let mutating = FILLED_IN.map(|plural| {
        let mut webhook =
            webhook(&format!("{plural}-mutator"), &client(format!("/mutate/{plural}")));
        webhook["rules"] = rules(GROUP, VERSION, plural, &["CREATE", "UPDATE"]);
        webhook["matchConditions"] = json!([spec_changes()]);
        // Somebody else's webhook may add what needs defaults.
        webhook["reinvocationPolicy"] = json!("IfNeeded");
        webhook
    });
    let mut validating: Vec<_> = FILLED_IN
        .iter()
        .map(|plural| {
            let mut webhook =
                webhook(&format!("{plural}-validator"), &client(format!("/validate/{plural}")));
            webhook["rules"] = rules(GROUP, VERSION, plural, &["CREATE", "UPDATE"]);
            webhook["matchConditions"] = json!([spec_changes()]);
            webhook
        })
        .collect();
    let mut installation =
        webhook("kubevirts-validator", &client("/validate/kubevirts".to_owned()));
    installation["rules"] = rules(GROUP, VERSION, "kubevirts", &["CREATE", "UPDATE", "DELETE"]);
    installation["matchConditions"] = json!([spec_changes()]);
    validating.push(installation);
    vec![
        guard_of_definitions(namespace, bundle),
        configuration("ValidatingWebhookConfiguration", OPERATOR, &json!(validating)),
        configuration("MutatingWebhookConfiguration", OPERATOR, &json!(mutating)),
    ]
}

/// Keeps our definitions while VirtualMachineInstances exist: with a definition go all objects of its kind. It is an object of
/// its own, as it is wanted also where there is no KubeVirt object.
pub(super) fn guard_of_definitions(namespace: &str, bundle: &str) -> Value {
    let definitions = "customresourcedefinitions";
    let client = client(namespace, bundle, &format!("/validate/{definitions}"));
    let mut guard = webhook(&format!("{definitions}-validator"), &client);
    guard["rules"] = rules("apiextensions.k8s.io", "v1", definitions, &["DELETE"]);
    // Nobody else's definitions depend on us. Where all are deleted at once, the request names none of them.
    let ours =
        format!("oldObject.metadata.name.matches('^[a-z]+[.]{}$')", GROUP.replace('.', "[.]"));
    guard["matchConditions"] = json!([{ "name": "ours", "expression": ours }]);
    configuration("ValidatingWebhookConfiguration", DEFINITIONS_GUARD, &json!([guard]))
}

fn configuration(kind: &str, name: &str, webhooks: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": { "app.kubernetes.io/name": OPERATOR, "app.kubernetes.io/part-of": "corten" },
        },
        "webhooks": webhooks,
    })
}

fn client(namespace: &str, bundle: &str, path: &str) -> Value {
    json!({
        "caBundle": ByteString(bundle.as_bytes().to_vec()),
        "service": { "name": SERVICE, "namespace": namespace, "path": path, "port": 443 },
    })
}

fn webhook(name: &str, client: &Value) -> Value {
    json!({
        "name": format!("{name}.{GROUP}"),
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        // An object that nobody has looked at must not be stored: what cannot be honoured would be dropped silently.
        "failurePolicy": "Fail",
        // Also objects that are written in an older version, or through one.
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 10,
    })
}

fn rules(group: &str, version: &str, plural: &str, operations: &[&str]) -> Value {
    json!([{
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations,
        "resources": [plural],
        "scope": "*",
    }])
}

/// Not asked if only metadata or status change, nor for what is being deleted.
fn spec_changes() -> Value {
    let expression = "request.operation != 'UPDATE' || \
        (!has(object.metadata.deletionTimestamp) && object.?spec != oldObject.?spec)";
    json!({ "name": "spec-changes", "expression": expression })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
    };

    #[test]
    fn they_are_whole_as_kubernetes_types_read_them() {
        let [guard, validating, mutating] = webhooks("kubevirt", "pem").try_into().unwrap();
        let read: ValidatingWebhookConfiguration = serde_json::from_value(guard.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), guard);
        let read: ValidatingWebhookConfiguration =
            serde_json::from_value(validating.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), validating);
        let read: MutatingWebhookConfiguration = serde_json::from_value(mutating.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), mutating);
    }

    #[test]
    fn every_webhook_fails_closed_has_no_side_effects_and_a_name_of_its_own() {
        let mut names = Vec::new();
        for configuration in webhooks("kubevirt", "pem") {
            for webhook in configuration["webhooks"].as_array().unwrap() {
                assert_eq!(webhook["failurePolicy"], "Fail");
                assert_eq!(webhook["sideEffects"], "None");
                let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap().to_owned();
                assert!(crate::admission::is_path(&path), "{path}");
                names.push(webhook["name"].as_str().unwrap().to_owned());
            }
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
