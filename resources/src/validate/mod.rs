//! What is wrong with an object, not served, or without effect, by path. Pure: CLI, operator, launcher and tests share it.
//!
//! First the table of served fields, then rules: values that can be read, names that match, numbers within limits. A rule is
//! silent about what the table has refused already.
//!
//! | file | looks at |
//! |---|---|
//! | `admit` | an object of any kind as it was sent, and whether it may follow an earlier one |
//! | `decode` | values of the wrong type |
//! | `metadata` | the object's name, and fields that no object has |
//! | `table` | every field, against [`served`] |
//! | `domain` | processors, memory, firmware |
//! | `life` | grace period, start, probes, names |
//! | `disks`, `volumes`, `downward_api` | disks, what they hold, and that they match |
//! | `networks` | interfaces, networks, and that they match |
//! | `embedded` | what a Pod takes as it is, with the feature `cluster` only |
//! | `places` | that all devices have a place |
//! | `annotations` | what KubeVirt's users ask for by annotations |
//! | `vm`, `replica_set`, `migration`, `kubevirt` | what the other kinds have besides their template |
//! | `text` | names, paths, addresses, durations |

mod admit;
mod annotations;
mod decode;
mod disks;
mod domain;
mod downward_api;
#[cfg(feature = "cluster")]
mod embedded;
mod kubevirt;
mod life;
mod metadata;
mod migration;
mod networks;
mod places;
mod replica_set;
mod table;
mod text;
mod vm;
mod volumes;

pub use crate::finding::{Finding, Reason, Severity};
pub use admit::{admit, unchanged};
pub use annotations::{check as check_annotations, runs_otherwise};
pub use decode::{Decoded, decode};
pub use metadata::is_object_name;
pub(crate) use text::mac_address;

use crate::Kind;
use crate::served::{self, Scope};
use crate::types::{
    KubeVirtSpec, VirtualMachineInstanceMigrationSpec, VirtualMachineInstanceReplicaSetSpec,
    VirtualMachineInstanceSpec, VirtualMachineInstanceTemplate, VirtualMachineSpec,
};
use serde::Serialize;
use table::Walk;

/// The most findings of one object, of either severity. How many more there are is said behind them.
const MOST_FINDINGS: usize = 100;

/// Everything that keeps a VirtualMachineInstance from being run there, and everything its user should know; nothing if
/// there is no more to say. Defaults need not have been filled in.
pub fn validate(spec: &VirtualMachineInstanceSpec, scope: Scope) -> Vec<Finding> {
    instance(spec, scope).told()
}

/// The same of a VirtualMachine. Paths of its template begin with `spec.template`.
pub fn validate_machine(spec: &VirtualMachineSpec, scope: Scope) -> Vec<Finding> {
    machine(spec, scope).told()
}

/// The same of a VirtualMachineInstanceReplicaSet.
pub fn validate_replica_set(
    spec: &VirtualMachineInstanceReplicaSetSpec,
    scope: Scope,
) -> Vec<Finding> {
    replica_set(spec, scope).told()
}

/// The same of a VirtualMachineInstanceMigration.
pub fn validate_migration(
    spec: &VirtualMachineInstanceMigrationSpec,
    scope: Scope,
) -> Vec<Finding> {
    judge(Kind::Migration, spec, scope, |rules| migration::check(spec, rules)).told()
}

/// The same of a KubeVirt object.
pub fn validate_kubevirt(spec: &KubeVirtSpec, scope: Scope) -> Vec<Finding> {
    judge(Kind::KubeVirt, spec, scope, |rules| kubevirt::check(spec, rules)).told()
}

fn instance(spec: &VirtualMachineInstanceSpec, scope: Scope) -> Findings {
    judge(Kind::Instance, spec, scope, |rules| {
        domain::check(spec, rules);
        life::check(spec, rules);
        disks::check(spec, rules);
        volumes::check(spec, rules);
        networks::check(spec, rules);
        places::check(spec, rules);
        #[cfg(feature = "cluster")]
        if scope == Scope::Cluster {
            embedded::check(spec, rules);
        }
    })
}

fn machine(spec: &VirtualMachineSpec, scope: Scope) -> Findings {
    // The template is looked at by itself.
    let rest = VirtualMachineSpec { template: None, ..spec.clone() };
    let findings = judge(Kind::Machine, &rest, scope, |rules| vm::check(spec, scope, rules));
    with_template(findings, spec.template.as_ref(), scope)
}

fn replica_set(spec: &VirtualMachineInstanceReplicaSetSpec, scope: Scope) -> Findings {
    let rest = VirtualMachineInstanceReplicaSetSpec { template: None, ..spec.clone() };
    let findings = judge(Kind::ReplicaSet, &rest, scope, |rules| replica_set::check(spec, rules));
    with_template(findings, spec.template.as_ref(), scope)
}

/// The table, then the rules of a kind.
fn judge(
    kind: Kind,
    spec: &impl Serialize,
    scope: Scope,
    check: impl FnOnce(&mut Findings),
) -> Findings {
    let mut findings = Findings::default();
    match serde_json::to_value(spec) {
        Ok(value) => {
            let table = served::table(kind);
            Walk { kind, table, scope, findings: &mut findings }.look("spec", "spec", &value);
        }
        Err(error) => findings.push(Finding::invalid("spec", error.to_string())),
    }
    let refused = findings.refused_paths();
    let mut rules = Findings::default();
    check(&mut rules);
    findings.add(rules, |finding| {
        let is_new = !refused.iter().any(|path| lies_in(&finding.path, path));
        is_new.then_some(finding)
    });
    findings
}

/// Adds what is to be said of a template.
fn with_template(
    mut findings: Findings,
    template: Option<&VirtualMachineInstanceTemplate>,
    scope: Scope,
) -> Findings {
    if let Some(template) = template {
        metadata::unknown("spec.template", &template.other, &mut findings);
        if let Some(metadata) = &template.metadata {
            let path = "spec.template.metadata";
            metadata::fields(path, metadata, scope, &mut findings);
            metadata::words(path, metadata, &mut findings);
            metadata::reported(path, metadata, scope, &mut findings);
            let (path, annotations) = (format!("{path}.annotations"), &metadata.annotations);
            findings.extend(annotations::check(&path, annotations));
            findings.extend(annotations::kept_back(&path, annotations, scope));
        }
    }
    let Some(spec) = template.and_then(|template| template.spec.as_ref()) else {
        findings.push(Finding::missing("spec.template.spec", "say which machine it is"));
        return findings;
    };
    findings.add(instance(spec, scope), |finding| {
        let path = format!("spec.template.{}", finding.path);
        Some(Finding { path, ..finding })
    });
    findings
}

/// None of these keeps an object from being run.
pub fn can_run(findings: &[Finding]) -> bool {
    !findings.iter().any(Finding::is_refusal)
}

/// The path is this one, or leads into it.
fn lies_in(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// What was found, within bounds.
#[derive(Debug, Default)]
struct Findings {
    kept: Vec<Finding>,
    /// How many there are: refusals, and warnings.
    counts: [usize; 2],
}

impl Findings {
    /// Keeps it, unless it was said before in the same words: several rules may read one amount.
    fn push(&mut self, finding: Finding) {
        if self.kept.contains(&finding) {
            return;
        }
        let count = &mut self.counts[usize::from(!finding.is_refusal())];
        *count += 1;
        if *count <= MOST_FINDINGS {
            self.kept.push(finding);
        }
    }

    fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }

    /// Those of a part, as far as they are wanted.
    fn add(&mut self, part: Self, wanted: impl Fn(Finding) -> Option<Finding>) {
        let cut = part.more();
        self.extend(part.kept.into_iter().filter_map(wanted));
        self.counts.iter_mut().zip(cut).for_each(|(count, cut)| *count += cut);
    }

    /// How many are not kept, of either severity.
    fn more(&self) -> [usize; 2] {
        self.counts.map(|count| count.saturating_sub(MOST_FINDINGS))
    }

    /// All that are kept, and how many more there are.
    fn told(mut self) -> Vec<Finding> {
        let [refused, warned] = self.more();
        if refused > 0 {
            let message = format!("{refused} more fields are refused, and not listed");
            self.kept.push(Finding::invalid("spec", message));
        }
        if warned > 0 {
            let message = format!("{warned} more fields have no effect, and are not listed");
            self.kept.push(Finding::no_effect("spec", message));
        }
        self.kept
    }

    fn refused_paths(&self) -> Vec<String> {
        self.kept.iter().filter(|it| it.is_refusal()).map(|it| it.path.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
