//! `corten validate`.

use std::fmt::Write;
use std::path::Path;

use corten_resources::validate::{Finding, can_run};
use corten_resources::{cut, shown};
use serde::Serialize;

use crate::failure::Failure;
use crate::manifest::documents::{self, Document};
use crate::manifest::{ManifestError, examine};
use crate::options::Validate;

/// Kinds of KubeVirt's first group. In it there are no others, so another one is a slip.
const KINDS: [&str; 6] = [
    "KubeVirt",
    "VirtualMachine",
    "VirtualMachineInstance",
    "VirtualMachineInstanceMigration",
    "VirtualMachineInstancePreset",
    "VirtualMachineInstanceReplicaSet",
];

/// What came of one document, or of a file that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Verdict {
    file: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    outcome: Outcome,
    /// It is not judged, but a VM may refer to it.
    #[serde(skip)]
    is_source: bool,
    /// Why it is no object.
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Told>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Accepted,
    Refused,
    PassedOver,
    #[default]
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Told {
    path: String,
    refused: bool,
    reason: &'static str,
    message: String,
}

impl From<Finding> for Told {
    fn from(finding: Finding) -> Self {
        let refused = finding.is_refusal();
        let Finding { path, reason, message, .. } = finding;
        Self { path, refused, reason: reason.as_str(), message }
    }
}

/// Checks all documents of all files; success only if nothing was refused.
pub(super) fn validate(options: &Validate) -> Result<u8, Failure> {
    let mut verdicts = Vec::new();
    for path in &options.files {
        match documents::read_each(path) {
            Ok(documents) if documents.is_empty() => verdicts.push(empty(path)),
            Ok(documents) => {
                verdicts.extend(documents.into_iter().map(|document| match document {
                    Ok(document) => judge(&document),
                    Err(error) => unreadable(path, &error),
                }));
            }
            // The other files are still worth a look.
            Err(error) => verdicts.push(unreadable(path, &error)),
        }
    }
    if options.json {
        super::print_json(&verdicts)?;
    } else {
        super::print(&described(&verdicts))?;
    }
    for verdict in verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Unreadable) {
        super::say(&verdict.error);
    }
    let wrong =
        |verdict: &&Verdict| !matches!(verdict.outcome, Outcome::Accepted | Outcome::PassedOver);
    match verdicts.iter().filter(wrong).count() {
        0 => Ok(0),
        1 => Err(Failure::Validation("one document or file is".into())),
        many => Err(Failure::Validation(format!("{many} documents or files are"))),
    }
}

fn unreadable(path: &Path, error: &ManifestError) -> Verdict {
    let error = corten_launcher::log::chain(error);
    Verdict { file: path.display().to_string(), error, ..Verdict::default() }
}

/// Who names the wrong file, or a template that came out empty, should not be told that all is well.
fn empty(path: &Path) -> Verdict {
    let file = path.display().to_string();
    let what = if file == "-" { "standard input" } else { file.as_str() };
    let error = format!("{what}: there is no object in it");
    Verdict { file, error, ..Verdict::default() }
}

fn judge(document: &Document) -> Verdict {
    let (file, kind) = (document.file.clone(), document.kind.clone());
    let name = document.name().to_owned();
    let findings = if document.is_machine() {
        examine(document).findings
    } else if document.is_ours() && !KINDS.contains(&kind.as_str()) {
        let version = &document.api_version;
        let message = format!("{version} has no kind {kind:?}: it has {}", KINDS.join(", "));
        vec![Finding::invalid("kind", message)]
    } else if document.is_source() && name.is_empty() {
        vec![Finding::missing("metadata.name", "a name is needed")]
    } else {
        Vec::new()
    };
    let outcome = match (document.is_machine(), can_run(&findings)) {
        (_, false) => Outcome::Refused,
        (false, true) => Outcome::PassedOver,
        (true, true) => Outcome::Accepted,
    };
    let findings = findings.into_iter().map(Told::from).collect();
    let is_source = document.is_source();
    Verdict { file, kind, name, outcome, is_source, findings, ..Verdict::default() }
}

fn described(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let Verdict { file, kind, name, outcome, is_source, findings, error: _ } = verdict;
        let outcome = match outcome {
            Outcome::Accepted => "accepted",
            Outcome::Refused => "refused",
            Outcome::PassedOver if *is_source => {
                "passed over: `corten run` takes it if the VM names it"
            }
            Outcome::PassedOver => "passed over: it is not ours",
            // Told beside the verdicts.
            Outcome::Unreadable => continue,
        };
        let name = if name.is_empty() { "without a name" } else { name };
        // Writing to a String does not fail.
        let (kind, name) = (cut(kind), cut(name));
        let _ = writeln!(text, "{}: {} {}: {outcome}", shown(file), shown(&kind), shown(&name));
        for Told { path, message, refused, .. } in findings {
            let warning = if *refused { "" } else { "warning: " };
            let _ = writeln!(text, "  {warning}{}: {}", shown(path), shown(message));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const GOOD: &str = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a}\n\
        spec: {domain: {memory: {guest: 64Mi}, devices: {}, firmware: {kernelBoot: {container: {image: i, kernelPath: /k}}}}}\n";

    fn judged(text: &str) -> Vec<Verdict> {
        documents::parse("f.yaml", text).unwrap().iter().map(judge).collect()
    }

    #[test]
    fn each_document_has_its_verdict() {
        let text = format!(
            "{GOOD}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n---\n{}",
            GOOD.replace("64Mi", "some").replace("name: a", "name: b"),
        );
        let verdicts = judged(&text);
        let outcomes: Vec<Outcome> = verdicts.iter().map(|verdict| verdict.outcome).collect();
        assert_eq!(outcomes, [Outcome::Accepted, Outcome::PassedOver, Outcome::Refused]);
        let text = described(&verdicts);
        assert!(text.starts_with("f.yaml: VirtualMachineInstance a: accepted\n"), "{text}");
        let source = "f.yaml: Secret s: passed over: `corten run` takes it if the VM names it\n";
        assert!(text.contains(source), "{text}");
        let other = described(&judged("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"));
        assert_eq!(other, "f.yaml: Pod p: passed over: it is not ours\n");
        assert!(text.contains("\n  spec.domain.memory.guest: "), "{text}");
    }

    #[test]
    fn kind_that_kubevirt_does_not_have_is_refused() {
        let verdicts = judged(&GOOD.replace("VirtualMachineInstance", "VirtualMachineInstanc"));
        assert_eq!(verdicts[0].outcome, Outcome::Refused);
        assert_eq!(verdicts[0].findings[0].path, "kind");
        let earlier = GOOD
            .replace("VirtualMachineInstance", "VirtualMachineInstanc")
            .replace("kubevirt.io/v1", "kubevirt.io/v1alpha3");
        assert_eq!(judged(&earlier)[0].outcome, Outcome::Refused);
        let verdicts = judged(&GOOD.replace("VirtualMachineInstance", "KubeVirt"));
        assert_eq!(verdicts[0].outcome, Outcome::PassedOver);
    }

    #[test]
    fn source_without_a_name_is_refused_as_by_a_run() {
        let verdicts = judged("apiVersion: v1\nkind: ConfigMap\n");
        assert_eq!(verdicts[0].outcome, Outcome::Refused);
        assert_eq!(verdicts[0].findings[0].path, "metadata.name");
    }

    #[test]
    fn file_without_objects_is_refused() {
        for text in ["", "# nothing\n", "---\n---\n"] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let options = Validate { files: vec![file.path().into()], json: false };
            let failure = validate(&options).unwrap_err();
            assert!(matches!(failure, Failure::Validation(_)), "{text:?}: {failure}");
        }
    }

    #[test]
    fn what_a_document_says_cannot_act_on_a_terminal() {
        let text = GOOD
            .replace("name: a", "name: \"a\\u001b[31m\"")
            .replace("spec: {", "spec: {\"co\\u009blour\\r\": 1, ");
        let text = described(&judged(&text));
        assert!(
            text.contains("a\\u{1b}[31m") && text.contains("spec.co\\u{9b}lour\\r: "),
            "{text}"
        );
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
}
