//! The lab: a node with working KVM on any machine, and what tests boot in it.
//!
//! `scripts/lab` is its front door; `docs/lab.md` says how it works and what to watch out for.

pub mod agent;
pub mod assets;
pub mod background;
pub mod cache;
pub mod cage;
pub mod execute;
pub mod lab;
pub mod nesting;
pub mod node;
pub mod oci;
pub mod packages;
pub mod qemu;
pub mod relay;
pub mod switch;
pub mod wire;

pub use corten_probe as probe;
