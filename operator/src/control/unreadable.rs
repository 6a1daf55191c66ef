//! What is told of an object that our types cannot read.
//!
//! It got past the schema, so its user cannot know: a condition says which value it is. It is found by reading the object as
//! plain JSON.

use super::{Guarded, Kind, ReconcileError, conditions, name};
use crate::failure::chain;
use crate::vmi::Notice;
use crate::write::{Verb, Writer};
use corten_resources::types::{Condition, ConditionStatus};
use jiff::Timestamp;
use kube::core::error_boundary::InvalidObject;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;

/// How an object says that it cannot be read.
#[derive(Clone, Copy, Debug)]
pub struct ToldAs {
    /// Type of the condition.
    pub condition: &'static str,
    /// Its status: `False` if it is one that should be true.
    pub status: ConditionStatus,
    /// Whether the status is a subresource.
    pub verb: Verb,
}

/// Reason of the condition.
const REASON: &str = "ObjectNotReadable";

/// Sets the condition and tells an event, once for each cause.
pub(super) async fn tell_unreadable<K: Kind>(
    object: &Guarded<K>,
    unreadable: &InvalidObject,
    told: ToldAs,
    client: &Client,
    writer: &Writer,
) -> Result<Option<Duration>, ReconcileError> {
    let kind = ApiResource::erase::<K>(&());
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
    let failed =
        |source| ReconcileError::Observe { what: "the plain text", object: name(object), source };
    let Some(plain) = api.get_opt(&object.name_any()).await.map_err(failed)? else {
        return Ok(None);
    };
    let message = format!("the object cannot be read: {unreadable}; correct the field");
    let Some(patch) = patch(&plain, told, &message, Timestamp::now()) else { return Ok(None) };
    writer.patch_dynamic(&plain, &kind, told.verb, patch).await?;
    let notice = Notice::warning("SyncFailed", message);
    if let Err(error) = writer.tell(object, &notice).await {
        tracing::warn!(error = chain(&error), "an event was lost");
    }
    Ok(None)
}

/// Sets the condition; none if it is there. The other conditions stay as they are, also those that cannot be read.
fn patch(object: &DynamicObject, told: ToldAs, message: &str, now: Timestamp) -> Option<Value> {
    let before = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let before = before.cloned().unwrap_or_default();
    let is_it = |condition: &Value| condition["type"] == told.condition;
    let known = before.iter().find(|condition| is_it(condition));
    let known = known.and_then(|value| serde_json::from_value::<Condition>(value.clone()).ok());
    let mut one: Vec<_> = known.clone().into_iter().collect();
    conditions::set(&mut one, told.condition, told.status, Some((REASON, message)), now);
    if one.first() == known.as_ref() {
        return None;
    }
    let mut after: Vec<_> = before.into_iter().filter(|condition| !is_it(condition)).collect();
    after.push(serde_json::to_value(one.first()?).ok()?);
    Some(json!({
        "metadata": { "resourceVersion": object.resource_version() },
        "status": { "conditions": after },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::now;

    const TOLD: ToldAs =
        ToldAs { condition: "Failure", status: ConditionStatus::True, verb: Verb::PatchStatus };

    fn object(status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": { "name": "a", "namespace": "b", "resourceVersion": "9" },
            "spec": { "template": 7 }, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_condition_is_added_once_and_others_stay_even_if_they_are_odd() {
        let odd = json!({ "type": "Ready", "status": 7 });
        let first = patch(&object(&json!({ "conditions": [odd] })), TOLD, "no", now(0)).unwrap();
        assert_eq!(first["metadata"]["resourceVersion"], "9");
        assert_eq!(first["status"]["conditions"][0], odd);
        assert_eq!(first["status"]["conditions"][1]["type"], "Failure");
        assert_eq!(first["status"]["conditions"][1]["reason"], REASON);
        let known = object(&first["status"]);
        assert_eq!(patch(&known, TOLD, "no", now(1)), None);
        assert!(patch(&known, TOLD, "another", now(1)).is_some());
    }

    #[test]
    fn an_object_without_status_gets_one() {
        let first = patch(&object(&Value::Null), TOLD, "no", now(0)).unwrap();
        assert_eq!(first["status"]["conditions"][0]["status"], "True");
    }
}
