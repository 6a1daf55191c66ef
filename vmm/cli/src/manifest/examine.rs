//! A document -> the VirtualMachineInstance that is run, or what is wrong with it.

use std::time::{SystemTime, UNIX_EPOCH};

use corten_resources::Kind;
use corten_resources::names::generated_name;
use corten_resources::served::Scope;
use corten_resources::types::{VirtualMachine, VirtualMachineInstance};
use corten_resources::validate::{Finding, admit, can_run, decode};

use super::Document;
use super::documents::INSTANCE;
use crate::oci::ImageReference;

/// What came of a document.
#[derive(Debug)]
pub struct Examined {
    /// What is wrong with it, and what its user should know; paths are those of the document.
    pub findings: Vec<Finding>,
    /// What is to be run; none if something is wrong.
    pub vmi: Option<VirtualMachineInstance>,
}

/// Examines a VirtualMachineInstance or VirtualMachine. What is told here is all that a run could say of the object alone.
pub fn examine(document: &Document) -> Examined {
    let kind = if document.kind == INSTANCE { Kind::Instance } else { Kind::Machine };
    let mut findings = admit(kind, None, &document.value, Scope::Standalone);
    let mut vmi = match kind {
        Kind::Instance => decode(&document.value).object,
        _ => decode(&document.value).object.and_then(made_of),
    };
    if let Some(vmi) = &vmi {
        findings.extend(image_names(vmi).into_iter().map(|finding| document.placed(finding)));
    }
    if !can_run(&findings) {
        return Examined { findings, vmi: None };
    }
    if let Some(vmi) = &mut vmi {
        name(vmi, document);
    }
    Examined { findings, vmi }
}

/// Refuses what names no image. In clusters kubelet does.
fn image_names(vmi: &VirtualMachineInstance) -> Vec<Finding> {
    let kernel = vmi.spec.kernel_container().map(|container| {
        ("spec.domain.firmware.kernelBoot.container.image".to_owned(), &container.image)
    });
    let disks = vmi.spec.volumes.iter().enumerate().filter_map(|(index, volume)| {
        let disk = volume.container_disk.as_ref()?;
        Some((format!("spec.volumes[{index}].containerDisk.image"), &disk.image))
    });
    // That one is missing was told.
    let named = kernel.into_iter().chain(disks).filter(|(_, name)| !name.is_empty());
    let wrong = named.filter_map(|(path, name)| {
        let error = name.parse::<ImageReference>().err()?;
        Some(Finding::invalid(path, error.to_string()))
    });
    wrong.collect()
}

/// The instance is what the VirtualMachine would make of its template.
fn made_of(machine: VirtualMachine) -> Option<VirtualMachineInstance> {
    let template = machine.spec.template?;
    let mut vmi: VirtualMachineInstance =
        VirtualMachineInstance { spec: template.spec?, ..VirtualMachineInstance::default() };
    if let Some(metadata) = template.metadata {
        vmi.metadata.labels = metadata.labels;
        vmi.metadata.annotations = metadata.annotations;
    }
    vmi.metadata.name = machine.metadata.name;
    vmi.metadata.namespace = machine.metadata.namespace;
    vmi.metadata.uid = machine.metadata.uid;
    Some(vmi)
}

/// An object that says only how its name begins gets a new one each time, as in a cluster.
fn name(vmi: &mut VirtualMachineInstance, document: &Document) {
    let beginning = document.value["metadata"]["generateName"].as_str().unwrap_or_default();
    if vmi.metadata.name.is_empty() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = format!("{}/{}", std::process::id(), now.as_nanos());
        vmi.metadata.name = generated_name(beginning, &seed);
    }
}

#[cfg(test)]
mod tests {
    use corten_launcher::volumes::iso9660;
    use corten_net::{Ipv4Cidr, Ipv6Cidr};
    use corten_resources::machine::limits;

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
        for name in ["../../etc", "Not A Name", &"a".repeat(64), "a/b", "-a"] {
            let text = instance(SPEC).replace("name: a", &format!("name: {name}"));
            assert_eq!(refused(&text), ["metadata.name"], "{name}");
        }
    }

    #[test]
    fn name_is_made_of_its_beginning() {
        let text = instance(SPEC).replace("name: a", "generateName: web-");
        let vmi = examined(&text).vmi.unwrap();
        assert!(vmi.metadata.name.starts_with("web-"), "{}", vmi.metadata.name);
        let text = instance(SPEC).replace("name: a", "generateName: ../web");
        assert_eq!(refused(&text), ["metadata.generateName"]);
    }

    #[test]
    fn what_a_run_would_refuse_is_refused_here() {
        let annotation = instance(SPEC)
            .replace("name: a", "name: a, annotations: {kubevirt.io/ignitiondata: '{}'}");
        assert_eq!(refused(&annotation), ["metadata.annotations[kubevirt.io/ignitiondata]"]);
        assert_eq!(refused(&instance(&SPEC.replace("64Mi", "15Ei"))), ["spec.domain.memory.guest"]);
        for capacity in ["15Ei", "1", "0"] {
            let volume = format!("volumes: [{{name: d, emptyDisk: {{capacity: {capacity}}}}}]");
            let text = instance(&SPEC.replacen('{', &format!("{{{volume}, "), 1));
            assert_eq!(refused(&text), ["spec.volumes[0].emptyDisk.capacity"], "{capacity}");
        }
    }

    #[test]
    fn image_that_has_no_name_of_one_is_refused_by_its_path() {
        for image in ["'!!'", "x y", "a@sha256:zz"] {
            let kernel = SPEC.replace("image: i", &format!("image: {image}"));
            let path = "spec.domain.firmware.kernelBoot.container.image";
            assert_eq!(refused(&instance(&kernel)), [path], "{image}");
            let volume = format!("volumes: [{{name: d, containerDisk: {{image: {image}}}}}]");
            let disk = SPEC.replacen('{', &format!("{{{volume}, "), 1);
            assert_eq!(refused(&instance(&disk)), ["spec.volumes[0].containerDisk.image"]);
            let text = machine(&format!("{{runStrategy: Always, template: {{spec: {disk}}}}}"));
            let path = "spec.template.spec.volumes[0].containerDisk.image";
            assert_eq!(refused(&text), [path]);
        }
    }

    #[test]
    fn limits_are_those_of_what_is_made() {
        assert_eq!(limits::LABEL_BYTES, iso9660::MAX_LABEL);
        assert_eq!(limits::PATH_LEVELS, iso9660::MAX_DEPTH);
        assert_eq!(limits::FILE_NAME_BYTES, iso9660::MAX_NAME);
        let networks = ["10.0.0.0/8", "10.0.0.0/7", "0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/8"];
        for network in networks.into_iter().chain(["223.0.0.0/30", "10.0.0.0/31", "x"]) {
            let is_one = network.parse::<Ipv4Cidr>().is_ok();
            assert_eq!(takes("vmNetworkCIDR", network), is_one, "{network}");
        }
        let networks =
            ["fd10::/8", "fd10::/7", "fe80::/64", "::/64", "2001:db8::/126", "2001::/127"];
        for network in networks {
            let is_one = network.parse::<Ipv6Cidr>().is_ok();
            assert_eq!(takes("vmIPv6NetworkCIDR", network), is_one, "{network}");
        }
    }

    /// A guest can have this network.
    fn takes(field: &str, network: &str) -> bool {
        let more = format!("networks: [{{name: net, pod: {{{field}: '{network}'}}}}]");
        let spec = SPEC
            .replacen('{', &format!("{{{more}, "), 1)
            .replace("devices: {}", "devices: {interfaces: [{name: net, masquerade: {}}]}");
        examined(&instance(&spec)).vmi.is_some()
    }

    #[test]
    fn fields_that_no_object_has_are_refused_by_their_path() {
        let text = instance(SPEC).replace("name: a", "name: a, label: {}") + "specc: {}\n";
        assert_eq!(refused(&text), ["specc", "metadata.label"]);
        let template = format!("{{metdata: {{}}, specc: 1, spec: {SPEC}}}");
        let text = machine(&format!("{{runStrategy: Always, template: {template}}}"));
        assert_eq!(refused(&text), ["spec.template.metdata", "spec.template.specc"]);
        for nothing in ["{}", "[]", "''", "null"] {
            let text = instance(&SPEC.replacen('{', &format!("{{colour: {nothing}, "), 1));
            assert_eq!(refused(&text), ["spec.colour"], "{nothing}");
        }
    }
}
