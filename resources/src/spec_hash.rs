//! What the specification of an object is compared by.

use std::fmt::Write;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 of JSON with sorted names and without blanks, in hexadecimal digits. Whoever was given the same has the same hash,
/// in whichever order the names came.
pub fn spec_hash(spec: &Value) -> String {
    let mut text = String::new();
    write_sorted(spec, &mut text);
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("text can be written to a string");
        digits
    })
}

/// Whether names are sorted by themselves depends on how serde_json was built.
fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (number, (name, value)) in members.into_iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_sorted(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (number, item) in items.iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                write_sorted(item, text);
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json};

    use super::*;

    fn sorted(text: &str) -> String {
        let mut sorted = String::new();
        write_sorted(&from_str(text).unwrap(), &mut sorted);
        sorted
    }

    #[test]
    fn order_of_names_and_blanks_do_not_count_and_values_do() {
        let text = r#"{ "b": [1, {"d": null, "c": "\"\n"}], "a": {}, "e": 1.5, "aa": true }"#;
        let expected = r#"{"a":{},"aa":true,"b":[1,{"c":"\"\n","d":null}],"e":1.5}"#;
        assert_eq!(sorted(text), expected);
        assert_eq!(spec_hash(&from_str(text).unwrap()), spec_hash(&from_str(expected).unwrap()));
        assert_ne!(spec_hash(&json!({"a": [1, 2]})), spec_hash(&json!({"a": [2, 1]})));
    }

    #[test]
    fn hash_is_what_sha256sum_says() {
        // printf '{}' | sha256sum
        let empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(spec_hash(&json!({})), empty);
    }
}
