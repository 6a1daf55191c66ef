//! How far a VM is on its way from a manifest to a guest that speaks.

use serde::{Deserialize, Serialize};

/// A step of the way. Told when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The manifest was read and checked.
    Parsed,
    /// Images are there.
    Images,
    /// Disks are open.
    Disks,
    /// Networks are wired.
    Network,
    /// The VM process runs.
    Process,
    /// What the guest boots from was found on its disks.
    Boot,
    /// The guest's processors run.
    Running,
    /// The guest has said something.
    Output,
    /// The guest's agent has answered.
    Agent,
}

impl Phase {
    /// In a word or two.
    pub fn text(self) -> &'static str {
        match self {
            Self::Parsed => "parsed",
            Self::Images => "images",
            Self::Disks => "disks",
            Self::Network => "network",
            Self::Process => "VM process",
            Self::Boot => "boots from",
            Self::Running => "running",
            Self::Output => "first output",
            Self::Agent => "guest agent",
        }
    }
}

/// A phase that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Reached {
    /// Which one.
    pub phase: Phase,
    /// Microseconds since the command was given.
    pub at: u64,
    /// What there is to know of it; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// Nanoseconds of the machine's monotonic clock, which all processes share.
pub fn now() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    // It cannot fail for a clock that every Linux has.
    let time = nix::time::clock_gettime(clock).map(std::time::Duration::from).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A span of microseconds, for people.
pub fn span(microseconds: u64) -> String {
    match microseconds {
        0..1000 => format!("{microseconds} µs"),
        1000..1_000_000 => format!("{} ms", microseconds / 1000),
        _ => format!("{}.{} s", microseconds / 1_000_000, microseconds / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_well() {
        for (microseconds, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1500, "1 ms"),
            (999_999, "999 ms"),
            (1_000_000, "1.0 s"),
            (61_250_000, "61.2 s"),
        ] {
            assert_eq!(span(microseconds), text);
        }
    }

    #[test]
    fn clock_goes_forward() {
        let before = now();
        assert!(before > 0 && now() >= before);
    }
}
