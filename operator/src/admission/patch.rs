//! Changes as the API server wants them: a JSON patch (RFC 6902) against the object as it was sent.
//!
//! What our types make of an object is not what was sent: a `null` is left out, for one. So the changes that were made to the
//! typed object are carried over to the one that was sent, and the patch is made of that.

use corten_resources::difference;
use serde_json::{Map, Value, json};

/// The patch that makes to `sent` what makes `before` into `after`.
pub(super) fn patch(sent: &Value, before: &Value, after: &Value) -> Vec<Value> {
    let Some(changes) = difference(before, after) else { return Vec::new() };
    let wanted = merged(sent.clone(), &changes);
    let mut operations = Vec::new();
    compare("", sent, &wanted, &mut operations);
    operations
}

/// A value with a merge patch (RFC 7396) applied to it.
fn merged(value: Value, changes: &Value) -> Value {
    let Value::Object(changes) = changes else { return changes.clone() };
    let mut members = match value {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    for (name, change) in changes {
        let old = members.remove(name).unwrap_or_default();
        if !change.is_null() {
            members.insert(name.clone(), merged(old, change));
        }
    }
    Value::Object(members)
}

/// Lists are replaced whole.
fn compare(path: &str, is: &Value, wanted: &Value, operations: &mut Vec<Value>) {
    match (is, wanted) {
        _ if is == wanted => {}
        (Value::Object(is), Value::Object(wanted)) => {
            for name in is.keys().filter(|name| !wanted.contains_key(*name)) {
                operations.push(json!({ "op": "remove", "path": below(path, name) }));
            }
            for (name, wanted) in wanted {
                let path = below(path, name);
                match is.get(name) {
                    Some(is) => compare(&path, is, wanted, operations),
                    None => operations.push(json!({ "op": "add", "path": path, "value": wanted })),
                }
            }
        }
        _ => operations.push(json!({ "op": "replace", "path": path, "value": wanted })),
    }
}

fn below(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_changed_in_what_was_sent() {
        let sent = json!({ "a": { "kept": null, "b": 1 }, "n": null, "l": [1] });
        let before = json!({ "a": { "b": 1 }, "l": [1], "n": {} });
        let after =
            json!({ "a": { "b": 2, "x/y~z": 3 }, "l": [1, 2], "n": { "deep": { "er": 1 } } });
        assert_eq!(
            Value::from(patch(&sent, &before, &after)),
            json!([
                { "op": "replace", "path": "/a/b", "value": 2 },
                { "op": "add", "path": "/a/x~1y~0z", "value": 3 },
                { "op": "replace", "path": "/l", "value": [1, 2] },
                { "op": "replace", "path": "/n", "value": { "deep": { "er": 1 } } },
            ])
        );
    }

    #[test]
    fn what_was_taken_out_is_removed_if_it_was_sent() {
        let before = json!({ "a": 1, "b": 2 });
        let removal = json!([{ "op": "remove", "path": "/a" }]);
        assert_eq!(
            Value::from(patch(&json!({ "a": 1, "b": 2 }), &before, &json!({ "b": 2 }))),
            removal
        );
        assert_eq!(patch(&json!({ "b": 2 }), &before, &json!({ "b": 2 })), Vec::<Value>::new());
    }

    #[test]
    fn no_change_is_no_patch() {
        let value = json!({ "a": [1, { "b": null }] });
        assert_eq!(patch(&json!({ "other": 1 }), &value, &value), Vec::<Value>::new());
    }
}
