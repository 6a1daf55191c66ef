//! Launcher Pods whose VirtualMachineInstance is gone: somebody took its finalizer away, or its kind. Nobody reconciles
//! them, and our finalizer would hold them for ever. They are deleted, and let go on proof only.

use super::fate::{Fate, fate, node_name};
use super::observe::{Stores, nodes};
use super::plan::{created_by, is_going, is_held};
use super::streams::Guarded;
use crate::failure::chain;
use crate::write::Writer;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{DOMAIN_ANNOTATION, VM_NAME_LABEL};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::Store;
use kube::{Api, Client, Resource, ResourceExt};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How often they are looked for.
const EACH: Duration = Duration::from_secs(10);
/// Seconds for a guest whose Pod does not say, as it is in Kubernetes.
const DEFAULT_GRACE: i64 = 30;

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
        // Once for all of them: there may be a thousand, and nearly all are somebody's.
        let known: HashSet<String> = vmis.state().iter().filter_map(|vmi| vmi.uid()).collect();
        let is_known = |pod: &Pod| owner(pod).is_some_and(|(_, uid)| known.contains(uid));
        let pods = stores.pods.state();
        for pod in pods.iter().filter(|pod| is_held(pod) && !is_known(pod)) {
            if let Err(error) = look(pod, stores, client, writer).await {
                tracing::warn!(pod = pod.name_any(), error, "cannot let an orphan go");
            }
        }
    }
}

/// Name and uid of the object that a Pod was made for. The reference is gone when the object was deleted without its
/// dependents; what is left then are labels that a policy keeps, and a name that anybody may change, but that finds nobody
/// else's object, as uids are compared.
fn owner(pod: &Pod) -> Option<(&str, &str)> {
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    match owner {
        Some(owner) => {
            let is_vmi = owner.kind == VirtualMachineInstance::kind(&());
            is_vmi.then_some((owner.name.as_str(), owner.uid.as_str()))
        }
        None => {
            let name = pod.annotations().get(DOMAIN_ANNOTATION);
            let name = name.or_else(|| pod.labels().get(VM_NAME_LABEL));
            Some((name?.as_str(), created_by(pod)?))
        }
    }
}

/// Whoever it was made for is not in our store.
async fn look(
    pod: &Arc<Pod>,
    stores: &Stores,
    client: &Client,
    writer: &Writer,
) -> Result<(), String> {
    let namespace = pod.namespace().unwrap_or_default();
    let owner = owner(pod);
    if let Some((name, uid)) = owner {
        // A store may be behind.
        let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &namespace);
        let there = api.get_metadata_opt(name).await.map_err(|error| chain(&error))?;
        if there.is_some_and(|vmi| vmi.uid().as_deref() == Some(uid)) {
            return Ok(());
        }
    }
    if owner.is_some() && !is_going(pod) {
        tracing::info!(pod = pod.name_any(), namespace, "delete an orphan");
        let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let deleted = writer.delete_pod(pod, grace.unwrap_or(DEFAULT_GRACE)).await;
        deleted.map_err(|error| chain(&error))?;
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
    use crate::vmi::testing::{UID, minimal_vmi, pod};
    use serde_json::json;

    #[test]
    fn the_owner_is_the_vmi_that_the_pod_was_made_for() {
        let vmi = minimal_vmi(|_| ());
        assert_eq!(owner(&pod(&vmi, 0, |_| ())), Some(("first", UID)));
        let stripped = pod(&vmi, 0, |pod| pod["metadata"]["ownerReferences"] = json!([]));
        assert_eq!(owner(&stripped), Some(("first", UID)));
        let others = pod(&vmi, 0, |pod| {
            pod["metadata"]["ownerReferences"][0]["kind"] = json!("ReplicaSet");
        });
        assert_eq!(owner(&others), None);
    }
}
