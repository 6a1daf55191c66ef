//! A guest that takes its time to power off: what it was told, and when it is killed. Pure.

use super::conditions::up_for;
use super::fate::node_name;
use super::status::time;
use crate::pod::deletion_grace;
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::names::GUEST_STOPPING;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

/// How long a guest may take to power off before that is worth a word.
const PATIENCE: SignedDuration = SignedDuration::from_secs(15);

/// The guest takes its time.
pub(super) const SLOW: &str = "SlowStop";
/// Its Pod is there although the guest was to be killed.
pub(super) const STUCK: &str = "PodNotEnding";

/// What there is to tell of a Pod that is being deleted while its container runs on, as reason and message.
pub(super) fn told(
    vmi: &VirtualMachineInstance,
    pod: &Pod,
    now: Timestamp,
) -> Option<(&'static str, String)> {
    up_for(pod, now)?;
    let gone = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds?);
    // kubelet waits a little longer than the launcher, so that it can say how its guest ended.
    let longer = deletion_grace(&vmi.spec)
        .saturating_sub(i64::try_from(vmi.spec.grace_period().as_secs()).unwrap_or(i64::MAX));
    let longer = SignedDuration::from_secs(longer).min(grace);
    let (asked, killed) = (gone.checked_sub(grace).ok()?, gone.checked_sub(longer).ok()?);
    if now >= gone + PATIENCE {
        let node = node_name(pod).unwrap_or_default();
        let message = format!(
            "the guest was told to power off at {}, and its Pod was to be gone at {}: kubelet on node {node} does not get it away; \
             `kubectl describe pod` and kubelet's log on that node say why",
            time(asked),
            time(gone)
        );
        return Some((STUCK, message));
    }
    if now < asked + PATIENCE || now >= gone {
        return None;
    }
    let button = match vmi.status.condition(GUEST_STOPPING) {
        Some(said) => said.message.clone().unwrap_or_default(),
        None => "whether it got its power button is in the Pod's log".to_owned(),
    };
    let message = format!(
        "the guest was told to power off at {} and runs on; {button}; it is killed at {}",
        time(asked),
        time(killed)
    );
    Some((SLOW, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::{container, minimal_vmi, now, pod};
    use serde_json::{Value, json};

    /// What is told at that second of a guest that was asked at 100 and has 30 seconds.
    fn told_at(second: i64, change: impl FnOnce(&mut Value)) -> Option<(&'static str, String)> {
        let vmi = minimal_vmi(|vmi| {
            vmi["spec"]["terminationGracePeriodSeconds"] = json!(30);
            vmi["status"] = json!({ "phase": "Running" });
            change(vmi);
        });
        let going = pod(&vmi, 0, |pod| {
            pod["metadata"]["deletionTimestamp"] = json!(now(145).to_string());
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(45);
            pod["status"]["containerStatuses"] =
                container(&json!({ "running": { "startedAt": now(0).to_string() } }));
        });
        told(&vmi, &going, now(second))
    }

    #[test]
    fn a_guest_that_takes_its_time_is_told_with_the_moment_of_its_kill() {
        let table = [
            (100, None),
            (114, None),
            (115, Some(SLOW)),
            (144, Some(SLOW)),
            (145, None),
            (159, None),
            (160, Some(STUCK)),
        ];
        for (second, reason) in table {
            assert_eq!(told_at(second, |_| ()).map(|(reason, _)| reason), reason, "{second}");
        }
        let (_, message) = told_at(115, |_| ()).unwrap();
        assert_eq!(
            message,
            "the guest was told to power off at 2026-01-01T00:01:40Z and runs on; whether it got its power button is in the \
             Pod's log; it is killed at 2026-01-01T00:02:10Z"
        );
    }

    #[test]
    fn what_the_launcher_said_of_the_power_button_is_told() {
        let (_, message) = told_at(120, |vmi| {
            vmi["status"]["conditions"] = json!([{ "type": GUEST_STOPPING, "status": "True",
                "reason": "PowerButtonPressed", "message": "its power button was pressed" }]);
        })
        .unwrap();
        assert!(
            message.contains("runs on; its power button was pressed; it is killed"),
            "{message}"
        );
    }

    #[test]
    fn a_pod_that_does_not_go_or_has_no_container_is_none() {
        let vmi = minimal_vmi(|_| ());
        let stays = pod(&vmi, 0, |pod| {
            pod["status"]["containerStatuses"] = container(&json!({ "running": {} }));
        });
        let without = pod(&vmi, 0, |pod| {
            pod["metadata"]["deletionTimestamp"] = json!(now(145).to_string());
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(45);
        });
        for pod in [stays, without] {
            assert_eq!(told(&vmi, &pod, now(999)), None);
        }
    }
}
