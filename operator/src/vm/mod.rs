//! The controller of VirtualMachines: `observe` -> `plan` (pure) -> `apply`.
//!
//! A VirtualMachine has one VirtualMachineInstance at most, which has its name: that is why it cannot run twice. When there
//! is one follows from the run strategy, from starts and stops that were asked for, and from how the last one ended:
//!
//! ```text
//!                  start                                    ended
//!     no instance --------> instance, active -------------------> instance, final
//!          ^  ^                    |  stop: deleted                     |
//!          |  +--------------------+                                    |
//!          +------------------------------------------------------------+
//!            Always: at once, or after a pause if it did not last; RerunOnFailure: the same if it failed;
//!            Halted: at once; Manual, Once: when it is deleted or started again
//! ```
//!
//! It owns, besides, one ControllerRevision for each start, which tells what has been changed since, and the
//! DataVolumes of `dataVolumeTemplates`. On the VirtualMachine it writes the finalizer and the status, nothing else (and
//! `runStrategy` in one case, see `strategy`).

mod apply;
mod controller;
mod instance;
mod observe;
mod plan;
mod printable;
mod restart;
mod revision;
mod start_failure;
mod status;
mod strategy;
#[cfg(test)]
mod testing;
mod volumes;

pub use controller::run;
pub use observe::{Instance, Observed};
pub use plan::{Plan, plan};
pub use strategy::Strategy;
pub use volumes::{VolumeState, Volumes};
