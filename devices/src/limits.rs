//! Rate limits of devices: buckets that fill by themselves and that requests and packets empty.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// A rate, and how much may come at once after a quiet time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// How much comes back in a second.
    pub per_second: NonZeroU64,
    /// How much there is at most.
    pub burst: NonZeroU64,
}

/// Limits of one disk, or of one direction of a network interface, over all of its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Bytes moved, and zeroes that a disk is told to write; not what it is told to discard.
    pub bytes: Option<RateLimit>,
    /// Requests of any kind, or packets.
    pub operations: Option<RateLimit>,
}

const NANOS: i128 = 1_000_000_000;

/// A request that is larger than the bucket passes when the bucket is full and empties it below zero, which those
/// behind it wait for: so it is not stuck, and the rate holds.
#[derive(Debug)]
struct Bucket {
    limit: RateLimit,
    /// In billionths, to lose nothing by rounding.
    level: i128,
    filled: Instant,
}

impl Bucket {
    fn new(limit: RateLimit, now: Instant) -> Self {
        Self { limit, level: i128::from(limit.burst.get()) * NANOS, filled: now }
    }

    /// How long until a request may take `amount` from it. It fills up to now first.
    fn wait(&mut self, amount: u64, now: Instant) -> Duration {
        let nanos = now.saturating_duration_since(self.filled).as_nanos();
        let rate = i128::from(self.limit.per_second.get());
        let gained = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_mul(rate);
        let full = i128::from(self.limit.burst.get()) * NANOS;
        self.level = self.level.saturating_add(gained).min(full);
        self.filled = self.filled.max(now);
        let needed = i128::from(amount.min(self.limit.burst.get())) * NANOS;
        if self.level >= needed {
            return Duration::ZERO;
        }
        let nanos = (needed - self.level + rate - 1) / rate;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn take(&mut self, amount: u64) {
        self.level = self.level.saturating_sub(i128::from(amount).saturating_mul(NANOS));
    }
}

/// The buckets of one set of limits.
#[derive(Debug)]
pub(crate) struct Limiter {
    bytes: Option<Bucket>,
    operations: Option<Bucket>,
}

impl Limiter {
    /// Full ones; none if there is no limit.
    pub(crate) fn new(limits: RateLimits, now: Instant) -> Option<Self> {
        let bucket = |limit: Option<RateLimit>| limit.map(|limit| Bucket::new(limit, now));
        let (bytes, operations) = (bucket(limits.bytes), bucket(limits.operations));
        (bytes.is_some() || operations.is_some()).then_some(Self { bytes, operations })
    }

    /// Takes one request with that many bytes, or says how long to wait.
    pub(crate) fn take(&mut self, bytes: u64, now: Instant) -> Result<(), Duration> {
        self.allows(bytes, now)?;
        self.spend(bytes);
        Ok(())
    }

    /// Whether one request with that many bytes may be taken, or how long to wait. Who cannot know how many there will
    /// be asks for one and [`Self::spend`]s what it was: the rate holds, as those behind it wait for it.
    pub(crate) fn allows(&mut self, bytes: u64, now: Instant) -> Result<(), Duration> {
        let wait = |bucket: &mut Option<Bucket>, amount| {
            bucket.as_mut().map_or(Duration::ZERO, |bucket| bucket.wait(amount, now))
        };
        // Requests without data do not wait for those with.
        let for_bytes = if bytes > 0 { wait(&mut self.bytes, bytes) } else { Duration::ZERO };
        let longest = for_bytes.max(wait(&mut self.operations, 1));
        if longest > Duration::ZERO { Err(longest) } else { Ok(()) }
    }

    /// Takes one request with that many bytes that has passed already.
    pub(crate) fn spend(&mut self, bytes: u64) {
        if let Some(bucket) = &mut self.bytes {
            bucket.take(bytes);
        }
        if let Some(bucket) = &mut self.operations {
            bucket.take(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn limit(per_second: u64, burst: u64) -> Option<RateLimit> {
        let number = |number| NonZeroU64::new(number).unwrap();
        Some(RateLimit { per_second: number(per_second), burst: number(burst) })
    }

    #[test]
    fn burst_passes_and_the_rest_waits() {
        let start = Instant::now();
        let limits = RateLimits { operations: limit(10, 2), bytes: None };
        let mut limiter = Limiter::new(limits, start).unwrap();
        assert_eq!(limiter.take(0, start), Ok(()));
        assert_eq!(limiter.take(0, start), Ok(()));
        let wait = limiter.take(0, start).unwrap_err();
        assert!(wait <= Duration::from_millis(100));
        assert_eq!(limiter.take(0, start + wait), Ok(()));
        assert!(limiter.take(0, start + wait).is_err());
    }

    #[test]
    fn request_larger_than_the_bucket_passes_and_is_paid_for() {
        let start = Instant::now();
        let limits = RateLimits { bytes: limit(1000, 1000), operations: None };
        let mut limiter = Limiter::new(limits, start).unwrap();
        assert_eq!(limiter.take(5000, start), Ok(()));
        assert_eq!(limiter.take(0, start), Ok(()), "a flush");
        assert!(limiter.take(100, start + Duration::from_millis(4099)).is_err());
        assert_eq!(limiter.take(100, start + Duration::from_millis(4101)), Ok(()));
    }

    #[test]
    fn what_has_passed_already_is_paid_for_by_those_behind_it() {
        let start = Instant::now();
        let limits = RateLimits { bytes: limit(1000, 1000), operations: None };
        let mut limiter = Limiter::new(limits, start).unwrap();
        assert_eq!(limiter.allows(1, start), Ok(()));
        limiter.spend(3000);
        assert!(limiter.allows(1, start + Duration::from_millis(2000)).is_err());
        assert_eq!(limiter.allows(1, start + Duration::from_millis(2001)), Ok(()));
    }

    #[test]
    fn no_limit_is_no_limiter() {
        assert!(Limiter::new(RateLimits::default(), Instant::now()).is_none());
    }

    proptest! {
        #[test]
        fn rate_holds_whatever_is_asked(
            rate in 1_u64..10_000,
            burst in 1_u64..10_000,
            asks in prop::collection::vec((0_u64..20_000, 0_u64..1000), 1..100),
        ) {
            let start = Instant::now();
            let limits = RateLimits { bytes: limit(rate, burst), operations: None };
            let mut limiter = Limiter::new(limits, start).unwrap();
            let (mut now, mut passed, mut largest) = (start, 0, 0);
            for (bytes, millis) in asks {
                now += Duration::from_millis(millis);
                largest = largest.max(bytes);
                if let Err(wait) = limiter.take(bytes, now) {
                    now += wait;
                    prop_assert_eq!(limiter.take(bytes, now), Ok(()));
                }
                passed += bytes;
            }
            let earned = u128::from(rate) * (now - start).as_nanos() / 1_000_000_000;
            prop_assert!(u128::from(passed) <= earned + 1 + u128::from(burst + largest));
        }
    }
}
