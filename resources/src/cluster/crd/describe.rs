//! What `kubectl explain` says of each field: what it does, from the types, and whether it is served, from the table.

use crate::Kind;
use crate::served::explain;
use serde_json::{Value, json};

/// Adds to each description of the specification what becomes of the field.
pub(super) fn tell_what_is_served(kind: Kind, root: &mut Value) {
    let spec = &mut root["properties"]["spec"];
    spec["description"] = json!("What its user wants.");
    walk(kind, "spec", spec);
    root["properties"]["status"]["description"] = json!("What has become of it.");
}

fn walk(kind: Kind, path: &str, schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    if let Some(fields) = members.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, field) in fields {
            let path = format!("{path}.{name}");
            append(field, explain(kind, &path));
            walk(kind, &path, field);
        }
    }
    if let Some(items) = members.get_mut("items") {
        walk(kind, path, items);
    }
}

fn append(field: &mut Value, outcome: Option<String>) {
    let about = field.get("description").and_then(Value::as_str);
    if let (Some(about), Some(outcome)) = (about, outcome) {
        field["description"] = json!(format!("{about} {outcome}."));
    }
}

/// Takes every description out.
pub(super) fn strip(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    members.remove("description");
    if let Some(fields) = members.get_mut("properties").and_then(Value::as_object_mut) {
        fields.values_mut().for_each(strip);
    }
    for part in ["items", "additionalProperties"] {
        if let Some(member) = members.get_mut(part) {
            strip(member);
        }
    }
}
