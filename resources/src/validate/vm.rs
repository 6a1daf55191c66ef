//! What a VirtualMachine has besides its template.

use super::Findings;
use super::text::{check_first, check_given};
use crate::finding::Finding;
use crate::served::{STARTED_BY_HAND, Scope};
use crate::types::{DataVolumeTemplate, VirtualMachineSpec};
use std::collections::BTreeSet;

/// When a VirtualMachine runs.
const RUN_STRATEGIES: [&str; 6] =
    ["Always", "Halted", "Manual", "Once", "RerunOnFailure", "WaitAsReceiver"];

pub(super) fn check(spec: &VirtualMachineSpec, scope: Scope, findings: &mut Findings) {
    const STRATEGY: &str = "spec.runStrategy";
    let strategy = spec.run_strategy.as_deref().filter(|text| !text.is_empty());
    match (spec.running, strategy) {
        (Some(_), Some(_)) => {
            findings
                .push(Finding::invalid(STRATEGY, "it is either running or runStrategy, not both"));
        }
        (None, None) => findings.push(Finding::missing(STRATEGY, "say when it runs: Always")),
        (_, Some(other)) if !RUN_STRATEGIES.contains(&other) => {
            let message = format!("{other:?} is none of {}", RUN_STRATEGIES.join(", "));
            findings.push(Finding::invalid(STRATEGY, message));
        }
        _ => {}
    }
    // What is switched off asks for nothing elsewhere; here it asks for a machine that does not run.
    if scope == Scope::Standalone && spec.running == Some(false) {
        findings.push(Finding::no_effect("spec.running", STARTED_BY_HAND));
    }
    let mut names = BTreeSet::new();
    for (index, template) in spec.data_volume_templates.iter().enumerate() {
        let path = format!("spec.dataVolumeTemplates[{index}]");
        let name = template.metadata.as_ref().map(|metadata| metadata.name.as_str());
        let name_path = format!("{path}.metadata.name");
        check_given(&name_path, name, "it needs a name", findings);
        let Some(name) = name.filter(|name| !name.is_empty() && scope == Scope::Cluster) else {
            continue;
        };
        let twice = || Finding::invalid(&name_path, format!("two of them are called {name:?}"));
        check_first(&mut names, name, twice, findings);
        if !is_used(spec, name) {
            let message = format!("no volume of the template has the DataVolume {name:?}");
            findings.push(Finding::invalid(&name_path, message));
        }
        data_volume(&format!("{path}.spec"), template, findings);
    }
}

/// A volume of the machine is made of it. A claim of that name is what comes of it.
fn is_used(spec: &VirtualMachineSpec, name: &str) -> bool {
    let machine = spec.template.as_ref().and_then(|template| template.spec.as_ref());
    machine.is_some_and(|machine| {
        machine.volumes.iter().any(|volume| {
            let by_name = volume.data_volume.as_ref().is_some_and(|it| it.name == name);
            let claim = volume.persistent_volume_claim.as_ref();
            by_name || claim.is_some_and(|it| it.claim_name == name)
        })
    })
}

fn data_volume(path: &str, template: &DataVolumeTemplate, findings: &mut Findings) {
    let spec = &template.spec;
    if spec.pvc.is_some() == spec.storage.is_some() {
        findings.push(Finding::invalid(path, "it has either storage or pvc: say how large it is"));
    }
    if spec.source.is_some() && spec.source_ref.is_some() {
        findings.push(Finding::invalid(path, "it has either source or sourceRef, not both"));
    }
}
