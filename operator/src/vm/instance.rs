//! A VirtualMachine as a VirtualMachineInstance. Pure.

use super::revision::revision_name;
use crate::control::owner;
use corten_resources::cluster::{VirtualMachine, VirtualMachineInstance};
use corten_resources::defaults::{Identity, with_defaults};
use corten_resources::names::{VM_GENERATION_ANNOTATION, VM_NAME_LABEL, label_value};
use corten_resources::served::Scope;
use corten_resources::types::VirtualMachineInstanceSpec;
use kube::ResourceExt;

/// The instance that is made from the template now.
pub(super) fn instance_of(vm: &VirtualMachine, paused: bool) -> VirtualMachineInstance {
    let mut vmi = VirtualMachineInstance::default();
    let template = vm.spec.template.clone().unwrap_or_default();
    let metadata = template.metadata.unwrap_or_default();
    vmi.metadata.name = vm.metadata.name.clone();
    vmi.metadata.namespace = vm.metadata.namespace.clone();
    vmi.metadata.owner_references = Some(vec![owner::reference(vm)]);
    let (mut labels, mut annotations) = metadata.handed_on();
    labels.insert(VM_NAME_LABEL.to_owned(), label_value(&vm.name_any()));
    vmi.metadata.labels = Some(labels);
    let generation = vm.metadata.generation.unwrap_or_default().to_string();
    annotations.insert(VM_GENERATION_ANNOTATION.to_owned(), generation);
    vmi.metadata.annotations = Some(annotations);
    vmi.spec = template.spec.unwrap_or_default();
    keep_identity(&mut vmi.spec, vm);
    if paused {
        vmi.spec.start_strategy = Some("Paused".to_owned());
    }
    vmi.status.virtual_machine_revision_name = Some(revision_name(vm));
    vmi
}

/// What a guest takes for its own and must find again after the next start: the machine's UUID, which is the uid of the
/// VirtualMachine unless the template says otherwise, and the addresses of its interfaces. All else is left to admission,
/// which knows the cluster's defaults.
fn keep_identity(spec: &mut VirtualMachineInstanceSpec, vm: &VirtualMachine) {
    let (namespace, name) = (vm.namespace().unwrap_or_default(), vm.name_any());
    let uid = vm.uid().unwrap_or_default();
    let mut filled = spec.clone();
    let identity = Identity { namespace: &namespace, name: &name, uid: &uid };
    with_defaults(&mut filled, identity, Scope::Cluster);
    let uuid = filled.domain.firmware.and_then(|firmware| firmware.uuid);
    spec.domain.firmware.get_or_insert_default().uuid = uuid;
    spec.domain.devices.interfaces = filled.domain.devices.interfaces;
    spec.networks = filled.networks;
}

/// The VirtualMachine's generation that an instance was made from.
pub(super) fn generation_of(vmi: &VirtualMachineInstance) -> Option<i64> {
    vmi.annotations().get(VM_GENERATION_ANNOTATION)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::testing::{VM_UID, vm};
    use serde_json::json;

    #[test]
    fn it_has_name_labels_and_annotations_and_is_the_machines() {
        let vmi = instance_of(&vm("Always", |_| ()), false);
        assert_eq!(
            (vmi.name_any().as_str(), vmi.namespace().as_deref()),
            ("first", Some("guests"))
        );
        assert_eq!(vmi.labels()["app"], "web");
        assert_eq!(vmi.labels()[VM_NAME_LABEL], "first");
        assert_eq!(vmi.annotations()["note"], "a");
        assert_eq!(generation_of(&vmi), Some(3));
        let owner = &vmi.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("VirtualMachine", VM_UID));
        assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
        assert_eq!(owner.api_version, "kubevirt.io/v1");
        assert_eq!(vmi.spec.start_strategy, None);
    }

    #[test]
    fn what_only_the_operator_says_of_an_instance_is_not_taken_from_the_template() {
        let forged = vm("Always", |vm| {
            let metadata = &mut vm["spec"]["template"]["metadata"];
            metadata["labels"] = json!({ "app": "web", "kubevirt.io/nodeName": "elsewhere" });
            metadata["annotations"] = json!({
                "note": "a",
                "corten.kubevirt.io/launch-attempt": "7",
                "corten.kubevirt.io/node-boot-id": "earlier",
            });
        });
        let vmi = instance_of(&forged, false);
        assert_eq!(vmi.labels().keys().collect::<Vec<_>>(), ["app", VM_NAME_LABEL]);
        assert_eq!(
            vmi.annotations().keys().collect::<Vec<_>>(),
            [VM_GENERATION_ANNOTATION, "note"]
        );
    }

    #[test]
    fn what_the_guest_takes_for_its_own_is_the_same_at_every_start() {
        let vm = vm("Always", |vm| {
            vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"] =
                json!([{ "name": "n", "masquerade": {} }]);
            vm["spec"]["template"]["spec"]["networks"] = json!([{ "name": "n", "pod": {} }]);
        });
        let vmi = instance_of(&vm, false);
        assert_eq!(vmi.spec.domain.firmware.as_ref().unwrap().uuid.as_deref(), Some(VM_UID));
        let address = vmi.spec.domain.devices.interfaces[0].mac_address.clone().unwrap();
        assert!(address.starts_with("02:"), "{address}");
        assert_eq!(instance_of(&vm, false), vmi);
        assert!(vmi.spec.domain.cpu.is_none(), "the rest is left to admission");
    }

    #[test]
    fn what_the_template_says_stays() {
        let uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223";
        let vm = vm("Always", |vm| {
            vm["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"] = json!(uuid);
            vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"] =
                json!([{ "name": "n", "masquerade": {}, "macAddress": "02:00:00:00:00:07" }]);
            vm["spec"]["template"]["spec"]["networks"] = json!([{ "name": "n", "pod": {} }]);
        });
        let spec = instance_of(&vm, false).spec;
        assert_eq!(spec.domain.firmware.unwrap().uuid.as_deref(), Some(uuid));
        let interfaces = spec.domain.devices.interfaces;
        assert_eq!(interfaces.len(), 1);
        assert_eq!(interfaces[0].mac_address.as_deref(), Some("02:00:00:00:00:07"));
    }

    #[test]
    fn a_paused_start_waits_for_its_processors_to_be_told() {
        let vmi = instance_of(&vm("Manual", |_| ()), true);
        assert_eq!(vmi.spec.start_strategy.as_deref(), Some("Paused"));
    }
}
