//! Writes of objects that are ours whole, whatever their kind.

use super::{FIELD_MANAGER, Verb, WriteError, Writer};
use crate::install::{ObjectKind, kind_of};
use kube::Api;
use kube::api::{
    DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use serde_json::Value;

impl Writer {
    /// Makes an object as it should be: fields that are given, and those that were once and are not now.
    pub async fn apply(&self, kind: &ObjectKind, object: &Value) -> Result<(), WriteError> {
        let name = name_of(object);
        self.counts.add(kind.kind, Verb::Patch);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let result =
            self.objects(kind, object).patch(name, &parameters, &Patch::Apply(object)).await;
        result.map(drop).map_err(|source| dynamic_failure("apply", object, source))
    }

    /// Deletes an object, this one and no later one of its name. That it is gone is success.
    pub async fn remove(&self, kind: &ObjectKind, object: &Value) -> Result<(), WriteError> {
        self.counts.add(kind.kind, Verb::Delete);
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        let parameters = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..Default::default()
        };
        let result = self.objects(kind, object).delete(name_of(object), &parameters).await;
        match result.map_err(|source| dynamic_failure("delete", object, source)) {
            Err(error) if error.is_gone() || error.is_conflict() => Ok(()),
            result => result.map(drop),
        }
    }

    fn objects(&self, kind: &ObjectKind, object: &Value) -> Api<DynamicObject> {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        match namespace {
            Some(namespace) => {
                Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
            }
            None => Api::all_with(self.client.clone(), &kind.resource()),
        }
    }
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn dynamic_failure(action: &'static str, object: &Value, source: kube::Error) -> WriteError {
    let kind = kind_of(object).map_or("object", |kind| kind.kind);
    WriteError { action, object: format!("{kind} {}", name_of(object)), source }
}
