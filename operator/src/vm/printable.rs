//! What becomes of a VirtualMachine, in one word: the column that `kubectl get` shows. Pure.

use super::strategy::{Step, is_going};
use super::volumes::Progress;
use crate::control::conditions;
use crate::vmi::is_paused;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::types::{ConditionStatus, Phase};

/// What the word follows from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// The VirtualMachine is being deleted.
    pub(super) deleting: bool,
    /// Its instance.
    pub(super) instance: Option<&'a VirtualMachineInstance>,
    /// What comes next.
    pub(super) step: &'a Step,
    /// Something is in the way of what comes next.
    pub(super) blocked: bool,
    /// It has not lasted, and is to be started again.
    pub(super) failing: bool,
    /// Its DataVolumes.
    pub(super) volumes: Progress,
}

/// The first that holds, in KubeVirt's order.
pub(super) fn printable(facts: &Facts<'_>) -> &'static str {
    let Facts { deleting, instance, step, blocked, failing, volumes } = *facts;
    let active = instance.filter(|vmi| !vmi.status.phase.is_final());
    let start = !blocked && matches!(step, Step::Start { .. });
    let because = |kind: &str, reasons: &[&str]| {
        active
            .and_then(|vmi| conditions::get(&vmi.status.conditions, kind))
            .filter(|condition| condition.status == ConditionStatus::False)
            .and_then(|condition| condition.reason.as_deref())
            .is_some_and(|reason| reasons.contains(&reason))
    };
    let synchronized = |reason: &str| because("Synchronized", &[reason]);
    let pending = active.is_some_and(|vmi| is_starting(vmi.status.phase));
    let table = [
        (deleting, "Terminating"),
        (active.is_some_and(|vmi| is_going(vmi) || *step == Step::Stop), "Stopping"),
        (active.is_some_and(is_migrating), "Migrating"),
        (active.is_some_and(is_paused), "Paused"),
        (active.is_some_and(|vmi| vmi.status.phase == Phase::Running), "Running"),
        (synchronized("FailedPvcNotFound"), "ErrorPvcNotFound"),
        (synchronized("FailedDataVolumeImport") || volumes == Progress::Failed, "DataVolumeError"),
        (because("PodScheduled", &["Unschedulable"]), "ErrorUnschedulable"),
        ((start || pending) && volumes == Progress::Filling, "Provisioning"),
        ((start || pending) && volumes == Progress::Binding, "WaitingForVolumeBinding"),
        (synchronized("ErrImagePull"), "ErrImagePull"),
        (synchronized("ImagePullBackOff"), "ImagePullBackOff"),
        (pending || start, "Starting"),
        (active.is_none() && failing, "CrashLoopBackOff"),
        (active.is_none(), "Stopped"),
    ];
    table.iter().find(|(holds, _)| *holds).map_or("Unknown", |(_, word)| word)
}

fn is_starting(phase: Phase) -> bool {
    matches!(phase, Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::Scheduled)
}

fn is_migrating(vmi: &VirtualMachineInstance) -> bool {
    let state = vmi.status.migration_state.as_ref();
    state.is_some_and(|state| {
        state.start_timestamp.is_some()
            && state.end_timestamp.is_none()
            && state.completed != Some(true)
            && state.failed != Some(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::testing::{ended, going, instance, running, starting};
    use serde_json::{Value, json};

    const START: Step = Step::Start { paused: false };

    fn facts<'a>(instance: Option<&'a VirtualMachineInstance>, step: &'a Step) -> Facts<'a> {
        Facts {
            deleting: false,
            instance,
            step,
            blocked: false,
            failing: false,
            volumes: Progress::Ready,
        }
    }

    fn said(vmi: &VirtualMachineInstance) -> &'static str {
        printable(&facts(Some(vmi), &Step::Nothing))
    }

    fn pending(kind: &str, reason: &str) -> VirtualMachineInstance {
        instance(Phase::Pending, |vmi| {
            vmi["status"]["conditions"] =
                json!([{ "type": kind, "status": "False", "reason": reason }]);
        })
    }

    fn running_with(name: &str, value: &Value) -> VirtualMachineInstance {
        running(|vmi| vmi["status"][name] = value.clone())
    }

    #[test]
    fn phases_of_the_instance_have_their_words() {
        let table = [
            (starting(), "Starting"),
            (instance(Phase::Unset, |_| ()), "Starting"),
            (instance(Phase::Scheduled, |_| ()), "Starting"),
            (running(|_| ()), "Running"),
            (ended(Phase::Succeeded, |_| ()), "Stopped"),
            (ended(Phase::Failed, |_| ()), "Stopped"),
            (going(&running(|_| ())), "Stopping"),
            (going(&starting()), "Stopping"),
            (going(&ended(Phase::Succeeded, |_| ())), "Stopped"),
            (instance(Phase::Unknown, |_| ()), "Unknown"),
            (
                running_with("conditions", &json!([{ "type": "Paused", "status": "True" }])),
                "Paused",
            ),
            (
                running_with("conditions", &json!([{ "type": "Paused", "status": "False" }])),
                "Running",
            ),
            (running_with("migrationState", &json!({ "startTimestamp": "x" })), "Migrating"),
            (
                running_with(
                    "migrationState",
                    &json!({ "startTimestamp": "x", "completed": true }),
                ),
                "Running",
            ),
        ];
        for (vmi, word) in table {
            assert_eq!(said(&vmi), word, "{:?}", vmi.status);
        }
    }

    #[test]
    fn what_keeps_an_instance_from_starting_has_its_word() {
        let table = [
            ("Synchronized", "FailedPvcNotFound", "ErrorPvcNotFound"),
            ("Synchronized", "FailedDataVolumeImport", "DataVolumeError"),
            ("PodScheduled", "Unschedulable", "ErrorUnschedulable"),
            ("Synchronized", "ErrImagePull", "ErrImagePull"),
            ("Synchronized", "ImagePullBackOff", "ImagePullBackOff"),
            ("Synchronized", "SomethingElse", "Starting"),
        ];
        for (kind, reason, word) in table {
            assert_eq!(said(&pending(kind, reason)), word, "{reason}");
        }
    }

    #[test]
    fn without_an_instance_the_next_step_says_it() {
        let wait = Step::Wait(crate::vmi::testing::now(0));
        let base = facts(None, &Step::Nothing);
        assert_eq!(printable(&base), "Stopped");
        assert_eq!(printable(&Facts { step: &START, ..base }), "Starting");
        assert_eq!(printable(&Facts { step: &START, blocked: true, ..base }), "Stopped");
        assert_eq!(printable(&Facts { step: &wait, failing: true, ..base }), "CrashLoopBackOff");
        for (volumes, word) in [
            (Progress::Filling, "Provisioning"),
            (Progress::Binding, "WaitingForVolumeBinding"),
            (Progress::Failed, "DataVolumeError"),
        ] {
            assert_eq!(printable(&Facts { step: &START, volumes, ..base }), word);
        }
        assert_eq!(printable(&Facts { volumes: Progress::Filling, ..base }), "Stopped");
    }

    #[test]
    fn what_ended_and_is_to_be_started_again_is_in_a_loop() {
        let vmi = ended(Phase::Failed, |_| ());
        let base = Facts { failing: true, ..facts(Some(&vmi), &Step::Stop) };
        assert_eq!(printable(&base), "CrashLoopBackOff");
        assert_eq!(printable(&Facts { failing: false, ..base }), "Stopped");
    }

    #[test]
    fn deletion_and_stop_come_before_what_the_instance_does() {
        let vmi = running(|_| ());
        assert_eq!(printable(&facts(Some(&vmi), &Step::Stop)), "Stopping");
        let deleting = Facts { deleting: true, ..facts(Some(&vmi), &Step::Stop) };
        assert_eq!(printable(&deleting), "Terminating");
    }
}
