//! What is wrong with an object, not served, or without effect, by path. Pure: CLI, operator, launcher and tests share it.
//!
//! First the table of served fields, then rules: values that can be read, names that match, numbers within limits. A rule is
//! silent about what the table has refused already.
//!
//! | file | looks at |
//! |---|---|
//! | `table` | every field, against [`served`](crate::served) |
//! | `domain` | processors, memory, firmware |
//! | `life` | grace period, start, probes, names |
//! | `disks`, `volumes` | disks, what they hold, and that they match |
//! | `networks` | interfaces, networks, and that they match |
//! | `vm` | what a VirtualMachine has besides its template |
//! | `text` | names, paths, addresses |

mod disks;
mod domain;
mod life;
mod networks;
mod table;
mod text;
mod vm;
mod volumes;

pub use crate::finding::{Finding, Reason, Severity};
pub(crate) use text::mac_address;

use crate::served::{INSTANCE, MACHINE, Scope};
use crate::types::{VirtualMachineInstanceSpec, VirtualMachineSpec};
use serde::Serialize;
use table::Walk;

/// The most findings of one object, of either severity. An object that has more is no work of a person.
const MOST_FINDINGS: usize = 100;

/// Everything that keeps a VirtualMachineInstance from being run there, and everything its user should know; nothing if
/// there is no more to say. Defaults need not have been filled in.
pub fn validate(spec: &VirtualMachineInstanceSpec, scope: Scope) -> Vec<Finding> {
    let mut findings = Findings::default();
    compare(spec, &INSTANCE, scope, &mut findings);
    let refused = findings.refused_paths();
    let mut rules = Findings::default();
    domain::check(spec, scope, &mut rules);
    life::check(spec, &mut rules);
    disks::check(spec, &mut rules);
    volumes::check(spec, &mut rules);
    networks::check(spec, &mut rules);
    for finding in rules.0 {
        if !refused.iter().any(|path| lies_in(&finding.path, path)) {
            findings.push(finding);
        }
    }
    findings.0
}

/// The same of a VirtualMachine. Paths of its template begin with `spec.template.spec`.
pub fn validate_machine(spec: &VirtualMachineSpec, scope: Scope) -> Vec<Finding> {
    let mut findings = Findings::default();
    // The template is looked at by itself.
    let rest = VirtualMachineSpec { template: None, ..spec.clone() };
    compare(&rest, &MACHINE, scope, &mut findings);
    if scope == Scope::Cluster {
        findings.push(Finding::not_served(
            "spec",
            "VirtualMachines come to clusters with a later release",
        ));
        return findings.0;
    }
    vm::check(spec, &mut findings);
    let template = spec.template.as_ref().and_then(|template| template.spec.as_ref());
    for finding in template.map(|spec| validate(spec, scope)).unwrap_or_default() {
        let path = format!("spec.template.{}", finding.path);
        findings.push(Finding { path, ..finding });
    }
    findings.0
}

/// None of these keeps an object from being run.
pub fn can_run(findings: &[Finding]) -> bool {
    !findings.iter().any(Finding::is_refusal)
}

fn compare(
    spec: &impl Serialize,
    table: &'static crate::served::Table,
    scope: Scope,
    findings: &mut Findings,
) {
    match serde_json::to_value(spec) {
        Ok(value) => Walk { table, scope, findings }.look("spec", "spec", &value),
        Err(error) => findings.push(Finding::invalid("spec", error.to_string())),
    }
}

/// The path is this one, or leads into it.
fn lies_in(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// What was found, within bounds.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn push(&mut self, finding: Finding) {
        let alike = self.0.iter().filter(|other| other.severity == finding.severity).count();
        if alike < MOST_FINDINGS {
            self.0.push(finding);
        }
    }

    fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }

    fn is_full(&self) -> bool {
        self.0.len() == 2 * MOST_FINDINGS
    }

    fn refused_paths(&self) -> Vec<String> {
        self.0.iter().filter(|it| it.is_refusal()).map(|it| it.path.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
