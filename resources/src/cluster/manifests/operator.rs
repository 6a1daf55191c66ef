//! The operator's Deployment.

use super::{Images, OPERATOR, labels, metadata};
use serde_json::{Value, json};

/// One replica, replaced before the next one starts: there is no election yet, and two would only fetch each other's
/// refusals (Pods have fixed names, writes compare versions).
pub(super) fn deployment(images: &Images) -> Value {
    let image = images.name("operator");
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(OPERATOR),
        "spec": {
            "replicas": 1,
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": { "app.kubernetes.io/name": OPERATOR } },
            "template": {
                "metadata": { "labels": labels(OPERATOR) },
                "spec": {
                    "serviceAccountName": OPERATOR,
                    "priorityClassName": "system-cluster-critical",
                    "terminationGracePeriodSeconds": 10,
                    "tolerations": [{ "key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule" }],
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65534,
                        "runAsGroup": 65534,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": "operator",
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/corten-operator"],
                        "env": [
                            { "name": "CORTEN_LAUNCHER_IMAGE", "value": images.name("launcher") },
                            { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                        ],
                        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                    }],
                },
            },
        },
    })
}
