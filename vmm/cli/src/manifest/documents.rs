//! Objects of manifests.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

/// A Secret has at most 1 MiB; this is for whoever names the wrong file.
const MAX_BYTES: u64 = 16 << 20;
/// Versions of the API whose objects are ours.
const VERSIONS: [&str; 2] = ["kubevirt.io/v1", "kubevirt.io/v1alpha3"];
/// An object that is run.
pub const INSTANCE: &str = "VirtualMachineInstance";
/// An object with a template of one.
pub const MACHINE: &str = "VirtualMachine";

/// Why a file has no objects.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// It cannot be read.
    #[error("cannot read {file}")]
    Read {
        /// Which one.
        file: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is too large.
    #[error("{0} has more than {most} MiB: is it a manifest?", most = MAX_BYTES >> 20)]
    TooLarge(String),
    /// It is no YAML.
    #[error("{file}: {text}")]
    Yaml {
        /// Which one.
        file: String,
        /// What is wrong, and where.
        text: String,
    },
    /// A document that is no object.
    #[error("{file}, document {number}: it is no object with apiVersion and kind")]
    NoObject {
        /// Which file.
        file: String,
        /// Counted from 1.
        number: usize,
    },
}

/// An object.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Where it is from, for messages.
    pub file: String,
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// All of it.
    pub value: Value,
}

impl Document {
    /// Its name; empty if it has none.
    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Whether it is one that can be run.
    pub fn is_machine(&self) -> bool {
        VERSIONS.contains(&self.api_version.as_str())
            && [INSTANCE, MACHINE].contains(&self.kind.as_str())
    }

    /// For messages: `VirtualMachine first`.
    pub fn title(&self) -> String {
        let name = if self.name().is_empty() { "without a name" } else { self.name() };
        format!("{} {name}", self.kind)
    }
}

/// Reads all objects of a file; `-` is standard input.
pub fn read(path: &Path) -> Result<Vec<Document>, ManifestError> {
    let (file, text) = if path == Path::new("-") {
        ("standard input".to_owned(), contents(io::stdin().lock()))
    } else {
        (path.display().to_string(), File::open(path).and_then(contents))
    };
    let text = text.map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => ManifestError::TooLarge(file.clone()),
        _ => ManifestError::Read { file: file.clone(), source },
    })?;
    parse(&file, &text)
}

/// Reads all objects of these files.
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<Document>, ManifestError> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(read(path)?);
    }
    Ok(all)
}

fn contents(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// The objects of a text. Empty documents are passed over; of a list its items count.
pub fn parse(file: &str, text: &str) -> Result<Vec<Document>, ManifestError> {
    let values: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        // Its text draws the place over several lines; the first one says all.
        let text = error.to_string().lines().next().unwrap_or_default().to_owned();
        ManifestError::Yaml { file: file.into(), text }
    })?;
    let mut documents = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let no_object = || ManifestError::NoObject { file: file.into(), number: index + 1 };
        if value.is_null() {
            continue;
        }
        let document = document(file, value).ok_or_else(no_object)?;
        if document.kind == "List" && document.api_version == "v1" {
            let items = document.value["items"].as_array().cloned().unwrap_or_default();
            for item in items {
                documents.push(self::document(file, item).ok_or_else(no_object)?);
            }
        } else {
            documents.push(document);
        }
    }
    Ok(documents)
}

fn document(file: &str, value: Value) -> Option<Document> {
    let field = |name: &str| value[name].as_str().filter(|text| !text.is_empty()).map(Into::into);
    let (api_version, kind) = (field("apiVersion")?, field("kind")?);
    Some(Document { file: file.into(), api_version, kind, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_documents_lists_and_json_are_read() {
        let text = "# comment\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\n---\n\
            {\"apiVersion\": \"kubevirt.io/v1\", \"kind\": \"VirtualMachine\", \"metadata\": {\"name\": \"m\"}}\n---\n\
            apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap}\n";
        let documents = parse("f", text).unwrap();
        let titles: Vec<String> = documents.iter().map(Document::title).collect();
        assert_eq!(titles, ["Secret s", "VirtualMachine m", "ConfigMap without a name"]);
        assert_eq!(documents.iter().filter(|document| document.is_machine()).count(), 1);
    }

    #[test]
    fn what_is_no_manifest_is_said_with_its_place() {
        let yaml = parse("f.yaml", "a: [1\nb: 2\n").unwrap_err().to_string();
        assert!(yaml.starts_with("f.yaml: ") && yaml.contains("line"), "{yaml}");
        assert!(!yaml.contains('\n'));
        for text in ["just text", "- 1\n", "kind: Pod\n", "apiVersion: v1\nkind: ''\n", "1"] {
            let error = parse("f", text).unwrap_err();
            assert!(matches!(error, ManifestError::NoObject { number: 1, .. }), "{text}: {error}");
        }
        assert!(parse("f", "").unwrap().is_empty());
    }

    #[test]
    fn entities_that_blow_up_are_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let last = level - 1;
            text +=
                &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{last}"); 10].join(", "));
        }
        let error = parse("f", &text).unwrap_err();
        assert!(matches!(error, ManifestError::Yaml { .. }), "{error}");
    }

    #[test]
    fn missing_file_is_named() {
        let error = read(Path::new("/nonexistent/vm.yaml")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nonexistent/vm.yaml");
    }
}
