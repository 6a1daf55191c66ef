//! The object itself: its name, and fields that no object has.

use super::Findings;
use super::table::UNKNOWN_FIELD;
use super::text::{is_label, is_subdomain};
use crate::finding::Finding;
use crate::names::{GENERATED_LENGTH, REPORTED_ANNOTATIONS, REPORTED_LABELS};
use crate::served::Scope;
use crate::types::{ObjectMeta, OtherFields};

/// The most letters of a name without a cluster: it is that of a directory with a socket in it.
const LONGEST_NAME: usize = 63;
/// Fields of Kubernetes' metadata that [`ObjectMeta`] has no members for.
const METADATA: [&str; 10] = [
    "clusterName",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
];

/// A name that an object may have without a cluster.
pub fn is_object_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME && is_subdomain(name)
}

/// Refuses what no field of an object is called.
pub(super) fn unknown(path: &str, other: &OtherFields, findings: &mut Findings) {
    let names = other
        .keys()
        .map(|name| if path.is_empty() { name.clone() } else { format!("{path}.{name}") });
    findings.extend(names.map(|path| Finding::not_served(path, UNKNOWN_FIELD)));
}

/// Refuses what no field of metadata is called. A cluster's API server has looked at them already, and may be a later one.
pub(super) fn fields(path: &str, metadata: &ObjectMeta, scope: Scope, findings: &mut Findings) {
    if scope == Scope::Cluster {
        return;
    }
    for name in metadata.other.keys().filter(|name| !METADATA.contains(&name.as_str())) {
        findings.push(Finding::not_served(format!("{path}.{name}"), UNKNOWN_FIELD));
    }
    words(path, metadata, findings);
}

/// Refuses labels and annotations that no object can have. Of templates also in clusters, where the API server looks only at
/// the object that they are in.
pub(super) fn words(path: &str, metadata: &ObjectMeta, findings: &mut Findings) {
    for (list, words) in [("labels", &metadata.labels), ("annotations", &metadata.annotations)] {
        // In annotations the domain may have capitals, as Kubernetes has it.
        let is_good = |key: &str| match list {
            "labels" => is_key(key),
            _ => is_key(&key.to_ascii_lowercase()),
        };
        for key in words.keys().filter(|key| !is_good(key)) {
            let message = format!(
                "{key:?} is no key: it has at most 63 letters, digits, dashes, underlines and dots, maybe behind a domain and a slash"
            );
            findings.push(Finding::invalid(format!("{path}.{list}[{key}]"), message));
        }
    }
    for (key, value) in metadata.labels.iter().filter(|(_, it)| !it.is_empty() && !is_word(it)) {
        let message = format!(
            "{value:?} is no value: it has at most 63 letters, digits, dashes, underlines and dots"
        );
        findings.push(Finding::invalid(format!("{path}.labels[{key}]"), message));
    }
}

/// Refuses what only Corten says of a VirtualMachineInstance: by it the operator judges whether a VM is dead. Without a
/// cluster nobody does, and a copy of an object that ran in one can be run.
pub(super) fn reported(path: &str, metadata: &ObjectMeta, scope: Scope, findings: &mut Findings) {
    if scope != Scope::Cluster {
        return;
    }
    let labels = REPORTED_LABELS.iter().filter(|key| metadata.labels.contains_key(**key));
    let annotations =
        REPORTED_ANNOTATIONS.iter().filter(|key| metadata.annotations.contains_key(**key));
    let given =
        labels.map(|key| ("labels", key)).chain(annotations.map(|key| ("annotations", key)));
    for (list, key) in given {
        let message = "leave it out: it is what Corten reports on a VirtualMachineInstance";
        findings.push(Finding::invalid(format!("{path}.{list}[{key}]"), message));
    }
}

/// A key of a label or an annotation: a word, maybe behind a domain.
fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, word)) => is_subdomain(domain) && is_word(word),
        None => is_word(key),
    }
}

/// A word as Kubernetes has it in labels.
fn is_word(text: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && is_end(text.bytes().next())
        && is_end(text.bytes().last())
}

/// Refuses a name that the machine cannot have. In clusters that is the API server's.
pub(super) fn name(metadata: &ObjectMeta, scope: Scope, findings: &mut Findings) {
    const WHAT: &str = "at most 63 small letters, digits, dashes and dots, and begins and ends with a letter or digit";
    if scope == Scope::Cluster {
        return;
    }
    let namespace = metadata.namespace.as_str();
    if !namespace.is_empty() && !is_label(namespace) {
        let message = format!(
            "{namespace:?} is no namespace: it has at most 63 small letters, digits and dashes, and no dash at its ends"
        );
        findings.push(Finding::invalid("metadata.namespace", message));
    }
    if !metadata.name.is_empty() {
        if !is_object_name(&metadata.name) {
            let message = format!("{:?} is no name: it has {WHAT}", metadata.name);
            findings.push(Finding::invalid("metadata.name", message));
        }
        return;
    }
    let beginning = metadata.other.get("generateName").and_then(|name| name.as_str());
    let Some(beginning) = beginning.filter(|text| !text.is_empty()) else {
        findings.push(Finding::missing("metadata.name", "a name is needed"));
        return;
    };
    let kept: String = beginning.chars().take(LONGEST_NAME - GENERATED_LENGTH).collect();
    if !is_subdomain(&format!("{kept}x")) {
        let message = format!("{beginning:?} begins no name: it has {WHAT}");
        findings.push(Finding::invalid("metadata.generateName", message));
    }
}
