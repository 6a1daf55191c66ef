//! The crate against KubeVirt's own list of types and fields, and against what its users may depend on.

#[cfg(test)]
mod list;
#[cfg(test)]
mod table;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod types;
