//! What there is of a VirtualMachineInstance. Reads only.

use super::claims::used;
use super::conditions::{PATIENCE, awaited_for, unscheduled};
use super::fate::node_name;
use super::plan::{LOOK_AGAIN, created_by, is_held};
use crate::failure::chain;
use crate::pod::Claims;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{
    LAUNCH_ATTEMPT_ANNOTATION, VM_NAME_LABEL, label_value, launcher_pod_name,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What there is of a VirtualMachineInstance.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The Pod of the present attempt.
    pub pod: Option<Arc<Pod>>,
    /// Those of attempts before.
    pub earlier: Vec<Arc<Pod>>,
    /// Those that an earlier object of the same name has left, if this one has none yet.
    pub left: Vec<Arc<Pod>>,
    /// Nodes of Pods that are there, or were, by name. One that is missing has been deleted.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// Claims that its volumes use, as far as they are there.
    pub claims: Claims,
    /// Every node, if the scheduler finds none for the Pod.
    pub all_nodes: Vec<Arc<Node>>,
    /// What was last said about a Pod whose container is not coming.
    pub said: Option<Said>,
}

/// A warning about a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// In one word.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl Observed {
    /// The Node of a Pod, if there is one.
    pub(super) fn node_of(&self, pod: &Pod) -> Option<&Node> {
        self.nodes.get(node_name(pod)?).map(Arc::as_ref)
    }
}

/// What is watched.
#[derive(Clone)]
pub(super) struct Stores {
    pub(super) pods: Store<Pod>,
    pub(super) nodes: Store<Node>,
    pub(super) claims: Store<PersistentVolumeClaim>,
}

/// Which attempt at a Pod the VirtualMachineInstance is at.
pub(super) fn attempt(vmi: &VirtualMachineInstance) -> u32 {
    let text = vmi.metadata.annotations.as_ref().and_then(|all| all.get(LAUNCH_ATTEMPT_ANNOTATION));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The object was made that long ago.
fn is_older(vmi: &VirtualMachineInstance, age: Duration, now: Timestamp) -> bool {
    let made = vmi.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    now.duration_since(made).unsigned_abs() > age && made < now
}

/// Only so many attempts before are looked for. They are deleted when the next one begins, so that all but the last are
/// long gone; and whoever edits the number makes nobody count to it.
const EARLIER: u32 = 8;

/// Looks everything up by its name.
pub(super) async fn observe(
    vmi: &VirtualMachineInstance,
    stores: &Stores,
    client: &Client,
    now: Timestamp,
) -> Result<Observed, kube::Error> {
    let namespace = vmi.namespace().unwrap_or_default();
    let (name, uid) = (vmi.name_any(), vmi.uid().unwrap_or_default());
    let stored = |attempt| {
        let key =
            ObjectRef::<Pod>::new(&launcher_pod_name(&name, &uid, attempt)).within(&namespace);
        stores.pods.get(&key)
    };
    let attempt = attempt(vmi);
    let mut pod = stored(attempt);
    let waits = !vmi.status.phase.is_final() && is_older(vmi, LOOK_AGAIN, now);
    let matters = vmi.metadata.deletion_timestamp.is_some()
        || !(vmi.status.phase.is_final() || vmi.status.active_pods.is_empty());
    if pod.is_none() && (matters || waits) {
        // That it is gone ends the object, and once the finalizer is gone nobody looks after the Pod any more: a cache that
        // is behind, or a Pod whose label was taken away, is not enough for that. And somebody else's Pod, which has no such
        // label, may have its name: that is to be told.
        let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        pod = api.get_opt(&launcher_pod_name(&name, &uid, attempt)).await?.map(Arc::new);
    }
    let earlier: Vec<_> = (attempt.saturating_sub(EARLIER)..attempt).filter_map(stored).collect();
    let left = if pod.is_none() { left_by_others(vmi, &stores.pods) } else { Vec::new() };
    let claims = used(&vmi.spec).filter_map(|used| {
        let key = ObjectRef::new(used.claim).within(&namespace);
        Some((used.claim.to_owned(), stores.claims.get(&key)?))
    });
    let claims = claims.collect();
    let named = pod.iter().chain(&earlier).chain(&left).filter_map(|pod| node_name(pod));
    let listed = vmi.status.active_pods.values().map(String::as_str);
    let nodes = nodes(named.chain(listed).collect(), &stores.nodes, client).await?;
    let said = match &pod {
        Some(pod) if awaited_for(pod, now).is_some_and(|time| time >= PATIENCE) => {
            // It is only told; nothing is decided by it.
            said(pod, client).await.unwrap_or_else(|error| {
                tracing::warn!(pod = pod.name_any(), error = chain(&error), "cannot read events");
                None
            })
        }
        _ => None,
    };
    let unplaced = pod.as_ref().and_then(|pod| unscheduled(pod)).is_some();
    let all_nodes = if unplaced { stores.nodes.state() } else { Vec::new() };
    Ok(Observed { pod, earlier, left, nodes, claims, all_nodes, said })
}

/// Pods of objects that had the name before: their VM has the same disks.
fn left_by_others(vmi: &VirtualMachineInstance, pods: &Store<Pod>) -> Vec<Arc<Pod>> {
    let (namespace, name, uid) = (vmi.namespace(), label_value(&vmi.name_any()), vmi.uid());
    let is_left = |pod: &&Arc<Pod>| {
        pod.namespace() == namespace
            && pod.labels().get(VM_NAME_LABEL) == Some(&name)
            && is_held(pod)
            && created_by(pod).is_some_and(|by| Some(by) != uid.as_deref())
    };
    pods.state().iter().filter(is_left).map(Arc::clone).collect()
}

/// Nodes of these names. That one is gone is proof of death for what ran there, so a cache is not enough for it.
pub(super) async fn nodes(
    names: BTreeSet<&str>,
    store: &Store<Node>,
    client: &Client,
) -> Result<BTreeMap<String, Arc<Node>>, kube::Error> {
    let mut nodes = BTreeMap::new();
    for name in names {
        let node = match store.get(&ObjectRef::new(name)) {
            Some(node) => Some(node),
            None => Api::<Node>::all(client.clone()).get_opt(name).await?.map(Arc::new),
        };
        nodes.extend(node.map(|node| (name.to_owned(), node)));
    }
    Ok(nodes)
}

/// The last warning about a Pod: a missing Secret, a volume that cannot be attached. Nothing of it is in the Pod itself.
async fn said(pod: &Pod, client: &Client) -> Result<Option<Said>, kube::Error> {
    let api: Api<Event> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let selector = format!("involvedObject.uid={},type=Warning", pod.uid().unwrap_or_default());
    let events = api.list(&ListParams::default().fields(&selector).limit(100)).await?;
    Ok(latest(events.items))
}

/// The last of these that tells why a container is not coming.
fn latest(events: Vec<Event>) -> Option<Said> {
    let time = |event: &Event| {
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let micro = series.or(event.event_time.as_ref()).map(|time| time.0);
        let seconds = event.last_timestamp.as_ref().map(|time| time.0);
        micro.into_iter().chain(seconds).max()
    };
    // It has a node by now.
    let tells = |event: &Event| event.reason.as_deref() != Some("FailedScheduling");
    let last = events.into_iter().filter(tells).max_by_key(time)?;
    Some(Said {
        reason: last.reason.unwrap_or_else(|| "Waiting".to_owned()),
        message: last.message.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::now;
    use serde_json::json;

    fn event(reason: &str, second: i64) -> Event {
        let time = now(second).to_string();
        let event = json!({ "metadata": {}, "involvedObject": {}, "reason": reason, "message": "why", "lastTimestamp": time });
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn the_last_word_about_a_pod_counts() {
        let events = vec![
            event("FailedMount", 3),
            event("FailedAttachVolume", 2),
            event("FailedScheduling", 4),
        ];
        assert_eq!(latest(events).unwrap().reason, "FailedMount");
        assert_eq!(latest(vec![event("FailedScheduling", 1)]), None);
    }
}
