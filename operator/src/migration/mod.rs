//! The controller of VirtualMachineInstanceMigrations: none is done yet, and each says so.
//!
//! A migration stays Pending, with a condition that says that migration comes with a later release: nothing has gone
//! wrong, and one that is still there when it comes is served then. There is no finalizer, so that it can be deleted
//! at any time; `virtctl migrate-cancel` does that.

mod controller;
mod plan;

pub use controller::run;
pub use plan::{Plan, plan};
