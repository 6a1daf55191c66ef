//! Objects of manifests.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use corten_resources::validate::Finding;
use corten_resources::{cut, shown};
use serde_json::{Value, json};
use thiserror::Error;

use super::syntax;

/// A Secret has at most 1 MiB; this is for whoever names the wrong file.
const MAX_BYTES: u64 = 16 << 20;
/// What a text may come to: levels, values of all documents, documents. `docs/run.md` names them.
pub(super) const MAX_DEPTH: usize = 64;
pub(super) const MAX_VALUES: usize = 250_000;
pub(super) const MAX_DOCUMENTS: usize = 1024;
/// Versions of the API whose objects are ours.
const VERSIONS: [&str; 2] = ["kubevirt.io/v1", "kubevirt.io/v1alpha3"];
/// An object that is run.
pub const INSTANCE: &str = "VirtualMachineInstance";
/// An object with a template of one.
pub const MACHINE: &str = "VirtualMachine";

/// Objects that a VM can refer to.
const SOURCES: [&str; 3] = ["ConfigMap", "PersistentVolumeClaim", "Secret"];

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
    /// It is no text.
    #[error("{0} is no text in UTF-8: is it a manifest, and saved as UTF-8?")]
    NoText(String),
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
    /// A document that is no object of Kubernetes.
    #[error("{file}, document {number}: {}", shown(.why))]
    NoObject {
        /// Which file.
        file: String,
        /// Counted from 1.
        number: usize,
        /// What it lacks, by its path.
        why: String,
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

    /// Gives it another name, whatever it has as one.
    pub fn rename(&mut self, name: &str) {
        let Value::Object(members) = &mut self.value else { return };
        let metadata = members.entry("metadata").or_insert_with(|| json!({}));
        if metadata.is_null() {
            *metadata = json!({});
        }
        // Something else than an object is told as it is.
        if let Value::Object(metadata) = metadata {
            metadata.insert("name".into(), name.into());
        }
    }

    /// Whether it is of KubeVirt's first group.
    pub fn is_ours(&self) -> bool {
        VERSIONS.contains(&self.api_version.as_str())
    }

    /// Whether it is one that can be run.
    pub fn is_machine(&self) -> bool {
        self.is_ours() && [INSTANCE, MACHINE].contains(&self.kind.as_str())
    }

    /// Whether it is one that a VM can refer to.
    pub fn is_source(&self) -> bool {
        self.api_version == "v1" && SOURCES.contains(&self.kind.as_str())
    }

    /// A finding about the instance that is run of it, by its path in the document.
    pub fn placed(&self, finding: Finding) -> Finding {
        if self.kind == INSTANCE {
            return finding;
        }
        Finding { path: format!("spec.template.{}", finding.path), ..finding }
    }

    /// For messages: `VirtualMachine first`.
    pub fn title(&self) -> String {
        let name = if self.name().is_empty() { "without a name" } else { self.name() };
        format!("{} {}", shown(&cut(&self.kind)), shown(&cut(name)))
    }
}

/// Reads all objects of a file; `-` is standard input.
pub fn read(path: &Path) -> Result<Vec<Document>, ManifestError> {
    read_each(path)?.into_iter().collect()
}

/// The same, with a word on each document that is no object.
pub fn read_each(path: &Path) -> Result<Vec<Result<Document, ManifestError>>, ManifestError> {
    let (file, text) = if path == Path::new("-") {
        ("standard input".to_owned(), contents(io::stdin().lock()))
    } else {
        (path.display().to_string(), File::open(path).and_then(contents))
    };
    let text = text.map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => ManifestError::TooLarge(file.clone()),
        // Only what was read is looked at for it: files are opened by other means.
        io::ErrorKind::InvalidData => ManifestError::NoText(file.clone()),
        _ => ManifestError::Read { file: file.clone(), source },
    })?;
    parse_each(&file, &text)
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
    parse_each(file, text)?.into_iter().collect()
}

fn parse_each(
    file: &str,
    text: &str,
) -> Result<Vec<Result<Document, ManifestError>>, ManifestError> {
    // As kubectl reads them: `010` is eight.
    let how = serde_saphyr::options! {
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_VALUES,
            max_documents: MAX_DOCUMENTS,
            // How often something is repeated is bounded by what all of it comes to.
            enforce_alias_anchor_ratio: false,
        },
    };
    let values = serde_saphyr::from_multiple_with_options(text, how);
    let values: Vec<Value> = values.map_err(|error| ManifestError::Yaml {
        file: file.into(),
        text: syntax::explained(&error),
    })?;
    let mut documents = Vec::new();
    for (index, mut value) in values.into_iter().enumerate() {
        let number = index + 1;
        make_whole(&mut value);
        if value.is_null() {
            continue;
        }
        let mut found = Vec::new();
        take(file, value, "", &mut found);
        let no_object = |why| ManifestError::NoObject { file: file.into(), number, why };
        documents.extend(found.into_iter().map(|document| document.map_err(no_object)));
    }
    Ok(documents)
}

/// Numbers such as `2.0` and `08`, which is no octal one, are whole to kubectl, which writes JSON of what it reads.
fn make_whole(value: &mut Value) {
    /// Up to here all whole numbers are told from each other.
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0);
            let whole = whole.filter(|whole| whole.abs() <= MOST);
            // Written without a point, it is read as what it is.
            if let Some(Ok(whole)) = whole.map(|whole| format!("{whole:.0}").parse::<i64>()) {
                *value = whole.into();
            }
        }
        Value::Array(members) => members.iter_mut().for_each(make_whole),
        Value::Object(members) => members.values_mut().for_each(make_whole),
        _ => {}
    }
}

/// The object at this place in its document, or those of the list there; what is none is told. How deep lists lie in lists is
/// bounded by the reader of the text.
fn take(file: &str, mut value: Value, place: &str, found: &mut Vec<Result<Document, String>>) {
    let inside = |name: String| if place.is_empty() { name } else { format!("{place}.{name}") };
    match items(&mut value) {
        Some(Value::Array(items)) => {
            for (index, item) in items.into_iter().enumerate() {
                take(file, item, &inside(format!("items[{index}]")), found);
            }
        }
        // A list may be empty, but not something else.
        Some(Value::Null) => {}
        Some(_) => {
            found.push(Err(format!("{}: it is no list of objects", inside("items".to_owned()))));
        }
        None => found.push(document(file, value, place)),
    }
}

/// What is in a list of objects of any kind, or of one kind as the API server gives it; none if it is something else.
fn items(value: &mut Value) -> Option<Value> {
    let is_any = value["kind"] == "List" && value["apiVersion"] == "v1";
    let is_of_a_kind = || {
        let is_named_so = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        is_named_so && value["items"].is_array()
    };
    (is_any || is_of_a_kind()).then(|| value.get_mut("items").map(Value::take).unwrap_or_default())
}

/// The object at this place in its document, or what it lacks.
fn document(file: &str, value: Value, place: &str) -> Result<Document, String> {
    let path = |name: &str| if place.is_empty() { name.into() } else { format!("{place}.{name}") };
    if !value.is_object() {
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        return Err(format!("{place}it is no object with apiVersion and kind"));
    }
    let field = |name: &str, example: &str| match &value[name] {
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        Value::String(_) | Value::Null => {
            Err(format!("{}: it is missing: every object has one, such as {example}", path(name)))
        }
        other => {
            Err(format!("{}: {} is no text such as {example}", path(name), cut(&other.to_string())))
        }
    };
    let api_version = field("apiVersion", "kubevirt.io/v1")?;
    let kind = field("kind", INSTANCE)?;
    Ok(Document { file: file.into(), api_version, kind, value })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

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
    fn objects_of_a_list_in_a_list_are_found() {
        let inner = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod}]}";
        let text = format!("apiVersion: v1\nkind: List\nitems: [{inner}, {inner}]\n");
        let documents = parse("f", &text).unwrap();
        let kinds: Vec<&str> = documents.iter().map(|document| document.kind.as_str()).collect();
        assert_eq!(kinds, ["Pod", "Pod"]);
    }

    #[test]
    fn list_of_one_kind_is_looked_into_as_one_of_any_kind() {
        let item = "{apiVersion: kubevirt.io/v1, kind: VirtualMachine}";
        let list = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineList\n";
        let documents = parse("f", &format!("{list}items: [{item}]\n")).unwrap();
        assert_eq!(documents[0].kind, "VirtualMachine");
        // Somebody's own kind that is called so.
        assert_eq!(
            parse("f", "{apiVersion: a/v1, kind: ShoppingList}").unwrap()[0].kind,
            "ShoppingList"
        );
    }

    #[test]
    fn object_is_renamed_whatever_its_name_was() {
        for metadata in ["{name: a}", "{name: [1]}", "{labels: {a: b}}", "{}", "null"] {
            let text = format!("{{apiVersion: v1, kind: Pod, metadata: {metadata}}}");
            let mut document = parse("f", &text).unwrap().remove(0);
            document.rename("b");
            assert_eq!(document.name(), "b", "{metadata}");
        }
        let mut document = parse("f", "{apiVersion: v1, kind: Pod}").unwrap().remove(0);
        document.rename("b");
        assert_eq!(document.value["metadata"], serde_json::json!({"name": "b"}));
    }

    #[test]
    fn of_a_long_name_the_beginning_is_told() {
        let text =
            format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {}}}}}", "x".repeat(100_000));
        let title = parse("f", &text).unwrap()[0].title();
        assert_eq!(title, format!("Pod {}…", "x".repeat(40)));
    }

    #[test]
    fn numbers_with_leading_zeros_are_octal_as_kubectl_has_them() {
        let text = "{apiVersion: v1, kind: A, a: 010, b: 0400000000, c: '010', d: 0, e: 10, f: -010, g: 0o10}";
        let value = parse("f", text).unwrap().remove(0).value;
        assert_eq!((&value["a"], &value["b"]), (&8.into(), &0o400_000_000.into()));
        assert_eq!((&value["c"], &value["d"]), (&"010".into(), &0.into()));
        assert_eq!((&value["e"], &value["f"], &value["g"]), (&10.into(), &(-8).into(), &8.into()));
        let text = "{apiVersion: v1, kind: A, a: [08, 2.0, -3.0, 1e3, 0.5, -0.0, 1e300]}";
        let value = parse("f", text).unwrap().remove(0).value;
        assert_eq!(value["a"], serde_json::json!([8, 2, -3, 1000, 0.5, 0, 1e300]));
    }

    #[test]
    fn what_is_no_manifest_is_said_with_its_place() {
        let yaml = parse("f.yaml", "a: [1\nb: 2\n").unwrap_err().to_string();
        assert!(yaml.starts_with("f.yaml: line 2, column 2: a key has one value: "), "{yaml}");
        let missing = "it is missing: every object has one, such as";
        let cases = [
            ("just text", "it is no object with apiVersion and kind".to_owned()),
            ("- 1\n", "it is no object with apiVersion and kind".to_owned()),
            ("1", "it is no object with apiVersion and kind".to_owned()),
            ("kind: Pod\n", format!("apiVersion: {missing} kubevirt.io/v1")),
            ("apiVersion: v1\nkind: ''\n", format!("kind: {missing} VirtualMachineInstance")),
            (
                "apiVersion: v1\nkind: 5\n",
                "kind: 5 is no text such as VirtualMachineInstance".to_owned(),
            ),
            (
                "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1}]\n",
                format!("items[0].kind: {missing} VirtualMachineInstance"),
            ),
            (
                "apiVersion: v1\nkind: List\nitems: 5\n",
                "items: it is no list of objects".to_owned(),
            ),
            (
                "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: [{apiVersion: v1}]}]}",
                format!("items[0].items[0].kind: {missing} VirtualMachineInstance"),
            ),
        ];
        for (text, why) in cases {
            let error = parse("f", text).unwrap_err();
            assert_eq!(error.to_string(), format!("f, document 1: {why}"), "{text}");
        }
        let of_two = parse("f", "apiVersion: v1\nkind: Pod\n---\nkind: Pod\n").unwrap_err();
        assert!(of_two.to_string().starts_with("f, document 2: apiVersion: "), "{of_two}");
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
    fn manifests_have_limits() {
        let text = |levels: usize| {
            format!("{{apiVersion: v1, kind: A, a: {}{}}}", "[".repeat(levels), "]".repeat(levels))
        };
        assert!(parse("f", &text(MAX_DEPTH - 1)).is_ok());
        assert!(parse("f", &text(MAX_DEPTH)).is_err());
        let documents = |count| "---\n{apiVersion: v1, kind: A}\n".repeat(count);
        assert_eq!(parse("f", &documents(MAX_DOCUMENTS)).unwrap().len(), MAX_DOCUMENTS);
        assert!(parse("f", &documents(MAX_DOCUMENTS + 1)).is_err());
        let values = |count| format!("{{apiVersion: v1, kind: A, a: [{}]}}", "1,".repeat(count));
        assert!(parse("f", &values(MAX_VALUES - 10)).is_ok());
        let error = parse("f", &values(MAX_VALUES)).unwrap_err().to_string();
        assert!(error.ends_with("it has more than 250000 values, aliases written out"), "{error}");
    }

    #[test]
    fn names_cannot_act_on_a_terminal() {
        let text = "{apiVersion: v1, kind: \"Po\\u001b[2Jd\", metadata: {name: \"a\\nb\"}}";
        assert_eq!(parse("f", text).unwrap()[0].title(), "Po\\u{1b}[2Jd a\\nb");
    }

    #[test]
    fn file_that_is_no_text_is_told_so() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"name: \xe4\n").unwrap();
        let error = read(file.path()).unwrap_err();
        let path = file.path().display();
        assert_eq!(
            error.to_string(),
            format!("{path} is no text in UTF-8: is it a manifest, and saved as UTF-8?")
        );
    }

    #[test]
    fn missing_file_is_named() {
        let error = read(Path::new("/nonexistent/vm.yaml")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nonexistent/vm.yaml");
    }
}
