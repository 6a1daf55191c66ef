//! The one VM among objects, and what it can refer to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::Document;

/// How many VMs are named where one would do.
const MOST_TITLES: usize = 8;

/// Objects that a VM refers to, by name. All are of one namespace, as nobody else's are here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sources {
    /// Secrets, whole.
    pub secrets: BTreeMap<String, Value>,
    /// ConfigMaps, whole.
    pub config_maps: BTreeMap<String, Value>,
    /// PersistentVolumeClaims, whole.
    pub claims: BTreeMap<String, Value>,
}

/// What `corten run` runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// The VirtualMachineInstance or VirtualMachine.
    pub machine: Document,
    /// What it can refer to.
    pub sources: Sources,
    /// Documents that nobody asked for, in words.
    pub passed_over: Vec<String>,
}

/// Why there is not exactly one VM.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SelectionError {
    /// None.
    #[error("no VirtualMachineInstance or VirtualMachine of kubevirt.io/v1 in {0}")]
    None(String),
    /// Several.
    #[error("more than one VM: {0}; put each into a file of its own")]
    Several(String),
    /// One twice.
    #[error("{0} stands there twice")]
    Twice(String),
    /// An object without a name.
    #[error("{0}: metadata.name: a name is needed")]
    NoName(String),
}

impl Selection {
    /// Finds it.
    pub fn of(documents: Vec<Document>) -> Result<Self, SelectionError> {
        let files = |documents: &[Document]| {
            let mut files: Vec<&str> = documents.iter().map(|d| d.file.as_str()).collect();
            files.dedup();
            if files.is_empty() { "what was given".into() } else { files.join(", ") }
        };
        let read_from = files(&documents);
        let mut machines = Vec::new();
        let mut sources = Sources::default();
        let mut passed_over = Vec::new();
        for document in documents {
            let kind = document.kind.as_str();
            let place = match (document.api_version.as_str(), kind) {
                _ if document.is_machine() => {
                    machines.push(document);
                    continue;
                }
                ("v1", "Secret") => &mut sources.secrets,
                ("v1", "ConfigMap") => &mut sources.config_maps,
                ("v1", "PersistentVolumeClaim") => &mut sources.claims,
                _ => {
                    passed_over.push(format!("{}: {}", document.file, document.title()));
                    continue;
                }
            };
            if document.name().is_empty() {
                return Err(SelectionError::NoName(document.title()));
            }
            let (title, name) = (document.title(), document.name().to_owned());
            if place.insert(name, document.value).is_some() {
                return Err(SelectionError::Twice(title));
            }
        }
        if machines.len() > 1 {
            let titles = machines.iter().take(MOST_TITLES).map(Document::title);
            let mut titles = titles.collect::<Vec<_>>().join(", ");
            if machines.len() > MOST_TITLES {
                titles += &format!(" and {} more", machines.len() - MOST_TITLES);
            }
            return Err(SelectionError::Several(titles));
        }
        let machine = machines.pop().ok_or(SelectionError::None(read_from))?;
        Ok(Self { machine, sources, passed_over })
    }
}

#[cfg(test)]
mod tests {
    use super::super::documents::parse;
    use super::*;

    const VM_TEXT: &str = "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: m, namespace: ns}\n\
        spec: {runStrategy: Always, template: {metadata: {labels: {a: b}}, spec: {domain: {}}}}\n";

    fn select(text: &str) -> Result<Selection, SelectionError> {
        Selection::of(parse("f", text).unwrap())
    }

    #[test]
    fn sources_are_kept_and_other_kinds_are_named() {
        let text = format!(
            "{VM_TEXT}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{a: b}}\n---\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\n"
        );
        let selection = select(&text).unwrap();
        assert_eq!(selection.machine.title(), "VirtualMachine m");
        assert_eq!(selection.sources.secrets["s"]["stringData"]["a"], "b");
        assert!(selection.sources.config_maps.contains_key("c"));
        assert_eq!(selection.passed_over, ["f: Deployment d"]);
    }

    #[test]
    fn anything_but_one_vm_is_refused() {
        let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n";
        let none = "no VirtualMachineInstance or VirtualMachine of kubevirt.io/v1 in f";
        let several =
            "more than one VM: VirtualMachine m, VirtualMachine m; put each into a file of its own";
        let many = format!(
            "more than one VM: {} and 3 more; put each into a file of its own",
            ["VirtualMachine m"; 8].join(", ")
        );
        let cases = [
            (secret.to_owned(), none),
            (format!("{VM_TEXT}---\n{VM_TEXT}"), several),
            (format!("{VM_TEXT}---\n").repeat(11), &many),
            (format!("{VM_TEXT}---\n{secret}---\n{secret}"), "Secret s stands there twice"),
            (
                "apiVersion: v1\nkind: Secret\n".to_owned(),
                "Secret without a name: metadata.name: a name is needed",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(select(&text).unwrap_err().to_string(), message);
        }
    }
}
