//! The `kubevirt.io/v1` API as Rust types: what a user writes, what it means, what of it is served.
//!
//! | module | holds |
//! |---|---|
//! | [`types`] | the objects, with KubeVirt's JSON names; what no field stands for yet is kept, not dropped |
//! | [`Kind`] | the kinds, for whoever handles them alike |
//! | [`Quantity`] | amounts as Kubernetes writes them |
//! | [`machine`] | what a VirtualMachineInstance asks for: vCPUs, memory, kernel, disks, interfaces |
//! | [`defaults`] | what its user left out, filled in |
//! | [`served`], [`validate`] | which fields are served, and what is wrong with an object, by path |
//! | [`difference`] | the merge patch from one object to another |
//! | [`base64`], [`shown`] | texts that users give, read and shown |
//! | [`spec_hash`] | what a specification is compared by |
//! | [`names`] | labels, annotations, places and names derived from an object |
//! | `cluster` | with the feature of that name: kube's traits, the CRDs, the manifests |
//!
//! Serde only by default; what a cluster needs on top (kube, k8s-openapi, schemars) comes with the feature `cluster`,
//! so that the VMM's tree stays free of it.

#![forbid(unsafe_code)]

pub mod base64;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod defaults;
mod difference;
mod finding;
mod kind;
pub mod machine;
pub mod names;
mod quantity;
mod selector;
pub mod served;
mod shown;
mod spec_hash;
pub mod types;
pub mod validate;

pub use difference::difference;
pub use kind::Kind;
pub use quantity::{Quantity, QuantityError};
pub use shown::{cut, shown, shown_lines};
pub use spec_hash::spec_hash;
