//! The `kubevirt.io/v1` API as Rust types: what a user writes, its defaults and its validation.
//!
//! Serde only by default; what a cluster needs on top (kube, k8s-openapi, schemars) comes with the feature `cluster`,
//! so that the VMM's tree stays free of it. No type is here yet: first comes the machine they describe.

#![forbid(unsafe_code)]
