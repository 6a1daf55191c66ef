//! Every write to the API server: create, patch, delete an object, tell an event. Counted by kind and verb.

mod counts;
mod owned;
mod patch;

pub use counts::{Counts, Verb};

use crate::vmi::{Notice, Severity};
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::LAUNCHER_FINALIZER;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource, ResourceExt};
use patch::{compare_and_swap, compare_and_swap_status};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt;

/// The operator's name as a writer.
const FIELD_MANAGER: &str = "corten-operator";

/// Writes to the API server.
pub struct Writer {
    client: Client,
    recorder: Recorder,
    counts: Counts,
}

/// Whose fields are written.
fn ours() -> Option<String> {
    Some(FIELD_MANAGER.to_owned())
}

/// Which object of a name is meant by its deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// This one and no later one of its name. That it is gone is success.
    This,
    /// This one as it was seen. That it has changed is a conflict: observe again.
    ThisVersion,
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

    /// An object of this name is there already. A quota that two have written at once gives the same code.
    fn already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409 && status.reason == "AlreadyExists")
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

    /// Creates an object; says whether it was not there before. That it was is no failure: its name is its identity, and
    /// whose it is is looked at when it is seen.
    pub async fn create<K>(&self, object: &K) -> Result<bool, WriteError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Written,
    {
        self.create_in(&self.api(object), object, &()).await
    }

    /// The same of an object whose kind is found at run time.
    pub async fn create_dynamic(
        &self,
        object: &DynamicObject,
        kind: &ApiResource,
    ) -> Result<bool, WriteError> {
        let namespace = object.namespace().unwrap_or_default();
        let api = Api::namespaced_with(self.client.clone(), &namespace, kind);
        self.create_in(&api, object, kind).await
    }

    async fn create_in<K: Resource + Written>(
        &self,
        api: &Api<K>,
        object: &K,
        kind: &K::DynamicType,
    ) -> Result<bool, WriteError> {
        self.counts.add(&K::kind(kind), Verb::Create);
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        let result = api.create(&parameters, object).await;
        match result.map_err(|source| failure_of("create", object, kind, source)) {
            Err(error) if error.already_exists() => Ok(false),
            result => result.map(|_| true),
        }
    }

    /// Makes the object what it should be, if it still is what it was; says which version it then has. Nothing is sent if
    /// the two are alike.
    pub async fn patch<K>(&self, is: &K, should: &K) -> Result<Option<String>, WriteError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Written,
    {
        let Some(patch) = compare_and_swap(is, should) else { return Ok(is.resource_version()) };
        self.send(is, &(), Verb::Patch, patch).await
    }

    /// The same of its status, where that is a subresource: nothing else is looked at.
    pub async fn patch_status<K>(&self, is: &K, should: &K) -> Result<Option<String>, WriteError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Written,
    {
        let Some(patch) = compare_and_swap_status(is, should) else {
            return Ok(is.resource_version());
        };
        self.send(is, &(), Verb::PatchStatus, patch).await
    }

    /// A merge patch that its caller has made, for an object whose kind is found at run time or that cannot be read as what
    /// it is. It should hold a resourceVersion.
    pub(crate) async fn patch_dynamic(
        &self,
        object: &DynamicObject,
        kind: &ApiResource,
        verb: Verb,
        patch: Value,
    ) -> Result<Option<String>, WriteError> {
        self.send(object, kind, verb, patch).await
    }

    async fn send<K: Resource>(
        &self,
        object: &K,
        kind: &K::DynamicType,
        verb: Verb,
        patch: Value,
    ) -> Result<Option<String>, WriteError> {
        self.counts.add(&K::kind(kind), verb);
        let resource = ApiResource::erase::<K>(kind);
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        let parameters = PatchParams { field_manager: ours(), ..Default::default() };
        let name = object.meta().name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(patch);
        // Only the version is of interest in the answer.
        let result = match verb {
            Verb::PatchStatus => {
                let api: Api<PartialObjectMeta<DynamicObject>> =
                    Api::namespaced_with(self.client.clone(), namespace, &resource);
                api.patch_status(name, &parameters, &patch).await
            }
            _ => {
                let api: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), namespace, &resource);
                api.patch_metadata(name, &parameters, &patch).await
            }
        };
        let written = result.map_err(|source| failure_of("patch", object, kind, source))?;
        Ok(written.metadata.resource_version)
    }

    /// Deletes an object. Its grace period is as it says itself if none is given.
    pub async fn delete<K>(
        &self,
        object: &K,
        grace: Option<i64>,
        only: Only,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Written,
    {
        self.counts.add(&K::kind(&()), Verb::Delete);
        let resource_version = match only {
            Only::This => None,
            Only::ThisVersion => object.resource_version(),
        };
        let parameters = DeleteParams {
            grace_period_seconds: grace.and_then(|seconds| u32::try_from(seconds).ok()),
            preconditions: Some(Preconditions { uid: object.uid(), resource_version }),
            ..Default::default()
        };
        let result = self.api(object).delete(&object.name_any(), &parameters).await;
        match result.map_err(|source| failure("delete", object, source)) {
            Err(error) if error.is_gone() => Ok(()),
            // Another one has its name.
            Err(error) if error.is_conflict() && only == Only::This => Ok(()),
            result => result.map(drop),
        }
    }

    /// Creates a Pod, see [`Self::create`].
    pub async fn create_pod(&self, pod: &Pod) -> Result<bool, WriteError> {
        self.create(pod).await
    }

    /// Deletes a Pod, this one and no later one of its name. That it is gone is success.
    pub async fn delete_pod(&self, pod: &Pod, grace: i64) -> Result<(), WriteError> {
        self.delete(pod, Some(grace), Only::This).await
    }

    /// Takes our finalizer off a Pod that has not changed since. That it is gone is success.
    pub async fn release_pod(&self, pod: &Pod) -> Result<(), WriteError> {
        let rest: Vec<_> =
            pod.finalizers().iter().filter(|name| *name != LAUNCHER_FINALIZER).collect();
        let patch = json!({
            "metadata": { "uid": pod.uid(), "resourceVersion": pod.resource_version(), "finalizers": rest },
        });
        match self.send(pod, &(), Verb::Patch, patch).await {
            Err(error) if error.is_gone() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Says a condition of a Pod, this one and no later one of its name. Others' conditions stay, so that it does not matter
    /// what kubelet has said in between. That it is gone is success.
    pub async fn say_of_pod(&self, pod: &Pod, condition: &Value) -> Result<(), WriteError> {
        self.counts.add("Pod", Verb::PatchStatus);
        let parameters = PatchParams { field_manager: ours(), ..Default::default() };
        let patch = json!({
            "metadata": { "uid": pod.uid() },
            "status": { "conditions": [condition] },
        });
        let name = pod.name_any();
        let result = self.api(pod).patch_status(&name, &parameters, &Patch::Strategic(patch)).await;
        match result.map_err(|source| failure("say a condition of", pod, source)) {
            Err(error) if error.is_gone() || error.is_conflict() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Sends a merge patch for an object of which only the metadata can be read.
    pub async fn patch_raw<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        patch: Value,
    ) -> Result<(), WriteError> {
        self.send(object, &(), Verb::Patch, patch).await.map(drop)
    }

    /// Patches a VirtualMachineInstance, whose status is a part of it.
    pub async fn patch_vmi(
        &self,
        is: &VirtualMachineInstance,
        should: &VirtualMachineInstance,
    ) -> Result<(), WriteError> {
        self.patch(is, should).await.map(drop)
    }

    /// Tells an event of an object.
    pub async fn tell<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        notice: &Notice,
    ) -> Result<(), WriteError> {
        self.counts.add("Event", Verb::Create);
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

    fn api<K>(&self, object: &K) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default())
    }
}

/// Objects that can be sent, and read from the answer.
pub trait Written: Clone + fmt::Debug + Serialize + DeserializeOwned {}

impl<K: Clone + fmt::Debug + Serialize + DeserializeOwned> Written for K {}

fn failure<K: Resource<DynamicType = ()>>(
    action: &'static str,
    object: &K,
    source: kube::Error,
) -> WriteError {
    failure_of(action, object, &(), source)
}

fn failure_of<K: Resource>(
    action: &'static str,
    object: &K,
    kind: &K::DynamicType,
    source: kube::Error,
) -> WriteError {
    let meta = object.meta();
    let (namespace, name) =
        (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    WriteError { action, object: format!("{} {namespace}/{name}", K::kind(kind)), source }
}

/// The note of an event has at most 1024 bytes.
fn cut(note: &str) -> String {
    let mut end = note.len().min(1024);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::minimal_vmi;

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
