//! What a writer of merge patches sends.

use serde_json::{Map, Value};

/// The merge patch (RFC 7396) that makes `is` into `should`: members that differ, null for those to be removed; none if they
/// are alike. Lists are replaced whole.
pub fn difference(is: &Value, should: &Value) -> Option<Value> {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn difference_is_what_changed_and_what_is_gone() {
        let is = json!({"a": 1, "b": {"c": 1, "d": [1, 2]}, "e": 5});
        let should = json!({"a": 1, "b": {"c": 2, "d": [2]}, "f": {"g": 1}});
        let expected = json!({"b": {"c": 2, "d": [2]}, "e": null, "f": {"g": 1}});
        assert_eq!(difference(&is, &should), Some(expected));
        assert_eq!(difference(&is, &is), None);
    }
}
