//! How often the agent is told what a guest can make happen as often as it likes. An agent lets go of a launcher that says too much,
//! and comes again; until then it would know nothing.

use std::time::{Duration, Instant};

/// So many at once; an agent takes twice as many.
const BURST: u32 = 32;
/// And then one more each time; an agent takes twice as many of them, too.
const ONE_MORE_EACH: Duration = Duration::from_millis(200);

/// How much may still be told.
#[derive(Debug)]
pub(super) struct Pace {
    left: u32,
    since: Instant,
    withheld: u64,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: BURST, since: now, withheld: 0 }
    }

    /// Takes one; none if it may not be told. Otherwise how many were not told before it.
    pub(super) fn take(&mut self, now: Instant) -> Option<u64> {
        while self.left < BURST && now.saturating_duration_since(self.since) >= ONE_MORE_EACH {
            self.left += 1;
            self.since += ONE_MORE_EACH;
        }
        if self.left == BURST {
            self.since = now;
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.withheld += 1;
            return None;
        };
        self.left = left;
        Some(std::mem::take(&mut self.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_comes_back_with_time_and_what_was_withheld_is_counted() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            assert_eq!(pace.take(start), Some(0));
        }
        assert_eq!(pace.take(start), None);
        assert_eq!(pace.take(start + ONE_MORE_EACH / 2), None);
        assert_eq!(pace.take(start + ONE_MORE_EACH), Some(2));
        assert_eq!(pace.take(start + ONE_MORE_EACH), None);
        let later = start + 1000 * ONE_MORE_EACH;
        let told = std::iter::repeat_with(|| pace.take(later)).take_while(Option::is_some);
        assert_eq!(told.count(), 32);
    }
}
