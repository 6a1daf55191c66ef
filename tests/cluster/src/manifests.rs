//! Objects that a cluster starts with, and those that tests and timelines make.

use serde_json::{Value, json};

const COREDNS: &str = include_str!("../manifests/coredns.yaml");

/// The cluster's DNS: on one node, or on two of several.
pub fn coredns(nodes: u8) -> String {
    COREDNS.replace("  replicas: 1\n", &format!("  replicas: {}\n", nodes.min(2)))
}

/// Nodes that kwok plays: they are ready, and their Pods run in name only. Those of VMs too: the nodes look as if Corten's
/// agent served them.
pub fn simulated_nodes(count: u16) -> Value {
    let resources = json!({
        "cpu": "32", "memory": "256Gi", "pods": "512", "ephemeral-storage": "1Ti", "devices.kubevirt.io/kvm": "512",
    });
    let nodes: Vec<Value> = (1..=count)
        .map(|number| {
            let name = simulated_name(number);
            json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "annotations": { "kwok.x-k8s.io/node": "fake" },
                    "labels": {
                        "kubernetes.io/hostname": name,
                        "kubernetes.io/os": "linux",
                        "kubernetes.io/arch": "amd64",
                        "kubevirt.io/schedulable": "true",
                        "type": "kwok",
                    },
                },
                "status": { "allocatable": resources, "capacity": resources },
            })
        })
        .collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": nodes })
}

/// Names of the first `count` of them, as kubectl takes them.
pub fn simulated_names(count: u16) -> impl Iterator<Item = String> {
    (1..=count).map(|number| format!("node/{}", simulated_name(number)))
}

fn simulated_name(number: u16) -> String {
    format!("simulated{number}")
}

/// A namespace that enforces a level of Pod Security.
pub fn namespace(name: &str, level: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": { "pod-security.kubernetes.io/enforce": level },
        },
    })
}

/// A Pod that passes "restricted".
pub fn restricted_pod(name: &str, image: &str, arguments: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 107,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": name,
                "image": image,
                "args": arguments,
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"] },
                    "readOnlyRootFilesystem": true,
                },
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::{DNS_SERVICE, DNS_SERVICE_6, DOMAIN};
    use crate::assets::COREDNS_IMAGE;

    #[test]
    fn dns_has_the_image_the_addresses_and_the_domain_that_nodes_expect() {
        let manifest = coredns(2);
        assert!(manifest.contains(&format!("image: {COREDNS_IMAGE}\n")));
        assert!(manifest.contains(&format!("clusterIPs: [{DNS_SERVICE}, \"{DNS_SERVICE_6}\"]\n")));
        assert!(manifest.contains(&format!("kubernetes {DOMAIN} ")));
    }

    #[test]
    fn dns_runs_on_no_more_nodes_than_there_are() {
        assert!(coredns(1).contains("  replicas: 1\n"));
        assert!(coredns(3).contains("  replicas: 2\n"));
    }

    #[test]
    fn simulated_nodes_are_those_that_kwok_plays() {
        let list = simulated_nodes(3);
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 3);
        assert_eq!(items[2]["metadata"]["name"], "simulated3");
        assert_eq!(items[2]["metadata"]["annotations"]["kwok.x-k8s.io/node"], "fake");
    }
}
