//! What is known of a freeze of the guest's file systems, and when it is to end.

use std::time::{Duration, Instant};

use corten_link::FreezeStatus;

/// How long file systems stay frozen if nobody says, as in KubeVirt: long enough for a storage system to take its snapshots.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(300);

/// No freeze is longer, whatever was asked for: programs of the guest that write stand still all that time.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// Between two attempts to thaw.
pub(super) const RETRY: Duration = Duration::from_secs(10);

/// What is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freeze {
    /// Nothing is frozen.
    Thawed,
    /// It is frozen until then.
    Frozen { thaw_at: Instant },
    /// Nobody knows, so the agent is asked. `thaw_at` is what was agreed on, if anything was.
    Unknown { thaw_at: Option<Instant> },
}

/// How long a freeze lasts that was ordered with this limit: none and zero mean that it is not the caller's concern.
pub(super) fn limit(ordered: Option<Duration>) -> Duration {
    ordered.filter(|limit| !limit.is_zero()).unwrap_or(DEFAULT_LIMIT).min(LONGEST)
}

impl Freeze {
    /// The agent cannot be asked any more: meanwhile a freeze may end, and another one come along with the guest.
    pub(super) fn lost(&mut self) {
        match *self {
            Self::Thawed => *self = Self::Unknown { thaw_at: None },
            Self::Frozen { thaw_at } => *self = Self::Unknown { thaw_at: Some(thaw_at) },
            Self::Unknown { .. } => {}
        }
    }

    /// The agent says how it is. A freeze that nobody here ordered gets the usual limit: it came along with the guest.
    pub(super) fn told(&mut self, status: FreezeStatus, now: Instant) {
        *self = match (status, *self) {
            (FreezeStatus::Thawed, _) => Self::Thawed,
            (
                FreezeStatus::Frozen,
                Self::Frozen { thaw_at } | Self::Unknown { thaw_at: Some(thaw_at) },
            ) => Self::Frozen { thaw_at },
            (FreezeStatus::Frozen, _) => Self::Frozen { thaw_at: now + DEFAULT_LIMIT },
        };
    }

    /// It is to end at once, if there is one.
    pub(super) fn end(&mut self, now: Instant) {
        match self {
            Self::Thawed => {}
            Self::Frozen { thaw_at } => *thaw_at = now,
            Self::Unknown { thaw_at } => *thaw_at = Some(now),
        }
    }

    /// Whether there is one is not known, and it is not to be.
    pub(super) fn doubt(&mut self, now: Instant) {
        *self = Self::Unknown { thaw_at: Some(now) };
    }

    /// A thaw failed; it is tried again in a while.
    pub(super) fn postpone(&mut self, now: Instant) {
        if let Self::Frozen { thaw_at } = self {
            *thaw_at = now + RETRY;
        }
    }

    pub(super) fn is_frozen(&self) -> bool {
        matches!(self, Self::Frozen { .. })
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    /// When a thaw is due.
    pub(super) fn thaw_at(&self) -> Option<Instant> {
        match self {
            Self::Frozen { thaw_at } => Some(*thaw_at),
            Self::Thawed | Self::Unknown { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_none_are_the_default_and_long_ones_are_cut() {
        assert_eq!(limit(None), DEFAULT_LIMIT);
        assert_eq!(limit(Some(Duration::ZERO)), DEFAULT_LIMIT);
        assert_eq!(limit(Some(Duration::from_secs(7))), Duration::from_secs(7));
        assert_eq!(limit(Some(Duration::MAX)), LONGEST);
    }

    #[test]
    fn found_freeze_gets_the_usual_limit_and_a_known_one_keeps_its_own() {
        let start = Instant::now();
        let mut freeze = Freeze::Unknown { thaw_at: None };
        freeze.told(FreezeStatus::Frozen, start);
        assert_eq!(freeze.thaw_at(), Some(start + DEFAULT_LIMIT));
        freeze.lost();
        assert!(freeze.is_unknown());
        freeze.told(FreezeStatus::Frozen, start + RETRY);
        assert_eq!(freeze.thaw_at(), Some(start + DEFAULT_LIMIT));
        freeze.told(FreezeStatus::Thawed, start);
        assert_eq!(freeze, Freeze::Thawed);
    }

    #[test]
    fn end_is_due_at_once_also_when_it_is_only_seen_later() {
        let start = Instant::now();
        let mut freeze = Freeze::Frozen { thaw_at: start + DEFAULT_LIMIT };
        freeze.end(start);
        assert_eq!(freeze.thaw_at(), Some(start));
        let mut freeze = Freeze::Unknown { thaw_at: None };
        freeze.end(start);
        freeze.told(FreezeStatus::Frozen, start + RETRY);
        assert_eq!(freeze.thaw_at(), Some(start));
    }
}
