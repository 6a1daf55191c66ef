//! Where in its life a VirtualMachineInstance is.

use crate::types::fields::object;
use serde::{Deserialize, Serialize};

/// Where in its life a VirtualMachineInstance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
pub enum Phase {
    /// Nobody has looked at it yet.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// Accepted; it has no node.
    Pending,
    /// Its Pod has a node.
    Scheduling,
    /// Its Pod's container runs, its guest does not yet.
    Scheduled,
    /// Its guest runs.
    Running,
    /// Its guest ended as it should.
    Succeeded,
    /// Its guest did not end as it should, or never ran.
    Failed,
    /// It waits for a migration from another cluster.
    WaitingForSync,
    /// Nobody knows, or a later release does.
    #[serde(other)]
    Unknown,
}

impl Phase {
    /// Nobody has looked at it yet.
    pub fn is_unset(&self) -> bool {
        *self == Self::Unset
    }

    /// The guest has ended, and nothing comes after.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

object! {
    /// When a VirtualMachineInstance came to a phase.
    pub struct PhaseTransition {
        /// The phase.
        pub phase: Phase,
        /// When, as RFC 3339 writes it.
        pub phase_transition_timestamp: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_of_a_later_release_is_unknown_and_does_not_stop_the_reader() {
        let read = |text| serde_json::from_str::<Phase>(text).unwrap();
        assert_eq!(read("\"Hibernated\""), Phase::Unknown);
        assert_eq!(read("\"\""), Phase::Unset);
        assert_eq!(read("\"Running\""), Phase::Running);
    }

    #[test]
    fn succeeded_and_failed_are_final() {
        assert!(Phase::Succeeded.is_final() && Phase::Failed.is_final());
        assert!(
            !Phase::Running.is_final() && !Phase::Unset.is_final() && !Phase::Unknown.is_final()
        );
    }
}
