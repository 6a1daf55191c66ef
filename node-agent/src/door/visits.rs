//! What is said of visits to one launcher, and how soon the next one is. A launcher may be hostile: neither its words nor
//! its number of tries decide how much is logged.

use std::time::Duration;

/// After a visit.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// At most, after many that ended the same way.
const AGAIN_AT_LATEST: Duration = Duration::from_secs(16);
/// A visit that lasted so long was a good one.
const LONG: Duration = Duration::from_secs(5 * 60);
/// Of what a launcher said, no more is logged.
const MAX_EXCERPT: usize = 1024;

/// How the last visits ended.
#[derive(Debug, Default)]
pub(super) struct Visits {
    /// Why the last one failed, if there was one and if it did.
    last: Option<Option<String>>,
    /// How often it was the same before.
    times: u32,
}

impl Visits {
    /// Takes note of a visit's end. Whether that is news, and after what time the next one is.
    pub(super) fn ended(&mut self, failure: Option<&str>, lasted: Duration) -> (bool, Duration) {
        let failure = failure.map(ToOwned::to_owned);
        let is_news = self.last.as_ref() != Some(&failure) || lasted >= LONG;
        if is_news {
            self.last = Some(failure);
            self.times = 0;
        } else {
            self.times = self.times.saturating_add(1);
        }
        let pause = AGAIN_AFTER.saturating_mul(1_u32.checked_shl(self.times).unwrap_or(u32::MAX));
        (is_news, pause.min(AGAIN_AT_LATEST))
    }
}

/// The beginning of a text that may be a launcher's, on one line.
pub(super) fn excerpt(text: &str) -> String {
    let visible = |char: char| if char.is_control() { ' ' } else { char };
    text.chars().take(MAX_EXCERPT).map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_that_end_the_same_way_are_said_once_and_become_rare() {
        let mut visits = Visits::default();
        let short = Duration::from_secs(1);
        let pauses: Vec<_> = (0..40).map(|_| visits.ended(Some("dismissed"), short)).collect();
        let seconds = |nth: usize| (pauses[nth].0, pauses[nth].1.as_secs());
        assert_eq!((seconds(0), seconds(1), seconds(2)), ((true, 1), (false, 2), (false, 4)));
        assert_eq!(seconds(39), (false, 16));
        assert_eq!(visits.ended(None, short), (true, AGAIN_AFTER));
        assert_eq!(visits.ended(None, LONG), (true, AGAIN_AFTER));
    }

    #[test]
    fn words_of_a_launcher_are_cut_and_kept_on_one_line() {
        assert_eq!(excerpt("a\nb\u{1b}[31m"), "a b [31m");
        assert_eq!(excerpt(&"ä".repeat(70_000)).chars().count(), MAX_EXCERPT);
    }
}
