//! How soon after a write to an object the next one may follow.
//!
//! What changes now and then is written at once. A guest may let what it tells change all the time: then its object is written
//! ever more rarely, as each write costs the API server and everybody who watches.

use std::time::{Duration, Instant};

/// After a write, at least.
const SHORTEST: Duration = Duration::from_secs(1);
/// And at most.
const LONGEST: Duration = Duration::from_secs(16);
/// So many writes may follow each other at the shortest pause.
const AT_ONCE: u32 = 8;
/// Each time so long has passed, one more may.
const FORGIVES: Duration = Duration::from_secs(15);

/// The pace of one object's writes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    /// Writes that weigh.
    weight: u32,
}

impl Pace {
    /// Takes note of a write, or of a try.
    pub(super) fn written(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let passed = now.saturating_duration_since(last).as_secs() / FORGIVES.as_secs();
            self.weight = self.weight.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX));
        }
        self.weight = self.weight.saturating_add(1).min(AT_ONCE + 5);
        self.last = Some(now);
    }

    /// When the next one may follow; none for now.
    pub(super) fn next(&self) -> Option<Instant> {
        let beyond = self.weight.saturating_sub(AT_ONCE);
        let pause = SHORTEST.saturating_mul(1 << beyond.min(5));
        Some(self.last? + pause.min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_all_the_time_is_written_ever_more_rarely_and_forgiven_with_time() {
        let mut pace = Pace::default();
        assert_eq!(pace.next(), None);
        let start = Instant::now();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..14 {
            pace.written(now);
            let next = pace.next().unwrap();
            pauses.push(next.duration_since(now).as_secs());
            now = next;
        }
        assert_eq!(pauses[..8], [1; 8]);
        assert_eq!(pauses[8..11], [2, 4, 8]);
        assert!(pauses[11..].iter().all(|pause| *pause == 16 || *pause == 8), "{pauses:?}");
        let later = now + 100 * FORGIVES;
        pace.written(later);
        assert_eq!(pace.next().unwrap() - later, SHORTEST);
    }
}
