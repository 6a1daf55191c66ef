//! How many events a VM may cause.

use std::time::{Duration, Instant};

/// So many at once, and then one more each time.
const BURST: u32 = 10;
const ONE_MORE_EACH: Duration = Duration::from_secs(60);

/// What is left of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: u32,
    since: Instant,
}

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    /// Whether one more may be told.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs() / ONE_MORE_EACH.as_secs();
        if let Ok(more) = u32::try_from(passed)
            && more > 0
        {
            self.left = self.left.saturating_add(more).min(BURST);
            self.since = now;
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_a_burst_and_then_one_a_minute() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let mut taken = |seconds, tries| {
            (0..tries).filter(|_| budget.take(start + Duration::from_secs(seconds))).count()
        };
        assert_eq!(taken(0, 20), 10);
        assert_eq!(taken(59, 5), 0);
        assert_eq!(taken(60, 5), 1);
        assert_eq!(taken(180, 5), 2);
        assert_eq!(taken(86_400, 50), 10);
    }
}
