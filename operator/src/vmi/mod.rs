//! The controller of VirtualMachineInstances: `observe` -> `plan` (pure) -> `apply`.
//!
//! ```text
//!            accepted                Pod has a node            container runs, guest does not yet
//!   (unset) ---------> Pending ----------------> Scheduling ----------------------> Scheduled
//!                         |                          |                                  |
//!                         |                          +---- the node agent ----+---------+
//!                         |                                                   v
//!                         |                                                Running
//!                         |     Pod ended: exit status, termination message   |
//!                         +-------------------------------------------------->+---> Succeeded, Failed
//! ```
//!
//! It owns the launcher Pod, whose name follows from uid and attempt: a Pod that its node did not admit (the agent was
//! away) is no end, but the reason for a next attempt. What else it writes on the object, and what it leaves to the node
//! agent, is in `status`. Writes are merge patches with a resourceVersion: who loses observes again.

mod apply;
mod controller;
mod ending;
mod observe;
mod plan;
mod status;
#[cfg(test)]
pub(crate) mod testing;

pub use controller::run;
pub use ending::{Ending, Rejection};
pub use observe::Observed;
pub use plan::{Notice, Plan, Severity, plan};
