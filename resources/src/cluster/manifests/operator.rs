//! The operator: its Deployment, how it is reached, how many of it stay when nodes are drained.

use super::{Installation, OPERATOR, labels, metadata};
use crate::names::METRICS_LABEL;
use serde_json::{Value, json};

/// Port of the webhooks in the Pod.
const WEBHOOKS: u16 = 8443;
/// Port of health and metrics in the Pod.
const HEALTH: u16 = 8080;

pub(super) fn objects(installation: &Installation) -> Vec<Value> {
    let namespace = installation.namespace.as_str();
    vec![
        deployment(installation),
        webhooks_service(OPERATOR, namespace),
        // By this name KubeVirt's tools know what serves its API.
        webhooks_service("virt-api", namespace),
        metrics_service(namespace),
        disruption_budget(namespace),
    ]
}

/// All replicas serve, one leads: while one is replaced the other answers.
fn deployment(installation: &Installation) -> Value {
    let selector = json!({ "app.kubernetes.io/name": OPERATOR });
    let mut pod_labels = labels(OPERATOR);
    pod_labels["kubevirt.io"] = json!("virt-operator");
    pod_labels[METRICS_LABEL] = json!("true");
    let from = |field: &str| json!({ "fieldRef": { "fieldPath": field } });
    let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "metrics" } });
    let mut liveness = probe("/healthz");
    liveness["initialDelaySeconds"] = json!(10);
    // A node that is short of processors is not helped by an operator that starts anew.
    liveness["timeoutSeconds"] = json!(10);
    liveness["failureThreshold"] = json!(6);
    let mut readiness = probe("/readyz");
    readiness["periodSeconds"] = json!(2);
    readiness["timeoutSeconds"] = json!(5);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(OPERATOR, &installation.namespace),
        "spec": {
            "replicas": installation.replicas,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 1 },
            },
            "selector": { "matchLabels": selector },
            "template": {
                "metadata": { "labels": pod_labels },
                "spec": {
                    "serviceAccountName": OPERATOR,
                    "priorityClassName": "system-cluster-critical",
                    // Connections are accepted for 3 s more and drained for 5 s; then the Lease is given back.
                    "terminationGracePeriodSeconds": 30,
                    "tolerations": [{
                        "key": "node-role.kubernetes.io/control-plane",
                        "operator": "Exists",
                        "effect": "NoSchedule",
                    }],
                    "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
                        "weight": 100,
                        "podAffinityTerm": {
                            "labelSelector": { "matchLabels": selector },
                            "topologyKey": "kubernetes.io/hostname",
                        },
                    }] } },
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65534,
                        "runAsGroup": 65534,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": "operator",
                        "image": installation.images.name("operator"),
                        "imagePullPolicy": installation.pull_policy,
                        "command": ["/corten-operator"],
                        "env": [
                            { "name": "CORTEN_LAUNCHER_IMAGE", "value": installation.images.name("launcher") },
                            { "name": "CORTEN_LAUNCHER_PULL_POLICY", "value": installation.pull_policy },
                            { "name": "CORTEN_NODE_AGENT_IMAGE", "value": installation.images.name("node-agent") },
                            { "name": "POD_NAME", "valueFrom": from("metadata.name") },
                            { "name": "POD_NAMESPACE", "valueFrom": from("metadata.namespace") },
                        ],
                        "ports": [
                            { "name": "webhooks", "containerPort": WEBHOOKS },
                            { "name": "metrics", "containerPort": HEALTH },
                        ],
                        "livenessProbe": liveness,
                        "readinessProbe": readiness,
                        "resources": { "requests": { "cpu": "10m", "memory": "64Mi" } },
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

fn webhooks_service(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name, namespace),
        "spec": {
            "selector": { "app.kubernetes.io/name": OPERATOR },
            "ports": [{ "name": "webhooks", "port": 443, "targetPort": WEBHOOKS, "protocol": "TCP" }],
        },
    })
}

/// Of the operators and of the node agents: each has a port of that name, of a number of its own.
fn metrics_service(namespace: &str) -> Value {
    let mut metadata = metadata("kubevirt-prometheus-metrics", namespace);
    metadata["labels"][METRICS_LABEL] = json!("true");
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "selector": { METRICS_LABEL: "true" },
            "clusterIP": "None",
            "ports": [{ "name": "metrics", "port": HEALTH, "targetPort": "metrics", "protocol": "TCP" }],
        },
    })
}

fn disruption_budget(namespace: &str) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(OPERATOR, namespace),
        "spec": {
            "minAvailable": 1,
            "selector": { "matchLabels": { "app.kubernetes.io/name": OPERATOR } },
        },
    })
}
