//! A document -> the VirtualMachineInstance that is run, or what is wrong with it.

use corten_resources::served::Scope;
use corten_resources::types::{VirtualMachine, VirtualMachineInstance};
use corten_resources::validate::{Finding, can_run, validate, validate_machine};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Document;
use super::documents::INSTANCE;

/// What came of a document.
#[derive(Debug)]
pub struct Examined {
    /// What is wrong with it, and what its user should know; paths are those of the document.
    pub findings: Vec<Finding>,
    /// What is to be run; none if something is wrong.
    pub vmi: Option<VirtualMachineInstance>,
}

/// Examines a VirtualMachineInstance or VirtualMachine.
pub fn examine(document: &Document) -> Examined {
    let mut examined = if document.kind == INSTANCE {
        examine_instance(&document.value)
    } else {
        examine_machine(&document.value)
    };
    if document.name().is_empty() && document.value["metadata"]["generateName"].is_null() {
        examined.findings.push(Finding::missing("metadata.name", "a name is needed"));
    }
    if !can_run(&examined.findings) {
        examined.vmi = None;
    }
    examined
}

fn examine_instance(value: &Value) -> Examined {
    match decode::<VirtualMachineInstance>(value) {
        Ok(vmi) => {
            let findings = validate(&vmi.spec, Scope::Standalone);
            Examined { findings, vmi: Some(vmi) }
        }
        Err(finding) => Examined { findings: vec![finding], vmi: None },
    }
}

/// The instance is what the VirtualMachine would make of its template.
fn examine_machine(value: &Value) -> Examined {
    let machine = match decode::<VirtualMachine>(value) {
        Ok(machine) => machine,
        Err(finding) => return Examined { findings: vec![finding], vmi: None },
    };
    let mut findings = validate_machine(&machine.spec, Scope::Standalone);
    let template = machine.spec.template.unwrap_or_default();
    let Some(spec) = template.spec else {
        if can_run(&findings) {
            let message = "a VirtualMachine is run by its template";
            findings.push(Finding::missing("spec.template.spec", message));
        }
        return Examined { findings, vmi: None };
    };
    let mut vmi: VirtualMachineInstance =
        VirtualMachineInstance { spec, ..VirtualMachineInstance::default() };
    if let Some(metadata) = template.metadata {
        vmi.metadata.labels = metadata.labels;
        vmi.metadata.annotations = metadata.annotations;
    }
    vmi.metadata.name = machine.metadata.name;
    vmi.metadata.namespace = machine.metadata.namespace;
    vmi.metadata.uid = machine.metadata.uid;
    Examined { findings, vmi: Some(vmi) }
}

/// The object as its types have it; what does not fit is told by its path.
fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, Finding> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        Finding::invalid(path, error.inner().to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::super::documents::parse;
    use super::*;

    const SPEC: &str = "{domain: {memory: {guest: 64Mi}, devices: {}, \
        firmware: {kernelBoot: {container: {image: i, kernelPath: /k}}}}}";

    fn examined(text: &str) -> Examined {
        examine(&parse("f", text).unwrap()[0])
    }

    fn refused(text: &str) -> Vec<String> {
        let examined = examined(text);
        assert!(examined.vmi.is_none());
        let refusals = examined.findings.into_iter().filter(Finding::is_refusal);
        refusals.map(|finding| finding.path).collect()
    }

    fn instance(spec: &str) -> String {
        format!(
            "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {{name: a}}\nspec: {spec}\n"
        )
    }

    fn machine(spec: &str) -> String {
        format!(
            "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {{name: m, namespace: ns}}\nspec: {spec}\n"
        )
    }

    #[test]
    fn virtual_machine_is_run_by_its_template() {
        let template = format!("{{metadata: {{labels: {{a: b}}}}, spec: {SPEC}}}");
        let text = machine(&format!("{{runStrategy: Always, template: {template}}}"));
        let vmi = examined(&text).vmi.unwrap();
        assert_eq!((vmi.metadata.name.as_str(), vmi.metadata.namespace.as_str()), ("m", "ns"));
        assert_eq!(vmi.metadata.labels["a"], "b");
        assert!(examined(&instance(SPEC)).vmi.is_some());
    }

    #[test]
    fn paths_are_those_of_the_document() {
        let bad = SPEC.replace("64Mi", "lots");
        assert_eq!(refused(&instance(&bad)), ["spec.domain.memory.guest"]);
        let text = machine(&format!("{{runStrategy: Always, template: {{spec: {bad}}}}}"));
        assert_eq!(refused(&text), ["spec.template.spec.domain.memory.guest"]);
        assert_eq!(refused(&machine("{runStrategy: Always}")), ["spec.template.spec"]);
    }

    #[test]
    fn value_of_another_type_is_told_by_its_path() {
        let text = instance("{domain: {devices: {disks: [{name: a}, {name: [b]}]}}}");
        assert_eq!(refused(&text), ["spec.domain.devices.disks[1].name"]);
        let text = instance("{domain: {cpu: {cores: two}}}");
        assert_eq!(refused(&text), ["spec.domain.cpu.cores"]);
    }

    #[test]
    fn name_is_needed() {
        let text = instance(SPEC).replace("name: a", "labels: {}");
        assert_eq!(refused(&text), ["metadata.name"]);
    }
}
