//! What there is of a VirtualMachineInstance. Reads only.

use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{LAUNCH_ATTEMPT_ANNOTATION, launcher_pod_name};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt};
use std::sync::Arc;

/// The Pods of a VirtualMachineInstance.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// That of the present attempt.
    pub pod: Option<Arc<Pod>>,
    /// Those of attempts before.
    pub earlier: Vec<Arc<Pod>>,
}

/// Which attempt at a Pod the VirtualMachineInstance is at.
pub(super) fn attempt(vmi: &VirtualMachineInstance) -> u32 {
    let text = vmi.metadata.annotations.as_ref().and_then(|all| all.get(LAUNCH_ATTEMPT_ANNOTATION));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Only so many attempts before are looked for. They are deleted when the next one begins, so that all but the last are
/// long gone; and whoever edits the number makes nobody count to it.
const EARLIER: u32 = 8;

/// Looks the Pods up by their names.
pub(super) async fn observe(
    vmi: &VirtualMachineInstance,
    pods: &Store<Pod>,
    client: &Client,
) -> Result<Observed, kube::Error> {
    let namespace = vmi.namespace().unwrap_or_default();
    let (name, uid) = (vmi.name_any(), vmi.uid().unwrap_or_default());
    let stored = |attempt| {
        let key =
            ObjectRef::<Pod>::new(&launcher_pod_name(&name, &uid, attempt)).within(&namespace);
        pods.get(&key)
    };
    let attempt = attempt(vmi);
    let mut pod = stored(attempt);
    let matters = vmi.metadata.deletion_timestamp.is_some() || !vmi.status.active_pods.is_empty();
    if pod.is_none() && matters {
        // That it is gone ends the object, and once the finalizer is gone nobody looks after the Pod any more: a cache that
        // is behind, or a Pod whose label was taken away, is not enough for that.
        let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        pod = api.get_opt(&launcher_pod_name(&name, &uid, attempt)).await?.map(Arc::new);
    }
    let earlier = (attempt.saturating_sub(EARLIER)..attempt).filter_map(stored).collect();
    Ok(Observed { pod, earlier })
}
