//! A VirtualMachineInstance as a launcher Pod. Pure.
//!
//! | file | decides |
//! |---|---|
//! | `metadata` | labels and annotations, owner, finalizer |
//! | `volumes` | volumes, where each is in the container, with which Secrets images are pulled |
//! | `resources` | requests and limits, and what a launcher needs beyond its guest's memory |
//! | `placement` | which nodes it may come to |
//! | `naming` | host name and name servers |
//! | `networks` | networks beside the Pod's own, and ports |
//! | `probes` | how kubelet asks the guest whether it is well |
//! | `security` | what it may do: nothing that Pod Security "restricted" would have to allow |
//!
//! Of the VirtualMachineInstance, labels and annotations are in the Pod, and names of objects: who may read Pods must not
//! read what is meant for the guest. The node agent hands the object to the launcher; Secrets are mounted.
//!
//! A readiness gate keeps a Pod from being ready until its guest runs, and while it is paused: Services lead to the guest.

mod metadata;
mod naming;
mod networks;
mod placement;
mod probes;
mod resources;
mod security;
mod volumes;

#[cfg(test)]
mod tests;

pub use resources::memory_overhead;
pub use volumes::lacks_images;

use crate::Settings;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{LAUNCHER_CONTAINER, UNPAUSED_GATE};
use corten_resources::types::{Embedded, VirtualMachineInstanceSpec};
use corten_resources::validate::Finding;
use k8s_openapi::api::core::v1 as core;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What kubelet waits beyond the guest's grace period: the launcher then ends the VM by force, and says so.
const BEYOND_GRACE: Duration = Duration::from_secs(15);

/// Claims of a namespace, by name.
pub type Claims = BTreeMap<String, Arc<core::PersistentVolumeClaim>>;

/// The Pod of a VirtualMachineInstance at its n-th attempt. `claims` has those that it uses.
pub fn launcher_pod(
    vmi: &VirtualMachineInstance,
    attempt: u32,
    claims: &Claims,
    settings: &Settings,
) -> Result<core::Pod, Finding> {
    let spec = &vmi.spec;
    let storage = volumes::of_pod(spec, claims, settings)?;
    let container = core::Container {
        name: LAUNCHER_CONTAINER.to_owned(),
        image: Some(settings.launcher_image.clone()),
        image_pull_policy: Some(settings.launcher_pull_policy.clone()),
        command: Some(vec!["/corten-launcher".to_owned()]),
        resources: Some(resources::of_container(spec, settings, storage.has_scratch)?),
        security_context: Some(security::of_container()),
        ports: some(networks::ports(spec)),
        volume_mounts: some(storage.mounts),
        volume_devices: some(storage.devices),
        liveness_probe: probes::probe("spec.livenessProbe", spec.liveness_probe.as_ref())?,
        readiness_probe: probes::probe("spec.readinessProbe", spec.readiness_probe.as_ref())?,
        ..Default::default()
    };
    let mut pod = core::PodSpec {
        restart_policy: Some("Never".to_owned()),
        automount_service_account_token: Some(false),
        service_account_name: volumes::service_account(spec),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(deletion_grace(spec)),
        security_context: Some(security::of_pod(settings.seccomp)),
        containers: vec![container],
        volumes: some(storage.volumes),
        image_pull_secrets: some(storage.pull_secrets),
        readiness_gates: Some(vec![core::PodReadinessGate {
            condition_type: UNPAUSED_GATE.to_owned(),
        }]),
        ..Default::default()
    };
    placement::place(&mut pod, spec)?;
    naming::name(&mut pod, vmi);
    Ok(core::Pod { metadata: metadata::of_pod(vmi, attempt)?, spec: Some(pod), status: None })
}

/// Seconds that kubelet gives a Pod of this VirtualMachineInstance when it is deleted.
pub fn deletion_grace(spec: &VirtualMachineInstanceSpec) -> i64 {
    i64::try_from((spec.grace_period().saturating_add(BEYOND_GRACE)).as_secs()).unwrap_or(i64::MAX)
}

/// An empty list is left out.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// A text that says something.
fn given(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// An object of Kubernetes' own that is passed on as it came.
fn embedded<T: DeserializeOwned>(path: &str, object: &Embedded) -> Result<T, Finding> {
    serde_json::from_value(Value::Object(object.clone()))
        .map_err(|error| Finding::invalid(path, format!("it cannot be read: {error}")))
}
