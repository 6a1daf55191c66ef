//! The kinds of objects, for whoever handles them alike.

use crate::types::{
    KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
    VirtualMachineInstanceReplicaSet,
};

/// A kind of object of `kubevirt.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A VirtualMachineInstance.
    Instance,
    /// A VirtualMachine.
    Machine,
    /// A VirtualMachineInstanceMigration.
    Migration,
    /// A VirtualMachineInstanceReplicaSet.
    ReplicaSet,
    /// A KubeVirt object.
    KubeVirt,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Instance, Self::Machine, Self::Migration, Self::ReplicaSet, Self::KubeVirt];

    /// As objects name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instance => VirtualMachineInstance::KIND,
            Self::Machine => VirtualMachine::KIND,
            Self::Migration => VirtualMachineInstanceMigration::KIND,
            Self::ReplicaSet => VirtualMachineInstanceReplicaSet::KIND,
            Self::KubeVirt => KubeVirt::KIND,
        }
    }

    /// As paths and roles name it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Instance => VirtualMachineInstance::PLURAL,
            Self::Machine => VirtualMachine::PLURAL,
            Self::Migration => VirtualMachineInstanceMigration::PLURAL,
            Self::ReplicaSet => VirtualMachineInstanceReplicaSet::PLURAL,
            Self::KubeVirt => KubeVirt::PLURAL,
        }
    }

    /// The kind that objects name so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind that paths name so.
    pub fn of_plural(plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.plural() == plural)
    }

    /// Its objects hold a template of a VirtualMachineInstance, in `spec.template`.
    pub fn has_template(self) -> bool {
        matches!(self, Self::Machine | Self::ReplicaSet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_either_name() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
            assert_eq!(Kind::of_plural(kind.plural()), Some(kind));
        }
        assert_eq!(Kind::named("Pod"), None);
    }
}
