//! Every write to the API server: create a Pod, patch a VirtualMachineInstance, delete a Pod, tell an event. Counted.

use crate::vmi::{Notice, Severity};
use corten_resources::cluster::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The operator's name as a writer.
const FIELD_MANAGER: &str = "corten-operator";

/// Writes to the API server.
pub struct Writer {
    client: Client,
    recorder: Recorder,
    counts: Counts,
}

/// How many writes of each kind were sent, also those that were refused.
#[derive(Debug, Default)]
pub struct Counts {
    pods_created: AtomicU64,
    pods_deleted: AtomicU64,
    vmis_patched: AtomicU64,
    events: AtomicU64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [created, deleted, patched, events] =
            [&self.pods_created, &self.pods_deleted, &self.vmis_patched, &self.events]
                .map(|count| count.load(Ordering::Relaxed));
        write!(
            f,
            "{created} Pods created, {deleted} Pods deleted, {patched} VMI patches, {events} events"
        )
    }
}

/// A write that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {object}")]
pub struct WriteError {
    /// What was to be done.
    pub action: &'static str,
    /// To which object.
    pub object: String,
    /// Why not.
    #[source]
    pub source: kube::Error,
}

impl WriteError {
    fn status(&self) -> Option<&kube::core::Status> {
        match &self.source {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// Somebody else wrote in between: observe again.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409)
    }

    /// The object is no longer there.
    pub fn is_gone(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// The API server's own words, if it refused what was asked for; not if it could not be asked, or is overloaded.
    pub fn refusal(&self) -> Option<&str> {
        let status = self.status()?;
        (matches!(status.code, 400..500) && !matches!(status.code, 408 | 409 | 429))
            .then_some(&status.message)
    }
}

impl Writer {
    /// One for this client. `instance` is the Pod's name.
    pub fn new(client: Client, instance: Option<String>) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { client, recorder, counts: Counts::default() }
    }

    /// What was written so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Creates a Pod; says whether it was not there before. That it was is no failure: its name is its identity, and whose
    /// it is is looked at when it is seen.
    pub async fn create_pod(&self, pod: &Pod) -> Result<bool, WriteError> {
        self.counts.pods_created.fetch_add(1, Ordering::Relaxed);
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        match self
            .pods(pod)
            .create(&parameters, pod)
            .await
            .map_err(|source| failure("create", pod, source))
        {
            Err(error) if error.is_conflict() => Ok(false),
            result => result.map(|_| true),
        }
    }

    /// Deletes a Pod, this one and no later one of its name. That it is gone is success.
    pub async fn delete_pod(&self, pod: &Pod, grace: i64) -> Result<(), WriteError> {
        self.counts.pods_deleted.fetch_add(1, Ordering::Relaxed);
        let parameters = DeleteParams {
            grace_period_seconds: u32::try_from(grace).ok(),
            preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
            ..Default::default()
        };
        let result = self.pods(pod).delete(&pod.name_any(), &parameters).await;
        match result.map_err(|source| failure("delete", pod, source)) {
            Err(error) if error.status().is_some_and(|status| matches!(status.code, 404 | 409)) => {
                Ok(())
            }
            result => result.map(drop),
        }
    }

    /// Makes the object what it should be, if it still is what it was. Nothing is sent if the two are alike.
    pub async fn patch_vmi(
        &self,
        is: &VirtualMachineInstance,
        should: &VirtualMachineInstance,
    ) -> Result<(), WriteError> {
        let Some(patch) = compare_and_swap(is, should) else { return Ok(()) };
        self.counts.vmis_patched.fetch_add(1, Ordering::Relaxed);
        let api: Api<VirtualMachineInstance> =
            Api::namespaced(self.client.clone(), &is.namespace().unwrap_or_default());
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        let result = api.patch_metadata(&is.name_any(), &parameters, &Patch::Merge(patch)).await;
        result.map(drop).map_err(|source| failure("patch", is, source))
    }

    /// Tells an event of an object.
    pub async fn tell<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        notice: &Notice,
    ) -> Result<(), WriteError> {
        self.counts.events.fetch_add(1, Ordering::Relaxed);
        let event = Event {
            type_: match notice.severity {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            },
            reason: notice.reason.to_owned(),
            note: Some(cut(&notice.message)),
            action: notice.reason.to_owned(),
            secondary: None,
        };
        let result = self.recorder.publish(&event, &object.object_ref(&())).await;
        result.map_err(|source| failure("tell an event of", object, source))
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }
}

fn failure<K: Resource<DynamicType = ()>>(
    action: &'static str,
    object: &K,
    source: kube::Error,
) -> WriteError {
    let meta = object.meta();
    let (namespace, name) =
        (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    WriteError { action, object: format!("{} {namespace}/{name}", K::kind(&())), source }
}

/// The note of an event has at most 1024 bytes.
fn cut(note: &str) -> String {
    let mut end = note.len().min(1024);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note[..end].to_owned()
}

/// The merge patch that makes `is` into `should`, provided it still has the version of `is`; none if they are alike.
///
/// Only what differs is in it, so that fields of other writers are not touched. Lists are replaced whole, which the version
/// makes safe.
fn compare_and_swap(is: &VirtualMachineInstance, should: &VirtualMachineInstance) -> Option<Value> {
    let value = |object| serde_json::to_value(object).ok();
    let mut patch = difference(&value(is)?, &value(should)?)?;
    let members = patch.as_object_mut()?;
    let metadata = members.entry("metadata").or_insert_with(|| json!({})).as_object_mut()?;
    metadata.insert("resourceVersion".to_owned(), json!(is.resource_version()));
    Some(patch)
}

/// RFC 7396: members that differ, null for those to be removed.
fn difference(is: &Value, should: &Value) -> Option<Value> {
    match (is, should) {
        _ if is == should => None,
        (Value::Object(is), Value::Object(should)) => {
            let removed = is
                .keys()
                .filter(|name| !should.contains_key(*name))
                .map(|name| (name.clone(), Value::Null));
            let changed = should.iter().filter_map(|(name, value)| {
                let changed = difference(is.get(name).unwrap_or(&Value::Null), value)?;
                Some((name.clone(), changed))
            });
            Some(Value::Object(removed.chain(changed).collect::<Map<_, _>>()))
        }
        _ => Some(should.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::minimal_vmi;
    use corten_resources::types::Phase;

    #[test]
    fn a_patch_holds_what_differs_and_the_version() {
        let is = minimal_vmi(|vmi| {
            vmi["metadata"]["labels"] = json!({ "kept": "1", "dropped": "2" });
            vmi["status"] = json!({ "activePods": { "a": "n" }, "guestOSInfo": { "id": "debian" }, "phase": "Pending" });
        });
        let mut should = is.clone();
        should.labels_mut().remove("dropped");
        should.labels_mut().insert("new".into(), "3".into());
        should.status.active_pods = [("b".to_owned(), "n".to_owned())].into();
        should.status.phase = Phase::Failed;
        assert_eq!(
            compare_and_swap(&is, &should),
            Some(json!({
                "metadata": { "resourceVersion": "7", "labels": { "dropped": null, "new": "3" } },
                "status": { "activePods": { "a": null, "b": "n" }, "phase": "Failed" },
            }))
        );
    }

    #[test]
    fn alike_objects_need_no_patch() {
        let vmi = minimal_vmi(|_| ());
        assert_eq!(compare_and_swap(&vmi, &vmi.clone()), None);
    }

    #[test]
    fn a_list_is_replaced_whole_and_an_emptied_one_removed() {
        let is = minimal_vmi(|vmi| vmi["metadata"]["finalizers"] = json!(["a", "b"]));
        let mut one = is.clone();
        one.finalizers_mut().retain(|name| name == "b");
        assert_eq!(compare_and_swap(&is, &one).unwrap()["metadata"]["finalizers"], json!(["b"]));
        let mut none = is.clone();
        none.finalizers_mut().clear();
        let patch = compare_and_swap(&is, &none).unwrap();
        assert!(
            patch["metadata"]["finalizers"] == json!([])
                || patch["metadata"]["finalizers"].is_null(),
            "{patch}"
        );
    }

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        assert_eq!(cut(&"ä".repeat(600)).len(), 1024);
        assert_eq!(cut(&format!("x{}", "ä".repeat(600))).len(), 1023);
        assert_eq!(cut("short"), "short");
    }

    fn error(code: u16) -> WriteError {
        let status = kube::core::Status { code, message: "said so".into(), ..Default::default() };
        failure("create", &minimal_vmi(|_| ()), kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn refusals_conflicts_and_overload_are_told_apart() {
        assert_eq!(error(403).refusal(), Some("said so"));
        assert_eq!(error(422).refusal(), Some("said so"));
        for code in [408, 409, 429, 500, 503] {
            assert_eq!(error(code).refusal(), None, "{code}");
        }
        assert!(error(409).is_conflict() && !error(403).is_conflict());
        assert_eq!(error(403).to_string(), "cannot create VirtualMachineInstance guests/first");
    }
}
