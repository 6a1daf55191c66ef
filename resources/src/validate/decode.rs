//! An object as its types have it. Whatever does not fit is told by its path, in words of ours.

use super::{Finding, lies_in};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

/// How many values are told: for each the object is read once more.
const MOST_VALUES: usize = 32;

/// An object that was read.
#[derive(Debug)]
pub struct Decoded<T> {
    /// The object, without the values that do not fit; none if it is no object at all.
    pub object: Option<T>,
    /// A value of the wrong type each.
    pub findings: Vec<Finding>,
}

impl<T> Decoded<T> {
    /// The object, if all of it could be read.
    pub fn whole(self) -> Result<T, Vec<Finding>> {
        match self.object {
            Some(object) if self.findings.is_empty() => Ok(object),
            _ => Err(self.findings),
        }
    }

    /// A value that could not be read is at this path, around it or in it.
    pub(super) fn is_about(&self, path: &str) -> bool {
        self.findings.iter().any(|it| lies_in(path, &it.path) || lies_in(&it.path, path))
    }
}

/// Reads an object. A value that does not fit is told and taken out, and the rest is read again: so all of them are told.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Decoded<T> {
    let mut rest = value.clone();
    // What the API server has not filled in yet is no mistake of its user's.
    if let Value::Object(members) = &mut rest
        && members.get("metadata").is_none_or(Value::is_null)
    {
        members.insert("metadata".to_owned(), Value::Object(Map::new()));
    }
    read("", rest)
}

/// What does not fit in a part of an object that is kept as it was sent. `outer` is the part's path.
#[cfg(feature = "cluster")]
pub(super) fn misfits<T: DeserializeOwned>(outer: &str, part: Value) -> Vec<Finding> {
    read::<T>(outer, part).findings
}

fn read<T: DeserializeOwned>(outer: &str, mut rest: Value) -> Decoded<T> {
    let mut findings = Vec::new();
    loop {
        let error = match serde_path_to_error::deserialize(&rest) {
            Ok(object) => return Decoded { object: Some(object), findings },
            Err(error) => error,
        };
        let path = path(outer, error.path());
        let place = place(&mut rest, error.path());
        let found = place.as_deref().cloned().unwrap_or_default();
        // Of a value that could not be taken out what is around it is, and that was told.
        if !findings.iter().any(|it: &Finding| it.path == path) {
            findings.push(Finding::invalid(path, words(&found, &error.inner().to_string())));
        }
        if findings.len() == MOST_VALUES {
            let message = "more values may be of a wrong type; these are the first";
            findings.push(Finding::invalid("spec", message));
            return Decoded { object: None, findings };
        }
        if !take_out(&mut rest, error.path()) {
            return Decoded { object: None, findings };
        }
    }
}

/// From `spec` on, as other findings have it.
fn path(outer: &str, path: &serde_path_to_error::Path) -> String {
    // The root's path is a dot, and a place that is not known a question mark.
    match (outer, path.to_string().trim_matches(['.', '?'])) {
        ("", "") => "spec".to_owned(),
        ("", path) => path.to_owned(),
        (outer, "") => outer.to_owned(),
        (outer, path) => format!("{outer}.{path}"),
    }
}

fn place<'a>(value: &'a mut Value, path: &serde_path_to_error::Path) -> Option<&'a mut Value> {
    steps(value, path.iter())
}

fn steps<'a, 's>(
    value: &'a mut Value,
    path: impl Iterator<Item = &'s Segment>,
) -> Option<&'a mut Value> {
    let mut place = value;
    for segment in path {
        place = match segment {
            Segment::Seq { index } => place.get_mut(*index)?,
            Segment::Map { key } => place.get_mut(key)?,
            Segment::Enum { .. } | Segment::Unknown => return None,
        };
    }
    Some(place)
}

/// Takes the value out of the object that it is in. A member of a list becomes `null`, so that others keep their numbers;
/// where that does not help, the list goes.
fn take_out(value: &mut Value, path: &serde_path_to_error::Path) -> bool {
    for count in (1..=path.iter().count()).rev() {
        let around = steps(value, path.iter().take(count - 1));
        let was_there = match (around, path.iter().nth(count - 1)) {
            (Some(Value::Object(members)), Some(Segment::Map { key })) => members.remove(key),
            (Some(Value::Array(members)), Some(Segment::Seq { index })) => {
                members.get_mut(*index).map(Value::take).filter(|member| !member.is_null())
            }
            _ => None,
        };
        if was_there.is_some() {
            return true;
        }
    }
    false
}

/// What serde says, as people do.
fn words(found: &Value, said: &str) -> String {
    let wanted = said.rsplit_once(", expected ").map_or("", |(_, wanted)| wanted);
    let is_outside = said.starts_with("invalid value");
    let wanted = match wanted {
        "a string" => "a text; a number or a word such as yes needs quotes to be one",
        "a boolean" => "true or false",
        "i32" if is_outside => "a whole number of 32 bits",
        "i64" if is_outside => "a whole number of 64 bits",
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" | "an object" => "an object",
        // As Kubernetes' own types name themselves.
        "IntOrString" => "a number or a text",
        name if name.starts_with(|letter: char| letter.is_ascii_uppercase()) => "an object",
        "an amount" => "an amount such as \"256Mi\", or a number",
        _ => return "it cannot be read: check what kind of value belongs here".to_owned(),
    };
    let found = match found {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) | Value::Number(_) => found.to_string(),
        Value::String(text) => format!("{text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    format!("{found} is not {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::VirtualMachineInstance;
    use serde_json::json;

    fn told(object: &Value) -> Vec<String> {
        let decoded = decode::<VirtualMachineInstance>(object);
        decoded.findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_value_of_a_wrong_type_is_told_in_plain_words() {
        let object = json!({
            "metadata": { "name": 5, "labels": { "a": true } },
            "spec": {
                "hostname": ["a"],
                "nodeSelector": "x",
                "volumes": { "a": 1 },
                "domain": {
                    "cpu": { "cores": "two", "sockets": 1.5 },
                    "memory": { "guest": [256] },
                    "devices": { "rng": 1, "disks": [{ "name": "a" }, { "name": {} }, null] },
                    "firmware": { "kernelBoot": "k" },
                    "clock": { "utc": { "offsetSeconds": 5_000_000_000_u64 } },
                },
            },
        });
        let mut told = told(&object);
        told.sort();
        let text = "is not a text; a number or a word such as yes needs quotes to be one";
        assert_eq!(
            told,
            [
                format!("metadata.labels.a: true {text}"),
                format!("metadata.name: 5 {text}"),
                "spec.domain.clock.utc.offsetSeconds: 5000000000 is not a whole number of 32 bits"
                    .to_owned(),
                "spec.domain.cpu.cores: \"two\" is not a whole number".to_owned(),
                "spec.domain.cpu.sockets: 1.5 is not a whole number".to_owned(),
                format!("spec.domain.devices.disks[1].name: an object {text}"),
                "spec.domain.devices.disks[2]: nothing is not an object".to_owned(),
                "spec.domain.devices.rng: 1 is not an object".to_owned(),
                "spec.domain.firmware.kernelBoot: \"k\" is not an object".to_owned(),
                "spec.domain.memory.guest: a list is not an amount such as \"256Mi\", or a number"
                    .to_owned(),
                format!("spec.hostname: a list {text}"),
                "spec.nodeSelector: \"x\" is not an object".to_owned(),
                "spec.volumes: an object is not a list".to_owned(),
            ]
        );
    }

    #[test]
    fn of_a_flood_of_wrong_values_the_first_are_told() {
        let wrong: Vec<_> = (0..1000).map(|_| json!({ "name": 1 })).collect();
        let decoded = decode::<VirtualMachineInstance>(&json!({ "spec": { "volumes": wrong } }));
        assert_eq!(decoded.findings.len(), MOST_VALUES + 1);
        assert!(decoded.findings[MOST_VALUES].message.starts_with("more values may be"));
    }

    #[test]
    fn what_is_no_object_is_told() {
        assert_eq!(told(&json!(5)), ["spec: 5 is not an object"]);
        assert!(decode::<VirtualMachineInstance>(&json!({ "spec": [] })).whole().is_err());
        assert!(decode::<VirtualMachineInstance>(&json!({ "spec": {} })).whole().is_ok());
    }
}
