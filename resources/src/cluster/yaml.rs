//! Objects as YAML, as people and `kubectl apply` read it.

use serde::Serialize;

/// An object that cannot be written as YAML.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// It cannot be written as JSON either.
    #[error("cannot write the object as JSON")]
    Json(#[source] serde_json::Error),
    /// YAML has no way to say it.
    #[error("cannot write the object as YAML")]
    Yaml(#[source] Box<serde_saphyr::ser_error::Error>),
}

/// The object as YAML, its fields in the order of their names.
pub fn to_yaml(object: &impl Serialize) -> Result<String, YamlError> {
    // By way of JSON: its maps are sorted, so the same object is always the same text.
    let value = serde_json::to_value(object).map_err(YamlError::Json)?;
    let mut text =
        serde_saphyr::to_string(&value).map_err(|error| YamlError::Yaml(Box::new(error)))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_was_written_is_read_back() {
        let value = json!({
            "strings": ["1", "true", "null", "no", "on", "0700", "1e3", "~", "", " x ", "a: b", "- c", "#d", "e\nf\n", "*", "{}",
                "2026-11-16T00:00:00Z", "1:30", "0x1f", "a'b\"c", "%x", "@y", "`z`", "!t", "&u", "|", ">"],
            "numbers": [0, -1, 1.5, 18446744073709551615u64],
            "nothing": [null, {}, [], true, false],
            "nested": { "list": [{ "a": [{ "b": 1 }] }] },
            "long": "x ".repeat(200),
        });
        let read: Value = serde_saphyr::from_str(&to_yaml(&value).unwrap()).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn strings_that_older_parsers_take_for_something_else_are_quoted() {
        for text in ["no", "on", "yes", "off", "1", "0700", "true", "null", "1.5", "1e3"] {
            let written = to_yaml(&json!({ "a": text })).unwrap();
            assert!(written.contains(['"', '\'']), "{written}");
        }
    }
}
