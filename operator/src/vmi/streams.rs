//! What is watched, and whom it concerns. Stores keep only what is looked at: there may be many Pods and nodes.

use super::claims::{CDI, used};
use super::fate::{answers, boot_id, is_out_of_service};
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::{
    APP_LABEL, HEARTBEAT_ANNOTATION, KVM_RESOURCE, LAUNCHER, SCHEDULABLE_LABEL,
};
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, ResourceExt};
use std::collections::{HashMap, HashSet};

/// One that our types cannot read does not keep the others from being served.
pub(super) type Guarded = DeserializeGuard<VirtualMachineInstance>;

/// A store, and the objects in it as they come and change.
type Watched<K, S> = (Store<K>, S);

/// Launcher Pods, also when they go.
pub(super) fn pods(
    client: &Client,
) -> Watched<core::Pod, impl Stream<Item = Result<core::Pod, watcher::Error>> + use<>> {
    let (store, writer) = reflector::store();
    let launchers = watcher::Config::default().labels(&format!("{APP_LABEL}={LAUNCHER}"));
    let events = watch(Api::<core::Pod>::all(client.clone()), launchers)
        .default_backoff()
        // Of no use here, and half of a Pod's size.
        .modify(|pod| pod.managed_fields_mut().clear())
        .reflect(writer)
        .touched_objects();
    (store, events)
}

/// Claims, also when they go.
pub(super) fn claims(
    client: &Client,
) -> Watched<
    core::PersistentVolumeClaim,
    impl Stream<Item = Result<core::PersistentVolumeClaim, watcher::Error>> + use<>,
> {
    let (store, writer) = reflector::store();
    let all = Api::<core::PersistentVolumeClaim>::all(client.clone());
    let events = watch(all, watcher::Config::default())
        .default_backoff()
        .modify(slim_claim)
        .reflect(writer)
        .touched_objects();
    (store, events)
}

/// Nodes, whenever something about them changed that tells of the VMs there. They report much else, and often.
pub(super) fn nodes(
    client: &Client,
) -> Watched<core::Node, impl Stream<Item = Result<core::Node, watcher::Error>> + use<>> {
    let (store, writer) = reflector::store();
    let mut known = Known::default();
    let events = watch(Api::<core::Node>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .modify(slim_node)
        .reflect(writer)
        .flat_map(move |event| {
            let news = match event {
                Ok(event) => known.news(event).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            stream::iter(news)
        });
    (store, events)
}

/// What tells of the VMs on a node: whether it answers, whether it is out of service, which boot it is in.
type Facts = (bool, bool, Option<String>);

fn facts(node: &core::Node) -> Facts {
    (answers(node), is_out_of_service(node), boot_id(node).map(str::to_owned))
}

/// What was last told of nodes.
#[derive(Default)]
struct Known {
    facts: HashMap<String, Facts>,
    /// Those of the list that is being received.
    listed: HashSet<String>,
}

impl Known {
    /// Nodes of which an event is news.
    fn news(&mut self, event: Event<core::Node>) -> Vec<core::Node> {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(node) => {
                self.listed.insert(node.name_any());
                return self.changed(node);
            }
            Event::Apply(node) => return self.changed(node),
            Event::Delete(node) => {
                self.facts.remove(&node.name_any());
                return vec![node];
            }
            // What went while the watch was lost is in no event.
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let gone = self.facts.extract_if(|name, _| !listed.contains(name));
                return gone
                    .map(|(name, _)| core::Node {
                        metadata: ObjectMeta { name: Some(name), ..Default::default() },
                        ..Default::default()
                    })
                    .collect();
            }
        }
        Vec::new()
    }

    fn changed(&mut self, node: core::Node) -> Vec<core::Node> {
        let facts = facts(&node);
        let before = self.facts.insert(node.name_any(), facts.clone());
        if before == Some(facts) { Vec::new() } else { vec![node] }
    }
}

fn slim_node(node: &mut core::Node) {
    let status = node.status.take().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let boot_id = status.node_info.map(|info| info.boot_id).unwrap_or_default();
    let devices = status.allocatable.map(|mut all| {
        all.retain(|resource, _| resource == KVM_RESOURCE);
        all
    });
    node.status = Some(core::NodeStatus {
        conditions: Some(conditions.into_iter().filter(|one| one.type_ == "Ready").collect()),
        node_info: Some(core::NodeSystemInfo { boot_id, ..Default::default() }),
        allocatable: devices,
        ..Default::default()
    });
    let taints = node.spec.take().and_then(|spec| spec.taints);
    node.spec = Some(core::NodeSpec { taints, ..Default::default() });
    node.managed_fields_mut().clear();
    node.annotations_mut().retain(|key, _| key == HEARTBEAT_ANNOTATION);
    node.labels_mut().retain(|key, _| key == SCHEDULABLE_LABEL);
}

fn slim_claim(claim: &mut core::PersistentVolumeClaim) {
    claim.managed_fields_mut().clear();
    claim.annotations_mut().retain(|key, _| key.starts_with(CDI));
    claim.labels_mut().clear();
}

/// The objects that list a node as theirs.
pub(super) fn on_node(node: &core::Node, vmis: &Store<Guarded>) -> Vec<ObjectRef<Guarded>> {
    let name = node.name_any();
    those(vmis, |vmi| vmi.status.active_pods.values().any(|listed| *listed == name))
}

/// The objects that use a claim.
pub(super) fn using(
    claim: &core::PersistentVolumeClaim,
    vmis: &Store<Guarded>,
) -> Vec<ObjectRef<Guarded>> {
    let (name, namespace) = (claim.name_any(), claim.namespace());
    those(vmis, |vmi| {
        vmi.namespace() == namespace && used(&vmi.spec).any(|used| used.claim == name)
    })
}

fn those(
    vmis: &Store<Guarded>,
    are_meant: impl Fn(&VirtualMachineInstance) -> bool,
) -> Vec<ObjectRef<Guarded>> {
    let all = vmis.state();
    let meant = all.iter().filter(|vmi| vmi.0.as_ref().is_ok_and(&are_meant));
    meant.map(|vmi| ObjectRef::from_obj(vmi.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::{claim, minimal_vmi, node, now};
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn a_node_is_news_when_it_falls_silent_is_fenced_boots_or_goes() {
        let mut known = Known::default();
        let mut is_news = |event| !known.news(event).is_empty();
        let well = || node("a", |_| ());
        assert!(is_news(Event::InitApply(well())));
        assert!(!is_news(Event::Apply(well())));
        let later = node("a", |node| {
            node["status"]["conditions"][0]["lastHeartbeatTime"] = json!(now(9).to_string());
        });
        assert!(!is_news(Event::Apply(later)), "it only reported");
        let silent = node("a", |node| node["status"]["conditions"][0]["status"] = json!("Unknown"));
        assert!(is_news(Event::Apply(silent)));
        assert!(is_news(Event::Apply(well())));
        assert!(is_news(Event::Apply(
            node("a", |node| node["status"]["nodeInfo"]["bootID"] = json!("boot-2"))
        )));
        assert!(is_news(Event::Delete(well())));
        assert!(is_news(Event::Apply(well())));
    }

    #[test]
    fn a_node_that_went_while_the_watch_was_lost_is_news() {
        let mut known = Known::default();
        let mut list = |names: &[&str]| {
            known.news(Event::Init);
            for name in names {
                known.news(Event::InitApply(node(name, |_| ())));
            }
            let gone = known.news(Event::InitDone);
            gone.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
        };
        assert!(list(&["a", "b"]).is_empty());
        assert_eq!(list(&["b"]), ["a"]);
        assert!(list(&["b"]).is_empty());
    }

    #[test]
    fn what_is_kept_of_a_node_tells_the_same() {
        let mut slim = node("a", |node| {
            node["metadata"]["labels"] = json!({ "a": "b", SCHEDULABLE_LABEL: "false" });
            node["metadata"]["annotations"] = json!({ "a": "b", HEARTBEAT_ANNOTATION: "then" });
            node["status"]["allocatable"] = json!({ "cpu": "4", KVM_RESOURCE: "0" });
            node["spec"]["taints"] =
                json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
            node["status"]["images"] = json!([{ "names": ["x"] }]);
        });
        let before = facts(&slim);
        slim_node(&mut slim);
        assert_eq!(facts(&slim), before);
        let keys = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(slim.labels()), [SCHEDULABLE_LABEL]);
        assert_eq!(keys(slim.annotations()), [HEARTBEAT_ANNOTATION]);
        let status = slim.status.unwrap();
        assert!(status.images.is_none());
        assert_eq!(status.allocatable.unwrap().into_keys().collect::<Vec<_>>(), [KVM_RESOURCE]);
    }

    #[test]
    fn claims_and_nodes_concern_those_who_use_them() {
        let (store, mut writer) = reflector::store::<Guarded>();
        let vmi = minimal_vmi(|vmi| {
            vmi["spec"]["volumes"] =
                json!([{ "name": "a", "persistentVolumeClaim": { "claimName": "mine" } }]);
            vmi["status"] = json!({ "activePods": { "uid": "node1" } });
        });
        let guarded: Guarded = serde_json::from_value(serde_json::to_value(vmi).unwrap()).unwrap();
        writer.apply_watcher_event(&Event::Apply(guarded));
        assert_eq!(using(&claim("mine", |_| ()), &store).len(), 1);
        assert_eq!(using(&claim("other", |_| ()), &store).len(), 0);
        assert_eq!(
            using(
                &claim("mine", |claim| claim["metadata"]["namespace"] = json!("elsewhere")),
                &store
            )
            .len(),
            0
        );
        assert_eq!(on_node(&node("node1", |_| ()), &store).len(), 1);
        assert_eq!(on_node(&node("node2", |_| ()), &store).len(), 0);
    }
}
