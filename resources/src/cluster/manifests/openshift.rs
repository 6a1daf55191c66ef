//! What OpenShift needs on top. Written from its documents; nobody has tried it yet.

use super::{NODE_AGENT, OPERATOR, labels};
use crate::names::{LAUNCHER_SECCOMP_PROFILE, LAUNCHER_USER};
use serde_json::{Value, json};

/// SecurityContextConstraints: OpenShift asks them of whoever makes a Pod, and of the Pod's own account.
pub(super) fn objects(namespace: &str) -> Vec<Value> {
    let account = |name: &str| json!([format!("system:serviceaccount:{namespace}:{name}")]);
    let metadata = |name: &str, account: &str| {
        json!({
            "name": name,
            "labels": labels(account),
            "annotations": { "kubernetes.io/description": "Untested: made from OpenShift's documents." },
        })
    };
    vec![
        json!({
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": metadata("corten-launcher", OPERATOR),
            "users": account(OPERATOR),
            "groups": [],
            "allowHostDirVolumePlugin": false,
            "allowHostIPC": false,
            "allowHostNetwork": false,
            "allowHostPID": false,
            "allowHostPorts": false,
            "allowPrivilegeEscalation": false,
            "allowPrivilegedContainer": false,
            "allowedCapabilities": [],
            "requiredDropCapabilities": ["ALL"],
            "readOnlyRootFilesystem": true,
            "runAsUser": { "type": "MustRunAs", "uid": LAUNCHER_USER },
            "fsGroup": { "type": "MustRunAs", "ranges": [{ "min": LAUNCHER_USER, "max": LAUNCHER_USER }] },
            "supplementalGroups": { "type": "RunAsAny" },
            "seLinuxContext": { "type": "MustRunAs" },
            "seccompProfiles": [format!("localhost/{LAUNCHER_SECCOMP_PROFILE}"), "runtime/default"],
            "volumes": [
                "configMap", "downwardAPI", "emptyDir", "image", "persistentVolumeClaim", "projected", "secret",
            ],
        }),
        json!({
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": metadata("corten-node-agent", NODE_AGENT),
            "users": account(NODE_AGENT),
            "groups": [],
            "allowHostDirVolumePlugin": true,
            "allowHostIPC": false,
            "allowHostNetwork": true,
            "allowHostPID": false,
            "allowHostPorts": true,
            "allowPrivilegeEscalation": true,
            "allowPrivilegedContainer": true,
            "allowedCapabilities": [],
            "requiredDropCapabilities": [],
            "readOnlyRootFilesystem": true,
            "runAsUser": { "type": "RunAsAny" },
            "fsGroup": { "type": "RunAsAny" },
            "supplementalGroups": { "type": "RunAsAny" },
            "seLinuxContext": { "type": "RunAsAny" },
            "volumes": ["hostPath", "projected"],
        }),
    ]
}
