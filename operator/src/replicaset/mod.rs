//! The controller of VirtualMachineInstanceReplicaSets: `observe` -> `plan` (pure) -> `apply`.
//!
//! A set has places, numbered from zero, and the name of the VirtualMachineInstance at a place follows from the set's uid
//! and the number. A place is filled by creating that name, so that a cache that is behind, or a second operator, cannot
//! fill it twice. Which places are filled does not matter: one whose instance has ended or is going is
//! skipped until the name is free again.
//!
//! Whose an instance is says its owner reference alone. The selector is for others: autoscalers, `kubectl`.

mod apply;
mod controller;
mod plan;
mod status;
#[cfg(test)]
mod testing;

pub use controller::run;
pub use plan::{Observed, Plan, plan};
