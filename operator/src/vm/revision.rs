//! A ControllerRevision for each start: the specification that the instance was made from, as KubeVirt keeps it. Pure.

use crate::control::owner;
use corten_resources::cluster::VirtualMachine;
use corten_resources::names::CREATED_BY_LABEL;
use corten_resources::types::{VirtualMachineInstanceSpec, VirtualMachineSpec};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use serde_json::json;

/// Name of the revision of the present generation.
pub(super) fn revision_name(vm: &VirtualMachine) -> String {
    let generation = vm.metadata.generation.unwrap_or_default();
    format!("revision-start-vm-{}-{generation}", vm.uid().unwrap_or_default())
}

/// Labels that select the revisions of a VirtualMachine.
pub(super) fn selector(vm: &VirtualMachine) -> String {
    format!("{CREATED_BY_LABEL}={}", vm.uid().unwrap_or_default())
}

/// The revision of the present generation.
pub(super) fn revision_of(vm: &VirtualMachine) -> ControllerRevision {
    let label = (CREATED_BY_LABEL.to_owned(), vm.uid().unwrap_or_default());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(revision_name(vm)),
            namespace: vm.namespace(),
            labels: Some([label].into()),
            owner_references: Some(vec![owner::reference(vm)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!({ "spec": vm.spec }))),
        revision: vm.metadata.generation.unwrap_or_default(),
    }
}

/// The template's specification that a revision holds; none if it is not one of ours.
pub(super) fn template_of(revision: &ControllerRevision) -> Option<VirtualMachineInstanceSpec> {
    let spec = revision.data.as_ref()?.0.get("spec")?.clone();
    let spec: VirtualMachineSpec = serde_json::from_value(spec).ok()?;
    spec.template?.spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::testing::{VM_UID, vm};

    #[test]
    fn a_revision_holds_the_template_and_is_named_by_uid_and_generation() {
        let vm = vm("Always", |_| ());
        let revision = revision_of(&vm);
        assert_eq!(revision.name_any(), format!("revision-start-vm-{VM_UID}-3"));
        assert_eq!(revision.revision, 3);
        assert_eq!(template_of(&revision), vm.spec.template.unwrap().spec);
    }

    #[test]
    fn a_revision_of_somebody_else_says_nothing() {
        assert_eq!(template_of(&ControllerRevision::default()), None);
        let odd = RawExtension(json!({ "spec": { "template": 3 } }));
        assert_eq!(
            template_of(&ControllerRevision { data: Some(odd), ..Default::default() }),
            None
        );
    }
}
