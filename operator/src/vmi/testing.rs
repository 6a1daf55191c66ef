//! Objects for tests.

use crate::pod::Claims;
use crate::{Config, Settings};
use corten_resources::cluster::VirtualMachineInstance;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const UID: &str = "0b6c2f4e-2f1c-4c8e-9a40-6f0e8f5b7a11";

pub(crate) fn settings() -> Settings {
    Settings::new(&Config {
        launcher_image: "corten.test/launcher:1".to_owned(),
        launcher_pull_policy: "IfNotPresent".to_owned(),
    })
}

/// So many seconds after the first of January 2026.
pub(crate) fn now(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600).unwrap() + SignedDuration::from_secs(seconds)
}

/// The least machine that can be run, as the API server has it right after it was created, and `change` made to it.
pub(crate) fn minimal_vmi(change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
    let mut vmi = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "first", "namespace": "guests", "uid": UID, "resourceVersion": "7" },
        "spec": { "domain": {
            "devices": {},
            "memory": { "guest": "256Mi" },
            "firmware": { "kernelBoot": { "container": {
                "image": "corten.test/kernel-boot-6.12:1", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd" } } },
        } },
    });
    change(&mut vmi);
    serde_json::from_value(vmi).unwrap()
}

/// Its Pod, as created and with `change` made to it. Its claims are there.
pub(crate) fn pod(
    vmi: &VirtualMachineInstance,
    attempt: u32,
    change: impl FnOnce(&mut Value),
) -> Pod {
    let claims = claims(super::claims::used(&vmi.spec).map(|used| claim(used.claim, |_| ())));
    let pod = crate::pod::launcher_pod(vmi, attempt, &claims, &settings()).unwrap();
    let mut pod = serde_json::to_value(pod).unwrap();
    pod["metadata"]["uid"] = json!(format!("pod-{attempt}"));
    pod["metadata"]["creationTimestamp"] = json!(now(0).to_string());
    pod["status"] = json!({ "phase": "Pending", "qosClass": "Burstable" });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

/// State of the launcher's container, for a Pod's `status.containerStatuses`.
pub(crate) fn container(state: &Value) -> Value {
    json!([{ "name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state }])
}

/// A node that is well, with `change` made to it.
pub(crate) fn node(name: &str, change: impl FnOnce(&mut Value)) -> Node {
    let mut node = json!({ "metadata": { "name": name }, "spec": {}, "status": {
        "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": now(0).to_string() }],
        "nodeInfo": { "architecture": "amd64", "bootID": "boot-1", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "" } } });
    change(&mut node);
    serde_json::from_value(node).unwrap()
}

/// A claim that has its volume, with `change` made to it.
pub(crate) fn claim(name: &str, change: impl FnOnce(&mut Value)) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": { "name": name, "namespace": "guests" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } }, "volumeMode": "Filesystem" },
        "status": { "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "2Gi" } },
    });
    change(&mut claim);
    serde_json::from_value(claim).unwrap()
}

pub(crate) fn claims(all: impl IntoIterator<Item = PersistentVolumeClaim>) -> Claims {
    let entry =
        |claim: PersistentVolumeClaim| (claim.metadata.name.clone().unwrap(), Arc::new(claim));
    all.into_iter().map(entry).collect()
}
