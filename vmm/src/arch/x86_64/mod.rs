//! The x86_64 machine.

pub mod acpi;
pub mod boot;
pub mod compatibility;
pub mod cpuid;
pub mod layout;
pub mod smbios;
pub mod topology;
pub mod vcpu_state;
