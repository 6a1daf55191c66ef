//! What a replica does about a Lease, and what it writes into it. Pure.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use std::time::Duration;

/// How long a Lease holds that does not say so.
const UNSAID: Duration = Duration::from_secs(15);

/// What a replica does about the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take it: nobody has it, or its holder is gone.
    Acquire,
    /// Write it again: it is ours.
    Renew,
    /// Look again after so long, should nothing be heard of it before.
    Wait(Duration),
    /// It was ours and is another's: stop.
    Lost,
}

/// What `me` does about a Lease that it has seen unchanged for so long.
pub fn decide(lease: Option<&Lease>, unchanged: Duration, me: &str, leading: bool) -> Step {
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|it| !it.is_empty());
    match holder {
        Some(holder) if holder == me => Step::Renew,
        // Also one that is gone: whoever leads has noticed by now, or is about to.
        _ if leading => Step::Lost,
        None => Step::Acquire,
        Some(_) => match term(spec).checked_sub(unchanged) {
            Some(left) if !left.is_zero() => Step::Wait(left),
            _ => Step::Acquire,
        },
    }
}

/// How long a holder may go without renewing: what it said itself, within reason.
fn term(spec: Option<&LeaseSpec>) -> Duration {
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    let said = seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    said.unwrap_or(UNSAID).clamp(Duration::from_secs(1), Duration::from_secs(120))
}

/// The Lease as `me` takes or renews it. It keeps its version: who loses a race is refused.
pub(super) fn claimed(
    lease: Option<&Lease>,
    name: &str,
    me: &str,
    duration: Duration,
    now: Timestamp,
) -> Lease {
    let mut claimed = lease.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        spec: None,
    });
    claimed.metadata.managed_fields = None;
    let spec = claimed.spec.get_or_insert_default();
    if spec.holder_identity.as_deref() != Some(me) {
        spec.holder_identity = Some(me.to_owned());
        spec.acquire_time = Some(MicroTime(now));
        spec.lease_transitions =
            Some(lease.map_or(0, |_| spec.lease_transitions.unwrap_or(0).saturating_add(1)));
    }
    spec.lease_duration_seconds = Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX));
    spec.renew_time = Some(MicroTime(now));
    claimed
}

/// The Lease as its holder gives it back.
pub(super) fn released(lease: &Lease, now: Timestamp) -> Lease {
    let mut released = lease.clone();
    released.metadata.managed_fields = None;
    let spec = released.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(MicroTime(now));
    released
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: Option<&str>, seconds: Option<i32>) -> Lease {
        Lease {
            metadata: ObjectMeta { resource_version: Some("7".to_owned()), ..Default::default() },
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: seconds,
                lease_transitions: Some(3),
                ..Default::default()
            }),
        }
    }

    #[test]
    fn who_does_what_about_a_lease() {
        let wait = |seconds| Step::Wait(Duration::from_secs(seconds));
        let other = Some(held_by(Some("other"), Some(15)));
        let forever = Some(held_by(Some("other"), Some(i32::MAX)));
        let cases = [
            ("there is none", None, 0, false, Step::Acquire),
            ("it was given back", Some(held_by(Some(""), Some(1))), 0, false, Step::Acquire),
            ("it has no holder", Some(held_by(None, None)), 0, false, Step::Acquire),
            ("it has no spec", Some(Lease::default()), 0, false, Step::Acquire),
            ("another has it", other.clone(), 4, false, wait(11)),
            ("another stopped renewing", other.clone(), 15, false, Step::Acquire),
            ("another stopped long ago", other.clone(), 900, false, Step::Acquire),
            (
                "another does not say for how long",
                Some(held_by(Some("other"), None)),
                5,
                false,
                wait(10),
            ),
            ("another says never", forever.clone(), 0, false, wait(120)),
            ("another says nonsense", Some(held_by(Some("other"), Some(-4))), 0, false, wait(15)),
            ("it is ours", Some(held_by(Some("me"), Some(15))), 3, true, Step::Renew),
            ("it is ours, from before", Some(held_by(Some("me"), Some(15))), 3, false, Step::Renew),
            ("it was taken", other, 0, true, Step::Lost),
            ("it was deleted", None, 0, true, Step::Lost),
        ];
        for (case, lease, unchanged, leading, step) in cases {
            let unchanged = Duration::from_secs(unchanged);
            assert_eq!(decide(lease.as_ref(), unchanged, "me", leading), step, "{case}");
        }
    }

    #[test]
    fn a_claim_counts_changes_of_hands_and_keeps_the_version() {
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let first = claimed(None, "it", "me", UNSAID, now).spec.unwrap();
        assert_eq!((first.lease_transitions, first.lease_duration_seconds), (Some(0), Some(15)));
        let taken = claimed(Some(&held_by(Some("other"), None)), "it", "me", UNSAID, now);
        assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(taken.spec.as_ref().unwrap().lease_transitions, Some(4));
        let later = Timestamp::from_second(1_767_225_605).unwrap();
        let renewed = claimed(Some(&taken), "it", "me", UNSAID, later).spec.unwrap();
        assert_eq!(renewed.lease_transitions, Some(4));
        assert_eq!(renewed.acquire_time, Some(MicroTime(now)));
        assert_eq!(renewed.renew_time, Some(MicroTime(later)));
    }

    #[test]
    fn a_released_lease_is_for_anybody() {
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let released = released(&held_by(Some("me"), Some(15)), now);
        assert_eq!(decide(Some(&released), Duration::ZERO, "other", false), Step::Acquire);
        assert_eq!(released.metadata.resource_version.as_deref(), Some("7"));
    }
}
