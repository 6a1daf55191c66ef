//! Launcher Pods whose VirtualMachineInstance is gone: somebody took its finalizer away, or its kind. Nobody reconciles
//! them, and our finalizer would hold them for ever. They too are let go on proof only.

use super::fate::{Fate, fate, node_name};
use super::observe::{Stores, nodes};
use super::streams::Guarded;
use crate::failure::chain;
use crate::write::Writer;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::LAUNCHER_FINALIZER;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How often they are looked for.
const EACH: Duration = Duration::from_secs(10);

/// Lets Pods go whose object is gone, without end.
pub(super) async fn sweep(
    stores: &Stores,
    vmis: &Store<Guarded>,
    client: &Client,
    writer: &Writer,
) {
    let ready = async {
        stores.pods.wait_until_ready().await?;
        stores.nodes.wait_until_ready().await?;
        vmis.wait_until_ready().await
    };
    if ready.await.is_err() {
        // The watches have ended, and with them everything else.
        return std::future::pending().await;
    }
    let mut ticks = interval(EACH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for pod in stores.pods.state().iter().filter(|pod| is_held(pod)) {
            if let Err(error) = look(pod, stores, vmis, client, writer).await {
                tracing::warn!(pod = pod.name_any(), error, "cannot let an orphan go");
            }
        }
    }
}

/// Only our finalizer, and perhaps others', keep it.
fn is_held(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
        && pod.finalizers().iter().any(|name| name == LAUNCHER_FINALIZER)
}

/// Name and uid of the object that controls a Pod.
fn owner(pod: &Pod) -> Option<(&str, &str)> {
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    let is_vmi = owner.kind == VirtualMachineInstance::kind(&());
    is_vmi.then_some((owner.name.as_str(), owner.uid.as_str()))
}

async fn look(
    pod: &Arc<Pod>,
    stores: &Stores,
    vmis: &Store<Guarded>,
    client: &Client,
    writer: &Writer,
) -> Result<(), String> {
    let namespace = pod.namespace().unwrap_or_default();
    if let Some((name, uid)) = owner(pod) {
        let known = vmis.get(&ObjectRef::new(name).within(&namespace));
        if known.is_some_and(|vmi| vmi.uid().as_deref() == Some(uid)) {
            return Ok(());
        }
        // A store may be behind.
        let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &namespace);
        let there = api.get_metadata_opt(name).await.map_err(|error| chain(&error))?;
        if there.is_some_and(|vmi| vmi.uid().as_deref() == Some(uid)) {
            return Ok(());
        }
    }
    let names = node_name(pod).into_iter().collect();
    let nodes = nodes(names, &stores.nodes, client).await.map_err(|error| chain(&error))?;
    let node = node_name(pod).and_then(|name| nodes.get(name)).map(Arc::as_ref);
    if let Fate::Dead(proof) = fate(pod, node, None) {
        tracing::info!(pod = pod.name_any(), namespace, ?proof, "let an orphan go");
        match writer.release_pod(pod).await {
            Err(error) if !error.is_conflict() => return Err(chain(&error)),
            // Whoever changed it makes it be looked at again.
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::{UID, minimal_vmi, now, pod};
    use serde_json::json;

    #[test]
    fn only_pods_that_go_and_are_held_by_us_are_looked_at() {
        let vmi = minimal_vmi(|_| ());
        let going = |pod: &mut serde_json::Value| {
            pod["metadata"]["deletionTimestamp"] = json!(now(0).to_string());
        };
        assert!(!is_held(&pod(&vmi, 0, |_| ())));
        assert!(is_held(&pod(&vmi, 0, going)));
        let free = pod(&vmi, 0, |pod| {
            going(pod);
            pod["metadata"]["finalizers"] = json!(["other/one"]);
        });
        assert!(!is_held(&free));
    }

    #[test]
    fn the_owner_is_the_vmi_that_controls_the_pod() {
        let vmi = minimal_vmi(|_| ());
        assert_eq!(owner(&pod(&vmi, 0, |_| ())), Some(("first", UID)));
        let without = pod(&vmi, 0, |pod| pod["metadata"]["ownerReferences"] = json!([]));
        assert_eq!(owner(&without), None);
    }
}
