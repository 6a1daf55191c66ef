//! How much a launcher may say. It may be hostile: each message costs the agent work and words in a log.

use std::time::{Duration, Instant};

/// So many messages may come at once, and then one more each time. A guest that resets all the time says more;
/// its launcher is connected to again, and nothing is lost but words in a log.
const BURST: u32 = 64;
const ONE_MORE_EACH: Duration = Duration::from_millis(100);

/// How many messages may still come.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    /// Takes one message; whether it may come.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        while self.left < BURST && now.saturating_duration_since(self.since) >= ONE_MORE_EACH {
            self.left += 1;
            self.since += ONE_MORE_EACH;
        }
        if self.left == BURST {
            self.since = now;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance_comes_back_with_time_and_never_exceeds_a_burst() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        let mut taken =
            |now| std::iter::repeat_with(|| allowance.take(now)).take_while(|may| *may).count();
        assert_eq!(taken(start), 64);
        assert_eq!(taken(start + ONE_MORE_EACH / 2), 0);
        assert_eq!(taken(start + 3 * ONE_MORE_EACH), 3);
        assert_eq!(taken(start + 1000 * ONE_MORE_EACH), 64);
    }
}
