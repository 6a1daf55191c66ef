//! Labels and annotations of a launcher Pod, its owner, its finalizer.

use super::networks;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{
    APP_LABEL, CREATED_BY_LABEL, DEFAULT_CONTAINER_ANNOTATION, DOMAIN_ANNOTATION, LAUNCHER,
    LAUNCHER_CONTAINER, LAUNCHER_FINALIZER, NETWORK_STATUS_ANNOTATION, REPORTED_ANNOTATIONS,
    REPORTED_LABELS, VM_NAME_LABEL, VMI_ID_LABEL, label_value, launcher_pod_name,
};
use corten_resources::validate::{Finding, check_annotations, runs_otherwise};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use std::collections::BTreeMap;

/// Annotations that speak of the object itself, or of an earlier Pod, not of what it runs.
const KEPT_BACK: [&str; 3] = [
    NETWORK_STATUS_ANNOTATION,
    "kubevirt.io/latest-observed-api-version",
    "kubevirt.io/storage-observed-api-version",
];

/// kubectl's own, such as the object as it was last applied: with all that is meant for the guest.
const KUBECTL: &str = "kubectl.kubernetes.io/";

pub(super) fn of_pod(vmi: &VirtualMachineInstance, attempt: u32) -> Result<ObjectMeta, Finding> {
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    Ok(ObjectMeta {
        name: Some(launcher_pod_name(name, uid, attempt)),
        namespace: vmi.metadata.namespace.clone(),
        labels: Some(labels(vmi, name, uid)),
        annotations: Some(annotations(vmi, name)?),
        owner_references: Some(vec![owner(name, uid)]),
        finalizers: Some(vec![LAUNCHER_FINALIZER.to_owned()]),
        ..Default::default()
    })
}

/// Those of its VirtualMachineInstance, for Services and policies that select by them, and those that say what it is.
fn labels(vmi: &VirtualMachineInstance, name: &str, uid: &str) -> BTreeMap<String, String> {
    let mut labels = vmi.metadata.labels.clone().unwrap_or_default();
    // Written on the object once its Pod has a node; on a Pod of a later attempt it would name the earlier one's.
    labels.retain(|key, _| !REPORTED_LABELS.contains(&key.as_str()));
    labels.insert(APP_LABEL.to_owned(), LAUNCHER.to_owned());
    labels.insert(CREATED_BY_LABEL.to_owned(), uid.to_owned());
    labels.insert(VM_NAME_LABEL.to_owned(), label_value(name));
    labels.insert(VMI_ID_LABEL.to_owned(), label_value(name));
    labels
}

/// Those of its VirtualMachineInstance, which CNI plugins and others read, and those that tools look for.
fn annotations(
    vmi: &VirtualMachineInstance,
    name: &str,
) -> Result<BTreeMap<String, String>, Finding> {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let mut annotations = vmi.metadata.annotations.clone().unwrap_or_default();
    // Those that would change what is run are refused, never dropped.
    if let Some(refused) =
        check_annotations("metadata.annotations", &annotations).into_iter().next()
    {
        return Err(refused);
    }
    let of_itself = |key: &str| REPORTED_ANNOTATIONS.contains(&key) || KEPT_BACK.contains(&key);
    // Its user was warned of those that would run it under another profile.
    annotations
        .retain(|key, _| !key.starts_with(KUBECTL) && !of_itself(key) && !runs_otherwise(key));
    annotations.extend(networks::annotations(&vmi.spec, namespace)?);
    annotations.insert(DOMAIN_ANNOTATION.to_owned(), name.to_owned());
    annotations.insert(DEFAULT_CONTAINER_ANNOTATION.to_owned(), LAUNCHER_CONTAINER.to_owned());
    Ok(annotations)
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
