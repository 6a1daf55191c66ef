//! Files with fields of the object itself.

use super::Findings;
use super::text::check_given;
use crate::finding::Finding;
use crate::machine::limits::{FILE_NAME_BYTES, PATH_LEVELS};
use crate::types::DownwardApiVolume;
use std::collections::BTreeSet;

/// What kubelet writes into files, and `corten run` in its place.
const FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

pub(super) fn check(path: &str, volume: &DownwardApiVolume, findings: &mut Findings) {
    let mut files = BTreeSet::new();
    let mut directories = BTreeSet::new();
    for (index, file) in volume.fields.iter().enumerate() {
        let path = format!("{path}.fields[{index}]");
        let place = file.path.as_str();
        let wrong = wrong_path(place).or_else(|| {
            let above = above(place);
            let is_taken = directories.contains(place) || above.iter().any(|it| files.contains(it));
            directories.extend(above);
            (is_taken || !files.insert(place)).then(|| "it is there twice".to_owned())
        });
        findings.extend(wrong.map(|why| Finding::invalid(format!("{path}.path"), why)));
        if file.resource_field_ref.is_some() {
            continue;
        }
        let field = file.field_ref.as_ref().map(|field| field.field_path.as_str());
        let path = format!("{path}.fieldRef.fieldPath");
        check_given(&path, field, "name the field", findings);
        if let Some(field) = field.filter(|field| !field.is_empty() && !is_field(field)) {
            let message = format!(
                "{field:?} is none of {}, metadata.annotations['KEY'] and metadata.labels['KEY']",
                FIELDS.join(", ")
            );
            findings.push(Finding::invalid(path, message));
        }
    }
}

/// Why no file can be there.
fn wrong_path(path: &str) -> Option<String> {
    let names = || path.split('/');
    if names().any(|name| matches!(name, "" | "." | "..")) || path.contains('\0') {
        return Some(format!("{path:?} is no path inside the volume"));
    }
    if names().count() > PATH_LEVELS {
        return Some(format!("it has more than {PATH_LEVELS} levels"));
    }
    let is_long = names().any(|name| name.len() > FILE_NAME_BYTES);
    is_long.then(|| format!("a name in it has more than {FILE_NAME_BYTES} bytes"))
}

/// Directories on the way to a file.
fn above(path: &str) -> Vec<&str> {
    path.match_indices('/').map(|(end, _)| &path[..end]).collect()
}

fn is_field(path: &str) -> bool {
    let maps = ["metadata.annotations['", "metadata.labels['"];
    FIELDS.contains(&path)
        || maps.iter().any(|map| path.strip_prefix(map).is_some_and(|key| key.ends_with("']")))
}
