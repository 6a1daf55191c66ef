//! Objects of `kubevirt.io/v1`, with KubeVirt's JSON names.
//!
//! A field that no member stands for is kept in `other` and written back as it came: an object that passes through
//! loses nothing, and validation can name what is not served. `null` and a missing field are the same.

mod devices;
mod domain;
mod firmware;
mod object;
mod spec;
mod status;

pub use devices::Devices;
pub use domain::{Cpu, Domain, Machine, Memory, ResourceRequirements};
pub use firmware::{Firmware, KernelBoot, KernelBootContainer};
pub use object::{ObjectMeta, VirtualMachineInstance};
pub use spec::{Toleration, VirtualMachineInstanceSpec};
pub use status::{
    Condition, ConditionStatus, MemoryStatus, Phase, PhaseTransition, VirtualMachineInstanceStatus,
};

/// Fields that no member stands for.
pub type OtherFields = serde_json::Map<String, serde_json::Value>;

/// Version of the group, as objects name it.
pub const API_VERSION: &str = "kubevirt.io/v1";

/// For members that are not optional: `null` is what a client may write for "nothing".
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de> + Default,
{
    Ok(<Option<T> as serde::Deserialize>::deserialize(deserializer)?.unwrap_or_default())
}
