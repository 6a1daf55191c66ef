//! Does what was planned.

use super::NO_IMAGES;
use super::notice::Notice;
use super::plan::{LOOK_AGAIN, Plan};
use super::status;
use crate::failure::chain;
use crate::pod::deletion_grace;
use crate::write::{WriteError, Writer};
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::types::ConditionStatus;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

/// Does what was planned for an object: first the object itself, as its finalizer must be there before its Pod, and how it
/// ended must be written before its Pod is let go. Says when to look again although nothing changed.
pub(super) async fn apply(
    vmi: &VirtualMachineInstance,
    plan: &Plan,
    writer: &Writer,
    now: Timestamp,
) -> Result<Option<Duration>, WriteError> {
    if let Some(wanted) = &plan.vmi {
        writer.patch_vmi(vmi, wanted).await?;
    }
    if let Some((pod, said)) = &plan.gate {
        writer.say_of_pod(pod, said).await?;
    }
    for pod in &plan.release {
        writer.release_pod(pod).await?;
    }
    for pod in &plan.delete {
        writer.delete_pod(pod, deletion_grace(&vmi.spec)).await?;
    }
    if let Some(pod) = &plan.create {
        match writer.create_pod(pod).await {
            Ok(true) => {}
            // The watch has not told of it yet. What there was to tell was told when it was created.
            Ok(false) => return Ok(Some(LOOK_AGAIN)),
            Err(error) => {
                // Told where the user looks: a quota, a policy, a Pod that cannot be. What the API server could not do for
                // reasons of its own is only tried again.
                if plan.vmi.is_none()
                    && let Some(refusal) = error.refusal()
                {
                    tell_refusal(vmi, explained(refusal, pod), writer, now).await?;
                }
                return Err(error);
            }
        }
    }
    for notice in &plan.notices {
        tell(vmi, notice, writer).await;
    }
    Ok(plan.again)
}

/// An event that is lost, as in a namespace that is being deleted, is no reason to do anything again.
async fn tell(vmi: &VirtualMachineInstance, notice: &Notice, writer: &Writer) {
    if let Err(error) = writer.tell(vmi, notice).await {
        tracing::warn!(error = chain(&error), "an event was lost");
    }
}

/// Why the API server does not take a Pod, as reason and message.
///
/// One that knows image volumes but has them switched off takes them out, and then finds volumes of no kind.
fn explained<'a>(refusal: &'a str, pod: &Pod) -> (&'static str, &'a str) {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let has_images = volumes.is_some_and(|all| all.iter().any(|volume| volume.image.is_some()));
    if has_images && refusal.contains("must specify a volume type") {
        return NO_IMAGES;
    }
    ("FailedCreate", refusal)
}

/// The version of `vmi` must still be that of the API server, as in a plan that has not written to it.
async fn tell_refusal(
    vmi: &VirtualMachineInstance,
    why: (&str, &str),
    writer: &Writer,
    now: Timestamp,
) -> Result<(), WriteError> {
    let mut wanted = vmi.clone();
    status::set(&mut wanted, status::SYNCHRONIZED, ConditionStatus::False, Some(why), now);
    status::set(&mut wanted, status::READY, ConditionStatus::False, Some(status::NO_POD), now);
    if wanted == *vmi {
        return Ok(());
    }
    writer.patch_vmi(vmi, &wanted).await?;
    let notice = Notice::warning("FailedCreate", format!("Error creating pod: {}", why.1));
    tell(vmi, &notice, writer).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::testing::{minimal_vmi, pod};
    use serde_json::Value;

    #[test]
    fn a_cluster_without_image_volumes_is_known_by_what_it_misses() {
        let vmi = minimal_vmi(|_| ());
        let with_image = pod(&vmi, 0, |_| ());
        let without = pod(&vmi, 0, |pod| pod["spec"]["volumes"] = Value::Null);
        let refusal =
            "Pod \"p\" is invalid: spec.volumes[0]: Required value: must specify a volume type";
        assert_eq!(explained(refusal, &with_image), NO_IMAGES);
        assert_eq!(explained(refusal, &without), ("FailedCreate", refusal));
        assert_eq!(explained("exceeded quota", &with_image), ("FailedCreate", "exceeded quota"));
    }
}
