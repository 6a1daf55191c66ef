//! What a VirtualMachine has besides its template.

use super::Findings;
use super::text::check_given;
use crate::finding::Finding;
use crate::types::VirtualMachineSpec;

/// When a VirtualMachine runs.
const RUN_STRATEGIES: [&str; 6] =
    ["Always", "Halted", "Manual", "Once", "RerunOnFailure", "WaitAsReceiver"];

pub(super) fn check(spec: &VirtualMachineSpec, findings: &mut Findings) {
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
    if spec.template.as_ref().is_none_or(|template| template.spec.is_none()) {
        findings.push(Finding::missing("spec.template.spec", "say which machine it is"));
    }
    for (index, template) in spec.data_volume_templates.iter().enumerate() {
        let path = format!("spec.dataVolumeTemplates[{index}].metadata.name");
        let name = template.metadata.as_ref().map(|metadata| metadata.name.as_str());
        check_given(&path, name, "it needs a name", findings);
    }
}
