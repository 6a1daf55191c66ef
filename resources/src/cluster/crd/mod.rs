//! CustomResourceDefinitions, made from the types.
//!
//! | file | holds |
//! |---|---|
//! | `definition` | names, columns, versions and subresources of each kind, as KubeVirt has them |
//! | `schema` | a type as a schema that Kubernetes takes |
//! | `describe` | what `kubectl explain` says |
//!
//! A field that no type stands for is left out of objects by the API server (kubectl says so when it applies one), so every
//! field of KubeVirt's is in the types, served or not: what is refused must reach the operator.

mod definition;
mod describe;
mod schema;

pub use definition::{definition, definitions};

#[cfg(test)]
mod tests;
