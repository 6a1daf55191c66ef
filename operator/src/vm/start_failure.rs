//! How long to wait before the next start, if those before did not last. Pure.
//!
//! KubeVirt counts a VirtualMachineInstance that never came to run. Here one that ran for less than [`LASTING`] counts as
//! well: a guest that panics while it boots would else be started every few seconds.

use super::Strategy;
use super::strategy::is_going;
use crate::control::conditions::time;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::types::{Phase, StartFailure, VirtualMachineStatus};
use jiff::{SignedDuration, Timestamp};

/// A start was none if what was started ended before this.
const LASTING: SignedDuration = SignedDuration::from_secs(30);
/// The pause after the first failure. It grows with the square of their number.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);
/// The longest pause.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(300);

/// What is known of failures, with what is seen now.
pub(super) fn after(
    known: Option<&StartFailure>,
    strategy: Strategy,
    instance: Option<&VirtualMachineInstance>,
    now: Timestamp,
) -> Option<StartFailure> {
    if !matches!(strategy, Strategy::Always | Strategy::RerunOnFailure) {
        // Nothing is started again by itself.
        return None;
    }
    let Some(vmi) = instance.filter(|vmi| !is_going(vmi)) else { return known.cloned() };
    let counts = match vmi.status.phase {
        Phase::Failed => true,
        Phase::Succeeded => strategy == Strategy::Always,
        // Going well, for now or for good.
        _ if lasts(vmi, now) => return None,
        _ => return known.cloned(),
    };
    let uid = vmi.metadata.uid.clone();
    if known.is_some_and(|known| known.last_failed_vmi_uid == uid) {
        return known.cloned();
    }
    if !counts || lasts(vmi, now) {
        return None;
    }
    let count = known.and_then(|known| known.consecutive_fail_count).unwrap_or(0).saturating_add(1);
    let pause = pause(count, uid.as_deref().unwrap_or_default());
    Some(StartFailure {
        consecutive_fail_count: Some(count),
        last_failed_vmi_uid: uid,
        retry_after_timestamp: Some(time(now + pause)),
        ..StartFailure::default()
    })
}

/// Not before this is it started again.
pub(super) fn retry(status: &VirtualMachineStatus) -> Option<Timestamp> {
    status.start_failure.as_ref()?.retry_after_timestamp.as_ref()?.parse().ok()
}

/// When an instance that runs will have lasted.
pub(super) fn lasting_from(vmi: &VirtualMachineInstance) -> Option<Timestamp> {
    entered(vmi, Phase::Running).map(|since| since + LASTING)
}

/// It has run, and for long enough.
fn lasts(vmi: &VirtualMachineInstance, now: Timestamp) -> bool {
    let phase = vmi.status.phase;
    let until = if phase.is_final() { entered(vmi, phase).unwrap_or(now) } else { now };
    lasting_from(vmi).is_some_and(|lasting| until >= lasting)
}

fn entered(vmi: &VirtualMachineInstance, phase: Phase) -> Option<Timestamp> {
    let all = &vmi.status.phase_transition_timestamps;
    all.iter().find(|entry| entry.phase == phase)?.phase_transition_timestamp.parse().ok()
}

/// 10 s times the square of the number of failures, and up to half of that again, so that many do not start at once. How
/// much follows from the uid of what failed.
fn pause(count: i32, uid: &str) -> SignedDuration {
    let count = count.clamp(1, 100);
    let pause = FIRST_PAUSE * count * count;
    let extra = pause / 2 * i32::from(fraction(uid)) / 256;
    (pause + extra).min(LONGEST_PAUSE)
}

/// A number that stands for a text, evenly spread (FNV-1a).
fn fraction(text: &str) -> u8 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.to_be_bytes().into_iter().fold(0, |all, byte| all ^ byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::testing::{ended, running, starting, transition};
    use crate::vmi::testing::now;

    fn failed(uid: &str, ran: Option<(i64, i64)>) -> VirtualMachineInstance {
        ended(Phase::Failed, |vmi| {
            vmi["metadata"]["uid"] = uid.into();
            let mut all = Vec::new();
            if let Some((from, _)) = ran {
                all.push(transition(Phase::Running, from));
            }
            all.push(transition(Phase::Failed, ran.map_or(5, |(_, to)| to)));
            vmi["status"]["phaseTransitionTimestamps"] = all.into();
        })
    }

    #[test]
    fn pauses_grow_with_the_square_and_end_at_five_minutes() {
        for (count, least) in [(1, 10), (2, 40), (3, 90), (4, 160), (5, 250)] {
            for uid in ["a", "b", "0b6c2f4e", "another"] {
                let pause = pause(count, uid).as_secs();
                assert!((least..=(least * 3 / 2).min(300)).contains(&pause), "{count} {pause}");
            }
        }
        for count in [6, 7, 1000, i32::MAX] {
            assert_eq!(pause(count, "a").as_secs(), 300);
        }
        assert_eq!(pause(3, "a"), pause(3, "a"));
        let spread: std::collections::BTreeSet<_> =
            (0..20).map(|n| pause(4, &format!("uid-{n}")).as_millis()).collect();
        assert!(spread.len() > 10, "{spread:?}");
    }

    #[test]
    fn one_that_never_ran_is_counted_once() {
        let vmi = failed("one", None);
        let first = after(None, Strategy::Always, Some(&vmi), now(5)).unwrap();
        assert_eq!(first.consecutive_fail_count, Some(1));
        assert_eq!(first.last_failed_vmi_uid.as_deref(), Some("one"));
        let due: Timestamp = first.retry_after_timestamp.as_ref().unwrap().parse().unwrap();
        assert!(due >= now(15) && due <= now(20), "{due}");
        assert_eq!(after(Some(&first), Strategy::Always, Some(&vmi), now(9)), Some(first.clone()));

        let second = after(Some(&first), Strategy::Always, Some(&failed("two", None)), now(30));
        assert_eq!(second.unwrap().consecutive_fail_count, Some(2));
    }

    #[test]
    fn one_that_lasted_ends_the_count() {
        let known = after(None, Strategy::Always, Some(&failed("one", None)), now(5));
        let short = failed("two", Some((0, 29)));
        let long = failed("two", Some((0, 30)));
        let count = |vmi| after(known.as_ref(), Strategy::Always, Some(vmi), now(40));
        assert_eq!(count(&short).unwrap().consecutive_fail_count, Some(2));
        assert_eq!(count(&long), None);
    }

    #[test]
    fn one_that_runs_ends_the_count_once_it_lasts() {
        let known = after(None, Strategy::Always, Some(&failed("one", None)), now(5));
        let vmi = running(|vmi| {
            vmi["status"]["phaseTransitionTimestamps"] =
                vec![transition(Phase::Running, 20)].into();
        });
        assert_eq!(after(known.as_ref(), Strategy::Always, Some(&vmi), now(49)), known);
        assert_eq!(after(known.as_ref(), Strategy::Always, Some(&vmi), now(50)), None);
        assert_eq!(lasting_from(&vmi), Some(now(50)));
    }

    #[test]
    fn what_is_starting_absent_or_being_deleted_changes_nothing() {
        let known = after(None, Strategy::Always, Some(&failed("one", None)), now(5));
        let stopped = ended(Phase::Failed, |vmi| {
            vmi["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        });
        for vmi in [None, Some(starting()), Some(stopped)] {
            assert_eq!(after(known.as_ref(), Strategy::Always, vmi.as_ref(), now(9)), known);
        }
    }

    #[test]
    fn a_guest_that_shuts_down_at_once_counts_only_where_it_is_started_again() {
        let vmi = ended(Phase::Succeeded, |_| ());
        assert!(after(None, Strategy::Always, Some(&vmi), now(5)).is_some());
        for strategy in [Strategy::RerunOnFailure, Strategy::Manual, Strategy::Once] {
            assert_eq!(after(None, strategy, Some(&vmi), now(5)), None, "{strategy:?}");
        }
    }

    #[test]
    fn a_strategy_that_starts_nothing_by_itself_forgets() {
        let known = after(None, Strategy::Always, Some(&failed("one", None)), now(5));
        for strategy in [Strategy::Halted, Strategy::Manual, Strategy::Once] {
            assert_eq!(after(known.as_ref(), strategy, None, now(9)), None, "{strategy:?}");
        }
    }
}
