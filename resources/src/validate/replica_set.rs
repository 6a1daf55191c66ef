//! What a VirtualMachineInstanceReplicaSet has besides its template.

use super::Findings;
use crate::finding::Finding;
use crate::types::{LabelSelector, VirtualMachineInstanceReplicaSetSpec};
use std::collections::BTreeMap;

const SELECTOR: &str = "spec.selector";

pub(super) fn check(spec: &VirtualMachineInstanceReplicaSetSpec, findings: &mut Findings) {
    if let Some(count) = spec.replicas.filter(|count| *count < 0) {
        findings.push(Finding::invalid("spec.replicas", format!("{count} is less than 0")));
    }
    let Some(selector) = spec.selector.as_ref().filter(|selector| !selector.is_empty()) else {
        let message = "say by which labels it knows its VirtualMachineInstances";
        findings.push(Finding::missing(SELECTOR, message));
        return;
    };
    let wrong = expressions(selector);
    if !wrong.is_empty() {
        findings.extend(wrong);
        return;
    }
    let none = BTreeMap::new();
    let metadata = spec.template.as_ref().and_then(|template| template.metadata.as_ref());
    if !selector.matches(metadata.map_or(&none, |metadata| &metadata.labels)) {
        let message = "the selector does not match these labels: it would make ever more of them";
        findings.push(Finding::invalid("spec.template.metadata.labels", message));
    }
}

/// Expressions that nothing could match, or that cannot be read.
fn expressions(selector: &LabelSelector) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, expression) in selector.match_expressions.iter().enumerate() {
        let path = format!("{SELECTOR}.matchExpressions[{index}]");
        if expression.key.is_empty() {
            found.push(Finding::missing(format!("{path}.key"), "name the label"));
        }
        let values = expression.values.len();
        match expression.operator.as_str() {
            "In" | "NotIn" if values == 0 => {
                found.push(Finding::missing(format!("{path}.values"), "name a value at least"));
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let message = format!("{} takes no values", expression.operator);
                found.push(Finding::invalid(format!("{path}.values"), message));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let message = format!("{other:?} is none of In, NotIn, Exists and DoesNotExist");
                found.push(Finding::invalid(format!("{path}.operator"), message));
            }
        }
    }
    found
}
