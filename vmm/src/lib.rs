//! The VMM: a Blueprint says what the guest sees, Records what changes while it runs, descriptors what the host lends.
//! Boot, restore and reset are one path: assemble a paused machine, load records, resume.
//!
//! ARCHITECTURE.md has the whole picture.

pub mod addresses;
pub mod arch;
pub mod control;
pub mod disk_boot;
pub mod entropy;
pub mod kvm;
pub mod machine;
pub mod ram;
pub mod sandbox;
pub mod say;
pub mod snapshot;
