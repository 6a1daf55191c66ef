//! A VirtualMachine: a VirtualMachineInstance that is made again and again, and what outlives each.

mod data_volume;
mod status;

pub use data_volume::{
    Checkpoint, DataVolumeSource, DataVolumeSourceReference, DataVolumeSpec, DataVolumeTemplate,
    GcsSource, HttpSource, ImageIoSource, NamespacedReference, Platform, RegistrySource, S3Source,
    Storage, VddkSource,
};
pub use status::{
    AddVolume, ControllerRevision, HotplugVolumeSource, InstancetypeStatus, MemoryDumpRequest,
    RemoveVolume, StartFailure, StateChangeRequest, VirtualMachineStatus, VolumeMigrationState,
    VolumeRequest, VolumeSnapshotStatus, VolumeUpdateState,
};

use super::VirtualMachineInstanceTemplate;
use super::fields::object;

object! {
    /// The specification of a VirtualMachine.
    pub struct VirtualMachineSpec {
        /// DataVolumes that are made with it, and end with it.
        pub data_volume_templates: Vec<DataVolumeTemplate>,
        /// Sizes that others have laid down.
        pub instancetype: Option<Matcher>,
        /// Settings that others recommend.
        pub preference: Option<Matcher>,
        /// When it runs: `Always`, `Halted`, `Manual`, `RerunOnFailure`, `Once` or `WaitAsReceiver`.
        pub run_strategy: Option<String>,
        /// Whether it runs; `runStrategy` says more.
        pub running: Option<bool>,
        /// What is made when it runs.
        pub template: Option<VirtualMachineInstanceTemplate>,
        /// How changed volumes come to a VM that runs: `Migration` or `Replacement`.
        pub update_volumes_strategy: Option<String>,
    }

    /// An instance type or a preference.
    pub struct Matcher {
        /// The volume whose labels name it.
        pub infer_from_volume: Option<String>,
        /// What happens if they do not: `Reject` or `Ignore`.
        pub infer_from_volume_failure_policy: Option<String>,
        /// Its kind.
        pub kind: Option<String>,
        /// Its name.
        pub name: Option<String>,
        /// The ControllerRevision that keeps it as it was.
        pub revision_name: Option<String>,
    }
}
