//! How a VM ends, for processes and for people.

use serde::{Deserialize, Serialize};

/// Why a VM ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// The guest switched itself off.
    PoweredOff,
    /// It was ended from outside.
    Killed,
    /// The guest's kernel panicked.
    Panicked,
    /// The guest's processor shut down.
    TripleFault,
    /// KVM could not go on with it.
    InternalError,
    /// It could not be started.
    NotStarted,
    /// Its process made a system call that its sandbox forbids.
    Forbidden,
    /// Its process met an error of its own.
    Crashed,
}

impl EndReason {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::PoweredOff,
        Self::Killed,
        Self::Panicked,
        Self::TripleFault,
        Self::InternalError,
        Self::NotStarted,
        Self::Forbidden,
        Self::Crashed,
    ];

    /// Exit status of the VM process. Apart from 0 none that a shell, a signal or a panic would give.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::PoweredOff => 0,
            Self::Killed => 80,
            Self::Panicked => 81,
            Self::TripleFault => 82,
            Self::InternalError => 83,
            Self::NotStarted => 84,
            Self::Forbidden => 85,
            Self::Crashed => 86,
        }
    }

    /// The reason behind an exit status of a VM process.
    pub fn from_exit_status(status: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| i32::from(reason.exit_status()) == status)
    }

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::PoweredOff => "the guest powered off",
            Self::Killed => "the VM was killed",
            Self::Panicked => "the guest's kernel panicked",
            Self::TripleFault => "the guest's processor shut down (triple fault)",
            Self::InternalError => "KVM could not go on with the guest",
            Self::NotStarted => "the VM could not be started",
            Self::Forbidden => "the VM process made a system call that its sandbox forbids",
            Self::Crashed => "the VM process met an error of its own",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_an_exit_status_of_its_own() {
        for reason in EndReason::ALL {
            assert_eq!(EndReason::from_exit_status(reason.exit_status().into()), Some(reason));
        }
        for foreign in [1, 101, 125, 126, 127, 134, 137, 139] {
            assert_eq!(EndReason::from_exit_status(foreign), None);
        }
    }
}
