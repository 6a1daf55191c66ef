//! What the agent knows of a VM that does not come up, says nothing or takes its time to go, told on its object: as conditions,
//! which are there while it is so, and each time in one event.
//!
//! | file | holds |
//! |---|---|
//! | `facts` | what is known of one VM, and the conditions that follow |
//! | `report` | conditions and events that are news, as a patch; pure |
//! | `budget` | how many events a VM may cause |
//! | `cases` | facts by VM, and the one task that writes them |
//! | `reason` | what kept a launcher from being served, in one word |
//!
//! What a launcher or a guest says is hostile: it decides neither how often something is written nor how much.

mod budget;
mod cases;
mod facts;
mod reason;
mod report;

pub use cases::{Case, Cases, tell};
pub use facts::{Facts, Trouble};
pub use reason::{of_stage, reason_of};
