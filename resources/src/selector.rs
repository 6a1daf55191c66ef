//! Which labels a selector matches.

use crate::types::LabelSelector;
use std::collections::BTreeMap;

impl LabelSelector {
    /// It asks for nothing, and would match everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// It matches these labels. An expression that cannot be read matches none.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let just_so = self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        just_so
            && self.match_expressions.iter().all(|it| {
                let found = labels.get(&it.key);
                let is_in = found.is_some_and(|value| it.values.contains(value));
                match it.operator.as_str() {
                    "In" => is_in,
                    "NotIn" => !is_in,
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => false,
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_matches_as_kubernetes_does() {
        let labels: BTreeMap<_, _> = [("app".to_owned(), "a".to_owned())].into();
        let table = [
            (json!({}), true),
            (json!({ "matchLabels": { "app": "a" } }), true),
            (json!({ "matchLabels": { "app": "b" } }), false),
            (json!({ "matchLabels": { "app": "a", "tier": "1" } }), false),
            (
                json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["a", "b"] }] }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["a"] }] }),
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["a"] }] }),
                true,
            ),
            (json!({ "matchExpressions": [{ "key": "app", "operator": "Exists" }] }), true),
            (json!({ "matchExpressions": [{ "key": "app", "operator": "DoesNotExist" }] }), false),
            (json!({ "matchExpressions": [{ "key": "app", "operator": "exists" }] }), false),
        ];
        for (selector, wanted) in table {
            let read: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(read.matches(&labels), wanted, "{selector}");
        }
    }
}
