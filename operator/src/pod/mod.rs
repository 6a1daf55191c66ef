//! A VirtualMachineInstance as a launcher Pod. Pure.
//!
//! Nothing of the VirtualMachineInstance but labels is in the Pod: who may read Pods must not read what is meant for the
//! guest. The node agent hands it to the launcher.

mod resources;
mod security;

pub use resources::memory_overhead;

use crate::Config;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{
    APP_LABEL, CREATED_BY_LABEL, DEFAULT_CONTAINER_ANNOTATION, DOMAIN_ANNOTATION,
    KERNEL_BOOT_MOUNT, LAUNCHER, LAUNCHER_CONTAINER, NODE_NAME_LABEL, VM_NAME_LABEL, label_value,
    launcher_pod_name,
};
use corten_resources::types::{KernelBootContainer, Toleration, VirtualMachineInstanceSpec};
use corten_resources::validate::Finding;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use std::collections::BTreeMap;
use std::time::Duration;

/// What kubelet waits beyond the guest's grace period: the launcher then ends the VM by force, and says so.
const BEYOND_GRACE: Duration = Duration::from_secs(15);
/// The volume with kernel and initial RAM disk.
const KERNEL_BOOT_VOLUME: &str = "kernel-boot";

/// The Pod of a VirtualMachineInstance at its n-th attempt.
pub fn launcher_pod(
    vmi: &VirtualMachineInstance,
    attempt: u32,
    config: &Config,
) -> Result<core::Pod, Finding> {
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let container = core::Container {
        name: LAUNCHER_CONTAINER.to_owned(),
        image: Some(config.launcher_image.clone()),
        image_pull_policy: Some(config.launcher_pull_policy.clone()),
        command: Some(vec!["/corten-launcher".to_owned()]),
        resources: Some(resources::of_container(&vmi.spec)?),
        security_context: Some(security::of_container()),
        volume_mounts: vmi.spec.kernel_container().map(|_| vec![kernel_boot_mount()]),
        ..Default::default()
    };
    let kernel = vmi.spec.kernel_container();
    let pull_secret = kernel
        .and_then(|kernel| kernel.image_pull_secret.as_deref())
        .filter(|name| !name.is_empty());
    Ok(core::Pod {
        metadata: ObjectMeta {
            name: Some(launcher_pod_name(name, uid, attempt)),
            namespace: vmi.metadata.namespace.clone(),
            labels: Some(labels(vmi, name, uid)),
            annotations: Some(BTreeMap::from([
                (DOMAIN_ANNOTATION.to_owned(), name.to_owned()),
                (DEFAULT_CONTAINER_ANNOTATION.to_owned(), LAUNCHER_CONTAINER.to_owned()),
            ])),
            owner_references: Some(vec![owner(name, uid)]),
            ..Default::default()
        },
        spec: Some(core::PodSpec {
            restart_policy: Some("Never".to_owned()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(deletion_grace(&vmi.spec)),
            security_context: Some(security::of_pod()),
            containers: vec![container],
            volumes: kernel.map(|kernel| vec![kernel_boot_volume(kernel)]),
            image_pull_secrets: pull_secret
                .map(|name| vec![core::LocalObjectReference { name: name.to_owned() }]),
            node_selector: (!vmi.spec.node_selector.is_empty())
                .then(|| vmi.spec.node_selector.clone()),
            tolerations: (!vmi.spec.tolerations.is_empty())
                .then(|| vmi.spec.tolerations.iter().map(toleration).collect()),
            priority_class_name: vmi.spec.priority_class_name.clone(),
            scheduler_name: vmi.spec.scheduler_name.clone(),
            ..Default::default()
        }),
        status: None,
    })
}

/// Seconds that kubelet gives a Pod of this VirtualMachineInstance when it is deleted.
pub fn deletion_grace(spec: &VirtualMachineInstanceSpec) -> i64 {
    i64::try_from((spec.grace_period().saturating_add(BEYOND_GRACE)).as_secs()).unwrap_or(i64::MAX)
}

/// Those of its VirtualMachineInstance, for Services and policies that select by them, and those that say what it is.
fn labels(vmi: &VirtualMachineInstance, name: &str, uid: &str) -> BTreeMap<String, String> {
    let mut labels = vmi.metadata.labels.clone().unwrap_or_default();
    // Written on the object once its Pod has a node; on a Pod of a later attempt it would name the earlier one's.
    labels.remove(NODE_NAME_LABEL);
    labels.insert(APP_LABEL.to_owned(), LAUNCHER.to_owned());
    labels.insert(CREATED_BY_LABEL.to_owned(), uid.to_owned());
    labels.insert(VM_NAME_LABEL.to_owned(), label_value(name));
    labels
}

fn owner(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: VirtualMachineInstance::api_version(&()).into_owned(),
        kind: VirtualMachineInstance::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn kernel_boot_volume(kernel: &KernelBootContainer) -> core::Volume {
    core::Volume {
        name: KERNEL_BOOT_VOLUME.to_owned(),
        image: Some(core::ImageVolumeSource {
            reference: Some(kernel.image.clone()),
            pull_policy: kernel.image_pull_policy.clone().filter(|policy| !policy.is_empty()),
        }),
        ..Default::default()
    }
}

fn kernel_boot_mount() -> core::VolumeMount {
    core::VolumeMount {
        name: KERNEL_BOOT_VOLUME.to_owned(),
        mount_path: KERNEL_BOOT_MOUNT.to_owned(),
        read_only: Some(true),
        ..Default::default()
    }
}

fn toleration(toleration: &Toleration) -> core::Toleration {
    core::Toleration {
        effect: toleration.effect.clone(),
        key: toleration.key.clone(),
        operator: toleration.operator.clone(),
        toleration_seconds: toleration.toleration_seconds,
        value: toleration.value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::{config, minimal_vmi};
    use corten_resources::cluster::to_yaml;
    use serde_json::{Value, json};

    fn pod_of(change: impl FnOnce(&mut Value)) -> core::Pod {
        launcher_pod(&minimal_vmi(change), 0, &config()).unwrap()
    }

    #[test]
    fn the_pod_of_the_least_machine_is_this_one() {
        assert_eq!(
            to_yaml(&pod_of(|_| ())).unwrap(),
            include_str!("../../tests/golden/least.yaml")
        );
    }

    #[test]
    fn the_pod_of_a_machine_with_everything_that_is_served_is_this_one() {
        let pod = pod_of(|vmi| {
            vmi["metadata"]["labels"] = json!({ "app": "web", "kubevirt.io/nodeName": "left-over", "kubevirt.io": "forged" });
            vmi["spec"]["nodeSelector"] = json!({ "disk": "fast" });
            vmi["spec"]["priorityClassName"] = json!("high");
            vmi["spec"]["schedulerName"] = json!("other");
            vmi["spec"]["terminationGracePeriodSeconds"] = json!(0);
            vmi["spec"]["tolerations"] = json!([{ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 }]);
            vmi["spec"]["domain"]["cpu"] = json!({ "cores": 2 });
            vmi["spec"]["domain"]["resources"] = json!({ "requests": { "memory": "128Mi", "cpu": 1 }, "limits": { "memory": "1Gi", "cpu": "2" } });
            let container = &mut vmi["spec"]["domain"]["firmware"]["kernelBoot"]["container"];
            container["imagePullPolicy"] = json!("Always");
            container["imagePullSecret"] = json!("registry");
        });
        assert_eq!(to_yaml(&pod).unwrap(), include_str!("../../tests/golden/everything.yaml"));
    }

    #[test]
    fn nothing_for_the_guest_is_in_the_pod() {
        let text = to_yaml(&pod_of(|vmi| {
            vmi["metadata"]["annotations"] = json!({ "secret-annotation": "x" });
            vmi["spec"]["domain"]["firmware"]["kernelBoot"]["kernelArgs"] =
                json!("password=secret");
        }))
        .unwrap();
        assert!(!text.contains("secret"), "{text}");
    }
}
