//! Objects that our types cannot read: they are told so, and can be deleted. Pure.

use super::status::{SYNCHRONIZED, time};
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::types::{Phase, VirtualMachineInstanceStatus};
use corten_resources::validate::decode;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// Why it is not served, in one word.
const REASON: &str = "ObjectNotReadable";

/// Why it cannot be read, with the path of the first value that does not fit; none if all of it can be.
pub(super) fn why(raw: &Value) -> Option<String> {
    let findings = decode::<VirtualMachineInstance>(raw).whole().err()?;
    let first = findings.first()?;
    Some(format!("the object cannot be read: {first}"))
}

/// The merge patch that says so on the object, as the API server has it; none if it says so already.
pub(super) fn patch(raw: &Value, message: &str, now: Timestamp) -> Option<Value> {
    let conditions = raw.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.cloned().unwrap_or_default();
    let is_it = |condition: &Value| condition["type"] == SYNCHRONIZED;
    let known = conditions.iter().find(|condition| is_it(condition));
    let same = |condition: &Value| {
        condition["status"] == "False"
            && condition["reason"] == REASON
            && condition["message"] == message
    };
    if known.is_some_and(same) {
        return None;
    }
    conditions.retain(|condition| !is_it(condition));
    conditions.push(json!({
        "type": SYNCHRONIZED,
        "status": "False",
        "reason": REASON,
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": time(now),
    }));
    Some(json!({
        "metadata": { "resourceVersion": raw.pointer("/metadata/resourceVersion") },
        "status": { "conditions": conditions },
    }))
}

/// What is left of an object of which only the metadata can be read. As one that has ended it can be deleted: its Pods
/// end first, and nothing is written about how.
pub(super) fn remains(metadata: ObjectMeta) -> VirtualMachineInstance {
    VirtualMachineInstance {
        metadata,
        status: VirtualMachineInstanceStatus {
            phase: Phase::Failed,
            ..VirtualMachineInstanceStatus::default()
        },
        ..VirtualMachineInstance::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::now;

    #[test]
    fn an_unreadable_object_is_told_so_once_and_keeps_its_conditions() {
        let mut raw = json!({
            "metadata": { "name": "a", "resourceVersion": "3" },
            "spec": { "tolerations": 3 },
            "status": { "conditions": [{ "type": "Ready", "status": "False" }, { "type": "Synchronized", "status": "True" }] },
        });
        let patched = patch(&raw, "why", now(0)).unwrap();
        assert_eq!(patched["metadata"]["resourceVersion"], "3");
        let conditions = patched["status"]["conditions"].as_array().unwrap().clone();
        assert_eq!(conditions.len(), 2);
        assert_eq!(
            (&conditions[0]["type"], &conditions[1]["message"]),
            (&json!("Ready"), &json!("why"))
        );
        raw["status"]["conditions"] = json!(conditions);
        assert_eq!(patch(&raw, "why", now(9)), None);
        assert!(patch(&raw, "another", now(9)).is_some());
    }

    #[test]
    fn what_does_not_fit_is_told_by_its_path() {
        let mut raw = serde_json::to_value(crate::vmi::testing::minimal_vmi(|_| ())).unwrap();
        assert_eq!(why(&raw), None);
        raw["status"]["runtimeUser"] = json!("nobody");
        let why = why(&raw).unwrap();
        assert!(why.contains("status.runtimeUser: "), "{why}");
    }

    #[test]
    fn one_without_status_is_told_too() {
        let raw = json!({ "metadata": { "name": "a", "resourceVersion": "3" } });
        assert!(patch(&raw, "why", now(0)).is_some());
    }
}
