//! The agent's own view of the cluster: Pods of its node, and VMIs that are bound to it.
//!
//! Objects are read loosely: one that our types cannot read is left out with a word in the log, and stops nobody else's.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;

use corten_resources::names::{NETWORK_STATUS_ANNOTATION, NODE_NAME_LABEL};
use corten_resources::types::{ObjectMeta, VirtualMachineInstance};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::events::v1::Event as K8sEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;
use tracing::warn;

use crate::identity::{Known, KnownPod, PodName};

/// The API server, as far as the agent uses it.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    node: String,
    known: watch::Sender<Known>,
}

impl Cluster {
    /// Nothing is known yet.
    pub fn new(client: Client, node: &str) -> Self {
        let known = Known { node: node.into(), ..Known::default() };
        Self { client, node: node.into(), known: watch::Sender::new(known) }
    }

    /// What is known, and tells when that changes.
    pub fn known(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// Follows the Pods of this node, without end. Of a Pod, who it is and its addresses are all that matters.
    pub async fn watch_pods(&self) {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let config = Config::default().fields(&format!("spec.nodeName={}", self.node));
        let events = watcher(pods, config).default_backoff();
        self.follow("Pods", events, pod_entry, |known| &mut known.pods).await;
    }

    /// Follows the VMIs of this node, without end.
    pub async fn watch_vmis(&self) {
        let vmis: Api<DynamicObject> = Api::all_with(self.client.clone(), &vmi_resource());
        let config = Config::default().labels(&format!("{NODE_NAME_LABEL}={}", self.node));
        let events = watcher(vmis, config).default_backoff();
        self.follow("VirtualMachineInstances", events, vmi_entry, |known| &mut known.vmis).await;
    }

    /// Makes known what a watch would bring.
    #[cfg(test)]
    pub(crate) fn learn(&self, change: impl FnOnce(&mut Known)) {
        self.known.send_modify(change);
    }

    async fn follow<O: Debug, V>(
        &self,
        what: &str,
        events: impl Stream<Item = Result<Event<O>, kube::runtime::watcher::Error>>,
        entry: impl Fn(O) -> Option<(<V as Keyed>::Key, V)>,
        place: impl Fn(&mut Known) -> &mut BTreeMap<<V as Keyed>::Key, V>,
    ) where
        V: Keyed + PartialEq,
    {
        let mut events = pin!(events);
        let mut fresh = BTreeMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let change = Change::of(event, &entry);
                    self.known.send_if_modified(|known| change.apply(place(known), &mut fresh));
                }
                Err(error) => warn!("watching {what}: {:#}", anyhow::Error::from(error)),
            }
        }
    }

    /// Writes `patch` on a VMI.
    pub async fn patch_vmi(
        &self,
        vmi: &VirtualMachineInstance,
        patch: &Value,
    ) -> Result<(), kube::Error> {
        let (namespace, resource) = (&vmi.metadata.namespace, vmi_resource());
        let vmis: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        let parameters = PatchParams::default();
        vmis.patch(&vmi.metadata.name, &parameters, &Patch::Merge(patch)).await.map(drop)
    }

    /// Tells an event of a VMI. A policy lets agents tell events of such objects only, in their node's name.
    pub async fn tell(
        &self,
        vmi: &VirtualMachineInstance,
        warns: bool,
        reason: &str,
        message: &str,
    ) -> Result<(), kube::Error> {
        let event = event(&self.node, vmi, Timestamp::now(), (warns, reason, message));
        let events: Api<K8sEvent> = Api::namespaced(self.client.clone(), &vmi.metadata.namespace);
        events.create(&PostParams::default(), &event).await.map(drop)
    }
}

/// Name of the agent as a writer of events. Policies know it.
const CONTROLLER: &str = "corten-node-agent";

fn event(
    node: &str,
    vmi: &VirtualMachineInstance,
    now: Timestamp,
    (warns, reason, message): (bool, &str, &str),
) -> K8sEvent {
    /// API servers refuse longer ones.
    const LONGEST: usize = 1024;
    let ObjectMeta { name, namespace, uid, .. } = &vmi.metadata;
    K8sEvent {
        metadata: kube::api::ObjectMeta {
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: Some(namespace.clone()),
            ..Default::default()
        },
        regarding: Some(ObjectReference {
            api_version: Some("kubevirt.io/v1".to_owned()),
            kind: Some(VirtualMachineInstance::KIND.to_owned()),
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: Some(uid.clone()),
            ..Default::default()
        }),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(node.to_owned()),
        action: Some(reason.to_owned()),
        reason: Some(reason.to_owned()),
        note: Some(message[..message.floor_char_boundary(LONGEST)].to_owned()),
        type_: Some(if warns { "Warning" } else { "Normal" }.to_owned()),
        ..Default::default()
    }
}

fn vmi_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", VirtualMachineInstance::KIND);
    ApiResource::from_gvk_with_plural(&kind, VirtualMachineInstance::PLURAL)
}

/// What a value of [`Known`] is found by.
trait Keyed {
    type Key: Ord;
}

impl Keyed for KnownPod {
    type Key = PodName;
}

impl Keyed for VirtualMachineInstance {
    type Key = String;
}

fn pod_entry(pod: Pod) -> Option<(PodName, KnownPod)> {
    let metadata = pod.metadata;
    let addresses = pod.status.unwrap_or_default().pod_ips.into_iter().flatten();
    let annotations = metadata.annotations.as_ref();
    let seen = KnownPod {
        uid: metadata.uid?,
        addresses: addresses.map(|address| address.ip).collect(),
        network_status: annotations.and_then(|all| all.get(NETWORK_STATUS_ANNOTATION)).cloned(),
    };
    Some((PodName { namespace: metadata.namespace?, name: metadata.name? }, seen))
}

fn vmi_entry(object: DynamicObject) -> Option<(String, VirtualMachineInstance)> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let read = serde_json::to_value(object).and_then(serde_json::from_value);
    match read {
        Ok(vmi) => {
            let vmi: VirtualMachineInstance = vmi;
            Some((vmi.metadata.uid.clone(), vmi))
        }
        Err(error) => {
            warn!(
                vmi = name,
                "a VirtualMachineInstance cannot be read and is passed over: {error}"
            );
            None
        }
    }
}

/// What an event of a watch means for a map.
#[derive(Debug, PartialEq, Eq)]
enum Change<K, V> {
    /// A new list begins.
    Begin,
    /// A part of the new list.
    Listed(K, V),
    /// The new list is complete: what is not in it is gone.
    Complete,
    Set(K, V),
    Remove(K),
    Nothing,
}

impl<K: Ord, V: PartialEq> Change<K, V> {
    fn of<O>(event: Event<O>, entry: impl Fn(O) -> Option<(K, V)>) -> Self {
        match event {
            Event::Init => Self::Begin,
            Event::InitApply(object) => {
                entry(object).map_or(Self::Nothing, |(key, value)| Self::Listed(key, value))
            }
            Event::InitDone => Self::Complete,
            Event::Apply(object) => {
                entry(object).map_or(Self::Nothing, |(key, value)| Self::Set(key, value))
            }
            Event::Delete(object) => {
                entry(object).map_or(Self::Nothing, |(key, _)| Self::Remove(key))
            }
        }
    }

    /// Makes the change; whether it is one. Much of what happens to Pods does not matter here.
    fn apply(self, map: &mut BTreeMap<K, V>, fresh: &mut BTreeMap<K, V>) -> bool {
        match self {
            Self::Begin => fresh.clear(),
            Self::Listed(key, value) => drop(fresh.insert(key, value)),
            Self::Complete => {
                let before = std::mem::replace(map, std::mem::take(fresh));
                return before != *map;
            }
            Self::Set(key, value) if map.get(&key) == Some(&value) => {}
            Self::Set(key, value) => {
                map.insert(key, value);
                return true;
            }
            Self::Remove(key) => return map.remove(&key).is_some(),
            Self::Nothing => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn folded(events: impl IntoIterator<Item = Event<u8>>) -> Vec<u8> {
        let (mut map, mut fresh) = (BTreeMap::new(), BTreeMap::new());
        for event in events {
            let even = |number: u8| number.is_multiple_of(2).then_some((number, number));
            Change::of(event, even).apply(&mut map, &mut fresh);
        }
        map.into_values().collect()
    }

    #[test]
    fn only_what_changes_something_is_told() {
        let (mut map, mut fresh) = (BTreeMap::new(), BTreeMap::new());
        let events = [
            (Event::Init, false),
            (Event::InitApply((1, 'a')), false),
            (Event::InitDone, true),
            (Event::Apply((1, 'a')), false),
            (Event::Apply((1, 'b')), true),
            (Event::Delete((2, 'b')), false),
            (Event::Init, false),
            (Event::InitApply((1, 'b')), false),
            (Event::InitDone, false),
            (Event::Delete((1, 'b')), true),
        ];
        for (event, is_news) in events {
            let said = format!("{event:?}");
            let told = Change::of(event, Some).apply(&mut map, &mut fresh);
            assert_eq!(told, is_news, "{said}");
        }
    }

    #[test]
    fn pod_is_known_by_its_uid_with_its_addresses_and_networks() {
        let pod = json!({
            "metadata": {"namespace": "n", "name": "p", "uid": "u", "annotations":
                {"k8s.v1.cni.cncf.io/network-status": "[]", "other": "x"}},
            "status": {"podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}, {"ip": "fd00::7"}]},
        });
        let (name, seen) = pod_entry(serde_json::from_value(pod).unwrap()).unwrap();
        assert_eq!(name.to_string(), "n/p");
        let addresses = vec!["10.1.0.7".to_owned(), "fd00::7".to_owned()];
        let network_status = Some("[]".to_owned());
        assert_eq!(seen, KnownPod { uid: "u".into(), addresses, network_status });
    }

    #[test]
    fn new_list_replaces_the_old_one_only_when_it_is_complete() {
        let first = [Event::Init, Event::InitApply(2), Event::InitApply(4), Event::InitDone];
        let half = [Event::Init, Event::InitApply(6)];
        let rest = [Event::InitDone];
        let some = |parts: &[&[Event<u8>]]| folded(parts.concat());
        assert_eq!(some(&[&first]), [2, 4]);
        assert_eq!(some(&[&first, &half]), [2, 4]);
        assert_eq!(some(&[&first, &half, &rest]), [6]);
    }

    #[test]
    fn changes_are_followed_and_unreadable_objects_passed_over() {
        let events = [
            Event::Init,
            Event::InitDone,
            Event::Apply(2),
            Event::Apply(3),
            Event::Apply(8),
            Event::Delete(2),
        ];
        assert_eq!(folded(events), [8]);
    }

    #[test]
    fn event_is_of_the_vmi_in_the_nodes_name_and_not_too_long() {
        let metadata = json!({"namespace": "n", "name": "v", "uid": "u"});
        let vmi = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let event =
            event("node1", &vmi, Timestamp::UNIX_EPOCH, (true, "SyncFailed", &"ä".repeat(700)));
        let regarding = event.regarding.unwrap();
        assert_eq!(regarding.uid.as_deref(), Some("u"));
        assert_eq!(regarding.kind.as_deref(), Some("VirtualMachineInstance"));
        assert_eq!(event.reporting_instance.as_deref(), Some("node1"));
        assert_eq!((event.type_.as_deref(), event.note.unwrap().len()), (Some("Warning"), 1024));
    }

    #[test]
    fn vmi_with_a_field_of_another_type_is_passed_over() {
        let object = |spec: Value| -> DynamicObject {
            let metadata = json!({"namespace": "n", "name": "v", "uid": "u"});
            let kind = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec});
            serde_json::from_value(kind).unwrap()
        };
        assert_eq!(vmi_entry(object(json!({}))).unwrap().0, "u");
        assert!(vmi_entry(object(json!({"domain": "no domain"}))).is_none());
    }
}
