//! The node agents' DaemonSet.

use super::{Images, NODE_AGENT, labels, metadata};
use crate::names::{METRICS_LABEL, METRICS_PORT};
use serde_json::{Value, json};

/// Paths of the node that an agent works in, each mounted at its own place.
const HOST_PATHS: &[(&str, &str, &str)] = &[
    // Doors of launchers and the ledger. It outlives the agent, as bind mounts of doors do.
    ("corten", "/var/lib/corten", "DirectoryOrCreate"),
    // kubelet's socket for device plugins, and ours beside it.
    ("device-plugins", "/var/lib/kubelet/device-plugins", "Directory"),
    // kubelet tells which Pod has which device.
    ("pod-resources", "/var/lib/kubelet/pod-resources", "Directory"),
    // Where container runtimes find system-call profiles.
    ("seccomp", "/var/lib/kubelet/seccomp", "DirectoryOrCreate"),
    ("dev", "/dev", "Directory"),
];

/// One agent on each node. It is on the node's network, so that its restart takes no connection of a VM along.
pub(super) fn daemon_set(images: &Images, namespace: &str) -> Value {
    let mut pod_labels = labels(NODE_AGENT);
    // By it tools of KubeVirt's find what speaks for a node.
    pod_labels["kubevirt.io"] = json!("virt-handler");
    pod_labels[METRICS_LABEL] = json!("true");
    let from = |field: &str| json!({ "fieldRef": { "fieldPath": field } });
    let volumes: Vec<_> = HOST_PATHS
        .iter()
        .map(|(name, path, kind)| json!({ "name": name, "hostPath": { "path": path, "type": kind } }))
        .collect();
    let mounts: Vec<_> = HOST_PATHS
        .iter()
        .map(|(name, path, _)| json!({ "name": name, "mountPath": path }))
        .collect();
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(NODE_AGENT, namespace),
        "spec": {
            "selector": { "matchLabels": { "app.kubernetes.io/name": NODE_AGENT } },
            // Running VMs do without their agent for a while.
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "10%" } },
            "template": {
                "metadata": { "labels": pod_labels },
                "spec": {
                    "serviceAccountName": NODE_AGENT,
                    "priorityClassName": "system-node-critical",
                    "hostNetwork": true,
                    "dnsPolicy": "ClusterFirstWithHostNet",
                    "terminationGracePeriodSeconds": 10,
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{
                        "name": "node-agent",
                        "image": images.name("node-agent"),
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/corten-node-agent"],
                        "env": [
                            { "name": "NODE_NAME", "valueFrom": from("spec.nodeName") },
                            { "name": "POD_NAME", "valueFrom": from("metadata.name") },
                            // The one at which it is found by its Pod: not every network that a node is in.
                            { "name": "CORTEN_METRICS_ADDRESS", "valueFrom": from("status.podIP") },
                        ],
                        "ports": [{
                            "name": "metrics",
                            "containerPort": METRICS_PORT,
                            // As it would be anyway on the node's network.
                            "hostPort": METRICS_PORT,
                            "protocol": "TCP",
                        }],
                        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
                        // Privileged for the device cgroup: /dev/kvm, /dev/net/tun and others are opened here and passed on; and for what is
                        // made in network namespaces of Pods, settings in /proc/sys among it.
                        "securityContext": { "privileged": true, "readOnlyRootFilesystem": true, "runAsUser": 0 },
                        "volumeMounts": mounts,
                    }],
                    "volumes": volumes,
                },
            },
        },
    })
}
