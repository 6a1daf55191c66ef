//! Corten measured beside other VMMs: the same guest, in turn, on the same node.
//!
//! `scripts/bench` is its front door; `docs/bench.md` says what the figures mean. A benchmark is a list of parts
//! that run where their KVM is, in a node ([`node`]) or on this machine. Those of [`boot`] are run by [`measure::series`] and
//! come back as a [`report::PartReport`]; those of [`memory`], [`disk`], [`net`] and [`restore`] have figures of their own and
//! come back as a [`report::FigureReport`]. What is measured is started through [`vmm::Vmm`].

pub mod boot;
pub mod disk;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod net;
pub mod node;
pub mod report;
pub mod restore;
mod scripted;
pub mod vmm;
