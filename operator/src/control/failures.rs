//! How long to wait after a failure.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often each object has failed in a row.
#[derive(Debug, Default)]
pub struct Failures(Mutex<HashMap<String, u32>>);

impl Failures {
    /// Notes one more; how long to wait before the next try: 250 ms, doubled each time, a minute at most.
    pub fn pause(&self, object: &str) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(object.to_owned()).or_default();
        *count = count.saturating_add(1);
        Duration::from_millis(250 << (*count - 1).min(8)).min(Duration::from_secs(60))
    }

    /// It has succeeded, or is gone.
    pub fn forget(&self, object: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_after_failures_grow_to_a_minute_and_start_anew() {
        let failures = Failures::default();
        let pauses: Vec<_> = (0..10).map(|_| failures.pause("a/b").as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        assert_eq!(failures.pause("other").as_millis(), 250);
        failures.forget("a/b");
        assert_eq!(failures.pause("a/b").as_millis(), 250);
    }
}
