//! Conditions of an object, whatever its kind.

use corten_resources::types::{Condition, ConditionStatus};
use jiff::Timestamp;

/// As Kubernetes writes times: whole seconds.
pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The condition of this type.
pub(crate) fn get<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Sets a condition; its time changes only with its status.
pub(crate) fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: ConditionStatus,
    why: Option<(&str, &str)>,
    now: Timestamp,
) {
    let reason = why.map(|(reason, _)| reason.to_owned());
    let message = why.map(|(_, message)| message.to_owned()).filter(|message| !message.is_empty());
    if let Some(condition) = conditions.iter_mut().find(|condition| condition.kind == kind) {
        if condition.status != status {
            condition.status = status;
            condition.last_transition_time = Some(time(now));
        }
        condition.reason = reason;
        condition.message = message;
        return;
    }
    conditions.push(Condition {
        kind: kind.to_owned(),
        status,
        last_transition_time: Some(time(now)),
        reason,
        message,
        ..Condition::default()
    });
}

/// Takes a condition away.
pub(crate) fn clear(conditions: &mut Vec<Condition>, kind: &str) {
    conditions.retain(|condition| condition.kind != kind);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::now;

    #[test]
    fn the_time_of_a_condition_changes_with_its_status_only() {
        let mut all = Vec::new();
        set(&mut all, "Ready", ConditionStatus::False, Some(("A", "a")), now(0));
        set(&mut all, "Ready", ConditionStatus::False, Some(("B", "")), now(1));
        let first = get(&all, "Ready").unwrap().clone();
        set(&mut all, "Ready", ConditionStatus::True, None, now(2));
        assert_eq!(first.last_transition_time.as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!((first.reason.as_deref(), first.message.as_deref()), (Some("B"), None));
        assert_eq!(all[0].last_transition_time.as_deref(), Some("2026-01-01T00:00:02Z"));
        clear(&mut all, "Ready");
        assert!(all.is_empty());
    }
}
