//! Which field of the user's document something is about that is found out only once the VM is started.

use corten_launcher::log::chain;
use corten_link::BootFault;
use corten_resources::types::VirtualMachineInstance;

use super::prepare::PrepareError;

const KERNEL: &str = "spec.domain.firmware.kernelBoot.container.kernelPath";
const INITRD: &str = "spec.domain.firmware.kernelBoot.container.initrdPath";
const ARGUMENTS: &str = "spec.domain.firmware.kernelBoot.kernelArgs";

/// Where the fields of the instance stand in the document that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// In the template of a VirtualMachine.
    pub(super) in_template: bool,
}

impl Fields {
    /// What is told of the instance, by the path in the document. A text about a field begins with its path.
    pub(super) fn placed(self, told: String) -> String {
        match told.starts_with("spec.") && self.in_template {
            true => format!("spec.template.{told}"),
            false => told,
        }
    }

    /// Why a VM lacks something.
    pub(super) fn lacking(self, error: &PrepareError) -> String {
        match error {
            // The one error that can be about several fields.
            PrepareError::Plan(error) => {
                let findings = error.findings().iter();
                let texts = findings.map(|finding| self.placed(finding.to_string()));
                texts.collect::<Vec<_>>().join("; ")
            }
            error => self.placed(chain(error)),
        }
    }

    /// Why the VM process did not start the guest.
    pub(super) fn faulty(
        self,
        vmi: &VirtualMachineInstance,
        fault: Option<BootFault>,
        detail: String,
    ) -> String {
        match fault.and_then(|fault| field(vmi, fault)) {
            Some(field) => self.placed(format!("{field}: {detail}")),
            None => detail,
        }
    }
}

/// The field that is to be changed. What is booted from a disk is no field's.
fn field(vmi: &VirtualMachineInstance, fault: BootFault) -> Option<&'static str> {
    let container = vmi.spec.kernel_container();
    match fault {
        BootFault::Kernel => container.map(|_| KERNEL),
        BootFault::Initrd => container.map(|_| INITRD),
        BootFault::CommandLine => container.map(|_| ARGUMENTS),
        BootFault::Memory => Some(memory(vmi)),
    }
}

/// The field that says how much memory the guest has.
fn memory(vmi: &VirtualMachineInstance) -> &'static str {
    let domain = &vmi.spec.domain;
    let resources = domain.resources.as_ref();
    let is_guest = domain.memory.as_ref().is_some_and(|memory| memory.guest.is_some());
    let is_requested = resources.is_some_and(|all| all.requests.contains_key("memory"));
    let is_limit = resources.is_some_and(|all| all.limits.contains_key("memory"));
    match (is_guest, is_requested, is_limit) {
        (false, true, _) => "spec.domain.resources.requests.memory",
        (false, false, true) => "spec.domain.resources.limits.memory",
        _ => "spec.domain.memory.guest",
    }
}

#[cfg(test)]
mod tests {
    use corten_launcher::machine::PlanError;
    use corten_resources::validate::Finding;
    use serde_json::{Value, json};

    use super::*;

    const INSTANCE: Fields = Fields { in_template: false };
    const TEMPLATE: Fields = Fields { in_template: true };

    fn with(domain: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({"spec": {"domain": domain}})).unwrap()
    }

    #[test]
    fn fields_of_a_template_are_told_as_they_stand_in_the_document() {
        let told = "spec.volumes[0].configMap: no";
        assert_eq!(INSTANCE.placed(told.into()), told);
        assert_eq!(TEMPLATE.placed(told.into()), "spec.template.spec.volumes[0].configMap: no");
        assert_eq!(TEMPLATE.placed("no spec.volumes".into()), "no spec.volumes");
        let finding = Finding::invalid("spec.domain", "no");
        let error = PrepareError::Plan(PlanError::from(finding));
        assert_eq!(TEMPLATE.lacking(&error), "spec.template.spec.domain: no");
    }

    #[test]
    fn fault_of_a_boot_is_told_by_its_field() {
        let firmware = json!({"kernelBoot": {"container": {"image": "i", "kernelPath": "/k"}}});
        let vmi = with(&json!({"memory": {"guest": "1Mi"}, "firmware": firmware}));
        let told = |fault| INSTANCE.faulty(&vmi, fault, "no".into());
        assert_eq!(told(Some(BootFault::Kernel)), format!("{KERNEL}: no"));
        assert_eq!(told(Some(BootFault::Initrd)), format!("{INITRD}: no"));
        assert_eq!(told(Some(BootFault::CommandLine)), format!("{ARGUMENTS}: no"));
        assert_eq!(told(Some(BootFault::Memory)), "spec.domain.memory.guest: no");
        assert_eq!(told(None), "no");
        let expected = "spec.template.spec.domain.memory.guest: no";
        assert_eq!(TEMPLATE.faulty(&vmi, Some(BootFault::Memory), "no".into()), expected);
    }

    #[test]
    fn fault_without_a_field_is_told_as_it_is() {
        let vmi = with(&json!({"resources": {"requests": {"memory": "1Mi"}}}));
        let told = |fault| INSTANCE.faulty(&vmi, Some(fault), "no".into());
        assert_eq!(told(BootFault::Kernel), "no");
        assert_eq!(told(BootFault::Memory), "spec.domain.resources.requests.memory: no");
    }
}
