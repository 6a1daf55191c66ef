//! Volumes that Pods can claim: local ones of each node, one disk that all nodes share, and directories on NFS.
//!
//! All are made beforehand and bound as they are claimed; a claim that is deleted does not give its volume back.

use serde_json::{Value, json};

use crate::addresses::{self, MACHINE};

/// Local volumes of each node: so many directories and so many block devices.
pub const VOLUMES_PER_NODE: u8 = 8;
/// Size of each; files are sparse.
pub const VOLUME_SIZE: &str = "4G";
/// The same as Kubernetes writes it.
const CAPACITY: &str = "4G";

/// Size of the disk that all nodes share.
pub const SHARED_DISK_BYTES: u64 = 4_000_000_000;
/// Where every node has it.
const SHARED_DISK: &str = "/dev/sda";

/// Directories on NFS.
pub const NFS_DIRECTORIES: u8 = 8;
/// What is exported.
pub const NFS_EXPORT: &str = "/export";

/// Storage classes and volumes for a cluster of that many nodes, as a list of Kubernetes objects.
pub fn manifests(nodes: u8) -> Value {
    let mut items = vec![class("local", true), class("shared-block", false), class("nfs", false)];
    for node in 1..=nodes {
        let name = addresses::node_name(node);
        for volume in 1..=VOLUMES_PER_NODE {
            for (kind, mode) in [("file", "Filesystem"), ("block", "Block")] {
                let path = format!("/var/lib/cluster/volumes/{kind}{volume}");
                let source = json!({ "local": { "path": path } });
                let object = format!("{name}-{kind}{volume}");
                items.push(volume_object(
                    &object,
                    ("local", mode, "ReadWriteOnce"),
                    source,
                    &[&name],
                ));
            }
        }
    }
    let names: Vec<String> = (1..=nodes).map(addresses::node_name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let shared = json!({ "local": { "path": SHARED_DISK } });
    let how = ("shared-block", "Block", "ReadWriteMany");
    items.push(volume_object("shared-block", how, shared, &names));
    for directory in 1..=NFS_DIRECTORIES {
        let path = format!("{NFS_EXPORT}/{directory}");
        let source = json!({
            "nfs": { "server": MACHINE, "path": path },
            "mountOptions": ["nfsvers=4.1"],
        });
        let how = ("nfs", "Filesystem", "ReadWriteMany");
        items.push(volume_object(&format!("nfs{directory}"), how, source, &[]));
    }
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

fn class(name: &str, default: bool) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": name,
            "annotations": {
                "storageclass.kubernetes.io/is-default-class": default.to_string(),
            },
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    })
}

fn volume_object(
    name: &str,
    (class, mode, access): (&str, &str, &str),
    source: Value,
    nodes: &[&str],
) -> Value {
    let mut spec = json!({
        "storageClassName": class,
        "volumeMode": mode,
        "accessModes": [access],
        "capacity": { "storage": CAPACITY },
        "persistentVolumeReclaimPolicy": "Retain",
    });
    if let (Value::Object(spec), Value::Object(source)) = (&mut spec, source) {
        spec.extend(source);
    }
    if !nodes.is_empty() {
        let expression =
            json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": nodes });
        spec["nodeAffinity"] = json!({
            "required": { "nodeSelectorTerms": [{ "matchExpressions": [expression] }] },
        });
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": name },
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volumes(nodes: u8) -> Vec<Value> {
        let list = manifests(nodes);
        let items = list["items"].as_array().unwrap().iter();
        items.filter(|item| item["kind"] == "PersistentVolume").cloned().collect()
    }

    #[test]
    fn local_volume_belongs_to_its_node_alone() {
        let volumes = volumes(2);
        let volume =
            volumes.iter().find(|item| item["metadata"]["name"] == "node2-block1").unwrap();
        assert_eq!(volume["spec"]["volumeMode"], "Block");
        let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(terms[0]["matchExpressions"][0]["values"], json!(["node2"]));
    }

    #[test]
    fn only_shared_volumes_can_be_written_from_many_nodes() {
        for volume in volumes(2) {
            let shared = volume["spec"]["storageClassName"] != "local";
            let many = volume["spec"]["accessModes"] == json!(["ReadWriteMany"]);
            assert_eq!(shared, many, "{volume}");
        }
    }
}
