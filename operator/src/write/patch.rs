//! Merge patches that hold what differs, and the version it differs from.

use corten_resources::difference;
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};

/// The merge patch that makes `is` into `should`, provided it still has the version of `is`; none if they are alike.
///
/// Only what differs is in it, so that fields of other writers are not touched. Lists are replaced whole, which the version
/// makes safe.
pub(super) fn compare_and_swap<K: Resource + Serialize>(is: &K, should: &K) -> Option<Value> {
    let value = |object| serde_json::to_value(object).ok();
    versioned(is, difference(&value(is)?, &value(should)?)?)
}

/// The same for the status alone.
pub(super) fn compare_and_swap_status<K: Resource + Serialize>(
    is: &K,
    should: &K,
) -> Option<Value> {
    // An object that never had one is written without.
    let value = |object| {
        let value = serde_json::to_value(object).ok()?;
        Some(value.get("status").cloned().unwrap_or_else(|| json!({})))
    };
    let status = difference(&value(is).unwrap_or(Value::Null), &value(should)?)?;
    versioned(is, json!({ "status": status }))
}

/// The patch, for this version of the object only.
fn versioned<K: Resource>(object: &K, mut patch: Value) -> Option<Value> {
    let members = patch.as_object_mut()?;
    let metadata = members.entry("metadata").or_insert_with(|| json!({})).as_object_mut()?;
    metadata.insert("resourceVersion".to_owned(), json!(object.meta().resource_version));
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::minimal_vmi;
    use corten_resources::types::Phase;
    use kube::ResourceExt;

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
    fn a_patch_of_the_status_holds_nothing_else() {
        let is = minimal_vmi(|vmi| vmi["status"] = json!({ "phase": "Pending" }));
        let mut should = is.clone();
        should.labels_mut().insert("new".into(), "3".into());
        assert_eq!(compare_and_swap_status(&is, &should), None);
        should.status.phase = Phase::Failed;
        assert_eq!(
            compare_and_swap_status(&is, &should),
            Some(
                json!({ "metadata": { "resourceVersion": "7" }, "status": { "phase": "Failed" } })
            )
        );
    }
}
