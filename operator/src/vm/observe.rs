//! What there is of a VirtualMachine. Reads only.

use super::instance::generation_of;
use super::revision::template_of;
use super::strategy::is_going;
use super::volumes::{Importer, Volumes};
use crate::control::{Guarded, ReconcileError, Watched, name, owner};
use corten_resources::cluster::{VirtualMachine, VirtualMachineInstance};
use corten_resources::names::{VM_NAME_LABEL, label_value};
use corten_resources::types::VirtualMachineInstanceSpec;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{Api, Client, ResourceExt};
use std::sync::Arc;

/// What there is of a VirtualMachine.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The VirtualMachineInstance of its name.
    pub instance: Instance,
    /// Its DataVolumes.
    pub volumes: Volumes,
    /// What the instance was made from, if the object has been changed since.
    pub made_from: Option<Box<VirtualMachineInstanceSpec>>,
}

/// The VirtualMachineInstance that has a VirtualMachine's name.
#[derive(Clone, Debug, Default)]
pub enum Instance {
    /// There is none.
    #[default]
    Absent,
    /// It is the VirtualMachine's.
    Own(Arc<VirtualMachineInstance>),
    /// It was one's of this name, which was deleted and has left it.
    Orphan(Arc<VirtualMachineInstance>),
    /// It is somebody else's, as this says.
    Foreign(String),
}

impl Instance {
    /// Whose it is.
    pub(super) fn of(vm: &VirtualMachine, found: Option<&Guarded<VirtualMachineInstance>>) -> Self {
        let Some(found) = found else { return Self::Absent };
        let vmi = match &found.0 {
            Ok(vmi) => vmi,
            Err(error) => return Self::Foreign(format!("it cannot be read: {error}")),
        };
        if owner::is_of(vmi, vm) {
            return Self::Own(Arc::new(vmi.clone()));
        }
        let was = vmi.labels().get(VM_NAME_LABEL);
        match owner::controller(vmi) {
            Some(owner) => Self::Foreign(format!("it belongs to {} {}", owner.kind, owner.name)),
            None if was.is_some_and(|was| *was == label_value(&vm.name_any())) => {
                Self::Orphan(Arc::new(vmi.clone()))
            }
            None => Self::Foreign("it belongs to no VirtualMachine".to_owned()),
        }
    }

    /// It, if it is the VirtualMachine's or is to be.
    pub(super) fn get(&self) -> Option<&VirtualMachineInstance> {
        match self {
            Self::Own(vmi) | Self::Orphan(vmi) => Some(vmi),
            Self::Absent | Self::Foreign(_) => None,
        }
    }
}

/// Looks everything up.
pub(super) async fn observe(
    vm: &VirtualMachine,
    vmis: &Watched<VirtualMachineInstance>,
    importer: &Importer,
    client: &Client,
) -> Result<Observed, ReconcileError> {
    let namespace = vm.namespace().unwrap_or_default();
    let found = vmis.get(&namespace, &vm.name_any());
    let instance = Instance::of(vm, found.as_deref());
    let failed = |what| move |source| ReconcileError::Observe { what, object: name(vm), source };
    let volumes = match vm.metadata.deletion_timestamp {
        Some(_) => Volumes::None,
        None => importer.look(vm, client).await.map_err(failed("DataVolumes"))?,
    };
    let mut made_from = None;
    if let Some(revision) = revision_to_read(vm, &instance) {
        let api: Api<ControllerRevision> = Api::namespaced(client.clone(), &namespace);
        let found = api.get_opt(revision).await.map_err(failed("the ControllerRevision"))?;
        made_from = found.as_ref().and_then(template_of).map(Box::new);
    }
    Ok(Observed { instance, volumes, made_from })
}

/// Only an instance that runs on what may be outdated is compared; and one that another VirtualMachine has left has none.
fn revision_to_read<'a>(vm: &VirtualMachine, instance: &'a Instance) -> Option<&'a str> {
    let Instance::Own(vmi) = instance else { return None };
    let name = vmi.status.virtual_machine_revision_name.as_deref()?;
    let outdated = generation_of(vmi) != vm.metadata.generation;
    let over = vmi.status.phase.is_final() || is_going(vmi);
    (outdated && !over && vm.metadata.deletion_timestamp.is_none()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::testing::{ended, going, running, vm};
    use corten_resources::types::Phase;
    use kube::core::DeserializeGuard;
    use serde_json::{Value, json};

    fn found(change: impl FnOnce(&mut Value)) -> Instance {
        let vmi = running(change);
        Instance::of(&vm("Always", |_| ()), Some(&DeserializeGuard(Ok(vmi))))
    }

    #[test]
    fn one_with_the_machines_uid_as_its_controller_is_its_own() {
        assert!(matches!(found(|_| ()), Instance::Own(_)));
    }

    #[test]
    fn one_that_a_machine_of_the_name_has_left_is_an_orphan() {
        let left = found(|vmi| vmi["metadata"]["ownerReferences"] = json!([]));
        assert!(matches!(left, Instance::Orphan(_)), "{left:?}");
    }

    #[test]
    fn one_of_somebody_else_is_foreign_and_says_whose() {
        let bare = found(|vmi| {
            vmi["metadata"]["ownerReferences"] = json!([]);
            vmi["metadata"]["labels"] = json!({});
        });
        assert!(matches!(bare, Instance::Foreign(why) if why.contains("no VirtualMachine")));
        let owned = found(|vmi| {
            vmi["metadata"]["ownerReferences"][0]["kind"] =
                json!("VirtualMachineInstanceReplicaSet");
        });
        assert!(matches!(owned, Instance::Foreign(why) if why.contains("ReplicaSet first")));
        let earlier = found(|vmi| vmi["metadata"]["ownerReferences"][0]["uid"] = json!("earlier"));
        assert!(matches!(earlier, Instance::Foreign(_)));
    }

    #[test]
    fn a_revision_is_read_only_of_an_instance_that_runs_on_something_older() {
        let newer = vm("Always", |vm| vm["metadata"]["generation"] = json!(4));
        let own = |vmi| Instance::Own(Arc::new(vmi));
        assert!(revision_to_read(&newer, &own(running(|_| ()))).is_some());
        assert!(revision_to_read(&vm("Always", |_| ()), &own(running(|_| ()))).is_none());
        assert!(revision_to_read(&newer, &own(ended(Phase::Failed, |_| ()))).is_none());
        assert!(revision_to_read(&newer, &own(going(&running(|_| ())))).is_none());
        assert!(revision_to_read(&newer, &Instance::Absent).is_none());
    }
}
