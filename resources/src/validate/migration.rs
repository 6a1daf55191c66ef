//! A VirtualMachineInstanceMigration.

use super::Findings;
use super::text::{check_given, is_subdomain};
use crate::finding::Finding;
use crate::types::VirtualMachineInstanceMigrationSpec;

pub(super) fn check(spec: &VirtualMachineInstanceMigrationSpec, findings: &mut Findings) {
    const PATH: &str = "spec.vmiName";
    let name = spec.vmi_name.as_deref().filter(|name| !name.is_empty());
    check_given(PATH, name, "name the VirtualMachineInstance that is to move", findings);
    if let Some(name) = name.filter(|name| !is_subdomain(name)) {
        findings.push(Finding::invalid(PATH, format!("{name:?} is no name of an object")));
    }
}
