//! The status of a VirtualMachineInstanceReplicaSet. Pure.

use crate::control::conditions;
use corten_resources::cluster::VirtualMachineInstanceReplicaSet;
use corten_resources::types::{
    ConditionStatus, LabelSelector, VirtualMachineInstanceReplicaSetStatus,
};
use jiff::Timestamp;

/// Condition: it is paused. There only while that is so.
const PAUSED: &str = "ReplicaPaused";
/// Condition: one could not be made or taken away. There only while that is so.
pub(super) const FAILURE: &str = "ReplicaFailure";

/// The status of a set that has so many. A failure stays until something has succeeded, see [`succeeded`].
pub(super) fn status_of(
    set: &VirtualMachineInstanceReplicaSet,
    replicas: usize,
    ready: usize,
    now: Timestamp,
) -> VirtualMachineInstanceReplicaSetStatus {
    let mut status = set.status.clone();
    // As KubeVirt, none is not written.
    let number = |count: usize| i32::try_from(count).ok().filter(|count| *count > 0);
    status.replicas = number(replicas);
    status.ready_replicas = number(ready);
    status.label_selector = set.spec.selector.as_ref().map(text);
    if set.spec.paused == Some(true) {
        let why = Some(("Paused", "none is made and none is taken away while spec.paused is true"));
        conditions::set(&mut status.conditions, PAUSED, ConditionStatus::True, why, now);
    } else {
        conditions::clear(&mut status.conditions, PAUSED);
    }
    status
}

/// One could not be made or taken away.
pub(super) fn failed(
    status: &mut VirtualMachineInstanceReplicaSetStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let why = Some((reason, message));
    conditions::set(&mut status.conditions, FAILURE, ConditionStatus::True, why, now);
}

/// All that was to be done has been done.
pub(super) fn succeeded(status: &mut VirtualMachineInstanceReplicaSetStatus) {
    conditions::clear(&mut status.conditions, FAILURE);
}

/// A selector as autoscalers and `kubectl -l` take it.
fn text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().map(|(name, value)| format!("{name}={value}"));
    let expressions = selector.match_expressions.iter().map(|asked| {
        let (key, values) = (&asked.key, asked.values.join(","));
        match asked.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicaset::testing::set;
    use crate::vmi::testing::now;
    use serde_json::json;

    #[test]
    fn the_selector_is_told_as_text() {
        let set = set(1, |set| {
            set["spec"]["selector"] = json!({ "matchLabels": { "app": "web", "tier": "1" }, "matchExpressions": [
                { "key": "a", "operator": "In", "values": ["x", "y"] },
                { "key": "b", "operator": "NotIn", "values": ["z"] },
                { "key": "c", "operator": "Exists" },
                { "key": "d", "operator": "DoesNotExist" }] });
        });
        let status = status_of(&set, 0, 0, now(0));
        assert_eq!(
            status.label_selector.as_deref(),
            Some("app=web,tier=1,a in (x,y),b notin (z),c,!d")
        );
        assert_eq!((status.replicas, status.ready_replicas), (None, None));
    }

    #[test]
    fn a_failure_stays_until_something_succeeds() {
        let mut set = set(1, |_| ());
        failed(&mut set.status, "FailedCreate", "over quota", now(0));
        let mut status = status_of(&set, 1, 0, now(1));
        assert_eq!(status.condition(FAILURE).unwrap().message.as_deref(), Some("over quota"));
        succeeded(&mut status);
        assert!(status.condition(FAILURE).is_none());
    }
}
