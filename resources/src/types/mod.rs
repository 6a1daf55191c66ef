//! Objects of `kubevirt.io/v1`, with KubeVirt's JSON names.
//!
//! Every field that KubeVirt has is here; a test compares with the list of them. A field that no member stands for is kept
//! in `other` and written back as it came: an object that passes through loses nothing, and validation can name what
//! is not served. `null` and a missing field mean the same, and so do a missing list and one without members; but each is
//! written back as it was. What is written that was not there are numbers, switches and words that KubeVirt requires, in an
//! object that lacks them, and the kind and version of an object that does not name them.
//!
//! | file | holds |
//! |---|---|
//! | `object` | the kinds |
//! | `spec`, `status` | a VirtualMachineInstance: what its user wants, what has become of it |
//! | `vm`, `migration`, `replica_set`, `kubevirt` | the other kinds, likewise |
//! | `domain`, `cpu`, `memory`, `clock`, `features`, `firmware` | a machine |
//! | `devices`, `disk`, `interface` | what is plugged into it |
//! | `volume`, `credential`, `probe` | what its disks hold, who is let in, how it is asked whether it is well |
//! | `fields`, `left_out` | how fields are read and written, and what is remembered of how they were written |
//! | `kubernetes` | the few types of Kubernetes' own that Corten looks into |

mod clock;
mod cpu;
mod credential;
mod devices;
mod disk;
mod domain;
mod features;
mod fields;
mod firmware;
mod interface;
mod kubernetes;
mod kubevirt;
mod left_out;
mod memory;
mod migration;
mod object;
mod probe;
mod replica_set;
mod spec;
mod status;
mod vm;
mod volume;

pub use clock::*;
pub use cpu::*;
pub use credential::*;
pub use devices::*;
pub use disk::*;
pub use domain::*;
pub use features::*;
pub use firmware::*;
pub use interface::*;
pub use kubernetes::*;
pub use kubevirt::*;
pub use left_out::LeftOut;
pub use memory::*;
pub use migration::*;
pub use object::{
    KubeVirt, ObjectMeta, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
    VirtualMachineInstanceReplicaSet,
};
pub use probe::*;
pub use replica_set::*;
pub use spec::*;
pub use status::*;
pub use vm::*;
pub use volume::*;

/// A specification of this kind has such a field. The path is that of the table, name by name: from `spec` on, without
/// numbers.
pub(crate) fn has_field(kind: crate::Kind, path: &[&str]) -> bool {
    use crate::Kind;
    use fields::Field;
    let ["spec", path @ ..] = path else { return false };
    match kind {
        Kind::Instance => VirtualMachineInstanceSpec::holds(path),
        Kind::Machine => VirtualMachineSpec::holds(path),
        Kind::Migration => VirtualMachineInstanceMigrationSpec::holds(path),
        Kind::ReplicaSet => VirtualMachineInstanceReplicaSetSpec::holds(path),
        Kind::KubeVirt => KubeVirtSpec::holds(path),
    }
}

/// Fields that no member stands for.
pub type OtherFields = serde_json::Map<String, serde_json::Value>;

/// An object of a type of Kubernetes' own that is passed on as it came.
pub type Embedded = serde_json::Map<String, serde_json::Value>;

fields::object! {
    /// Something that is asked for by being there.
    pub struct Marker {}
}

/// Version of the group, as objects name it.
pub const API_VERSION: &str = "kubevirt.io/v1";
