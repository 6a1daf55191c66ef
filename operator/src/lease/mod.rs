//! Which replica leads: the holder of a Lease.
//!
//! ```text
//!              nobody holds it, or its holder has not renewed it for 15 s
//!   waiting ---------------------------------------------------------------> leading: renews every 5 s
//!    ^ ^                                                                        |            |
//!    | |                          stopped: gives it back                        |            | taken, or not renewed
//!    | +----- (another replica, at once) <--------------------------------------+            | for 10 s
//!    +-------------------------- controllers are dropped where they are ---------------------+
//! ```
//!
//! A holder is judged by how long *this* replica has seen its Lease unchanged, never by the times in it: clocks of nodes
//! differ. Two leaders at once, for the moments that a stalled one needs to notice, do no harm: Pods have fixed names and
//! every other write compares versions.

mod decide;
mod election;

pub use decide::{Step, decide};
pub use election::{Election, Leadership, Lost, identity};

use std::time::Duration;

/// Name of the Lease.
pub const NAME: &str = "corten-operator";
/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long the Lease holds without being renewed; whole seconds.
    pub duration: Duration,
    /// How often a leader renews it.
    pub renewal: Duration,
    /// After how long without renewal a leader stops being one; before `duration` is over, so that it stops before the next
    /// begins.
    pub deadline: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renewal: Duration::from_secs(5),
            deadline: Duration::from_secs(10),
        }
    }
}
