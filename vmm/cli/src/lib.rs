//! The `corten` command: a `kubevirt.io/v1` manifest becomes a running VM without a cluster. Not here yet; what is:
//!
//! | module | holds |
//! |---|---|
//! | [`jail`] | where the VM process runs |
//! | [`manifest`] | files of YAML -> the one VM and what it refers to |
//! | [`oci`] | images of containers, as a source of disks and kernels |

pub mod jail;
pub mod manifest;
pub mod oci;
