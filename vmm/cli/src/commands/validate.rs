//! `corten validate`.

use std::fmt::Write;

use corten_resources::validate::{Finding, can_run};
use serde::Serialize;

use crate::failure::Failure;
use crate::manifest::documents::{self, Document};
use crate::manifest::examine;
use crate::options::Validate;

/// What came of one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Verdict {
    file: String,
    kind: String,
    name: String,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Told>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Accepted,
    Refused,
    PassedOver,
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
    let mut unreadable = 0_usize;
    for path in &options.files {
        match documents::read(path) {
            Ok(documents) => verdicts.extend(documents.iter().map(judge)),
            // The other files are still worth a look.
            Err(error) => {
                unreadable += 1;
                super::say(&corten_launcher::log::chain(&error));
            }
        }
    }
    if options.json {
        super::print_json(&verdicts)?;
    } else {
        super::print(&described(&verdicts))?;
    }
    let refused = verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Refused).count();
    match refused + unreadable {
        0 => Ok(0),
        1 => Err(Failure::Validation("one document or file is".into())),
        many => Err(Failure::Validation(format!("{many} documents or files are"))),
    }
}

fn judge(document: &Document) -> Verdict {
    let (file, kind) = (document.file.clone(), document.kind.clone());
    let name = document.name().to_owned();
    let findings = if document.is_machine() { examine(document).findings } else { Vec::new() };
    let outcome = match (document.is_machine(), can_run(&findings)) {
        (false, _) => Outcome::PassedOver,
        (true, true) => Outcome::Accepted,
        (true, false) => Outcome::Refused,
    };
    let findings = findings.into_iter().map(Told::from).collect();
    Verdict { file, kind, name, outcome, findings }
}

fn described(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let Verdict { file, kind, name, outcome, findings } = verdict;
        let outcome = match outcome {
            Outcome::Accepted => "accepted",
            Outcome::Refused => "refused",
            Outcome::PassedOver => "passed over: it is not ours",
        };
        let name = if name.is_empty() { "without a name" } else { name };
        // Writing to a String does not fail.
        let _ = writeln!(text, "{file}: {kind} {name}: {outcome}");
        for Told { path, message, refused, .. } in findings {
            let warning = if *refused { "" } else { "warning: " };
            let _ = writeln!(text, "  {warning}{path}: {message}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
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
        assert!(text.contains("f.yaml: Secret s: passed over: it is not ours\n"), "{text}");
        assert!(text.contains("\n  spec.domain.memory.guest: "), "{text}");
    }
}
