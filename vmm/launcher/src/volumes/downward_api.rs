//! Files with fields of the object itself (`downwardAPI`), for hosts on which no kubelet makes them.

use std::collections::BTreeMap;

use corten_resources::types::{DownwardApiFile, DownwardApiVolume, ObjectMeta};
use thiserror::Error;

use super::config_disk::NamedFile;

/// Why there is no such file.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DownwardError {
    /// A field that no file can have.
    #[error(
        "fields[{number}].fieldRef.fieldPath: {path:?} is none of metadata.name, .namespace, .uid, .labels, .annotations, .labels['KEY'] and .annotations['KEY']"
    )]
    Field {
        /// Which file.
        number: usize,
        /// What was asked for.
        path: String,
    },
    /// Amounts of a container's resources.
    #[error("fields[{0}].resourceFieldRef: there is no container whose resources could be told")]
    Resource(usize),
}

/// The files of a volume.
pub fn downward_files(
    volume: &DownwardApiVolume,
    metadata: &ObjectMeta,
) -> Result<Vec<NamedFile>, DownwardError> {
    let content = |(number, file): (usize, &DownwardApiFile)| {
        let Some(field) = &file.field_ref else { return Err(DownwardError::Resource(number)) };
        let path = &field.field_path;
        let text = value(path, metadata);
        let text = text.ok_or_else(|| DownwardError::Field { number, path: path.clone() })?;
        Ok((file.path.clone(), text.into_bytes()))
    };
    volume.fields.iter().enumerate().map(content).collect()
}

fn value(path: &str, metadata: &ObjectMeta) -> Option<String> {
    match path {
        "metadata.name" => return Some(metadata.name.clone()),
        "metadata.namespace" => return Some(metadata.namespace.clone()),
        "metadata.uid" => return Some(metadata.uid.clone()),
        "metadata.labels" => return Some(lines(&metadata.labels)),
        "metadata.annotations" => return Some(lines(&metadata.annotations)),
        _ => {}
    }
    let (map, key) = match path.strip_prefix("metadata.labels['") {
        Some(key) => (&metadata.labels, key),
        None => (&metadata.annotations, path.strip_prefix("metadata.annotations['")?),
    };
    // One that is not there is an empty file, as in a Pod.
    Some(map.get(key.strip_suffix("']")?).cloned().unwrap_or_default())
}

/// As kubelet writes them: sorted, each value quoted.
fn lines(map: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = map.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn files(fields: Value) -> Result<Vec<(String, String)>, DownwardError> {
        let mut volume = json!({});
        volume["fields"] = fields;
        let volume = serde_json::from_value(volume).unwrap();
        let metadata = serde_json::from_value(json!({
            "name": "web", "namespace": "shop", "uid": "u-1",
            "labels": {"b": "2", "a": "1 \"one\""}, "annotations": {"n/x": "y"},
        }))
        .unwrap();
        let text = |(path, bytes)| (path, String::from_utf8(bytes).unwrap());
        Ok(downward_files(&volume, &metadata)?.into_iter().map(text).collect())
    }

    #[test]
    fn fields_are_written_as_a_pod_has_them() {
        let cases = [
            ("metadata.name", "web"),
            ("metadata.namespace", "shop"),
            ("metadata.uid", "u-1"),
            ("metadata.labels", "a=\"1 \\\"one\\\"\"\nb=\"2\""),
            ("metadata.labels['b']", "2"),
            ("metadata.annotations['n/x']", "y"),
            ("metadata.annotations['none']", ""),
        ];
        for (path, text) in cases {
            let found = files(json!([{"path": "f", "fieldRef": {"fieldPath": path}}])).unwrap();
            assert_eq!(found, [("f".to_owned(), text.to_owned())], "{path}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_refused_by_its_path() {
        for path in ["spec.nodeName", "metadata.labels['b'", "metadata", ""] {
            let error = files(json!([{"path": "f", "fieldRef": {"fieldPath": path}}])).unwrap_err();
            assert!(error.to_string().starts_with("fields[0].fieldRef.fieldPath: "), "{path}");
        }
        let error = files(json!([{"path": "f", "resourceFieldRef": {"resource": "limits.cpu"}}]));
        assert_eq!(error, Err(DownwardError::Resource(0)));
    }
}
