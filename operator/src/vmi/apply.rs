//! Does what was planned.

use super::plan::{LOOK_AGAIN, Notice, Plan};
use super::status;
use crate::failure::chain;
use crate::pod::deletion_grace;
use crate::write::{WriteError, Writer};
use corten_resources::cluster::VirtualMachineInstance;
use corten_resources::types::ConditionStatus;
use jiff::Timestamp;
use std::time::Duration;

/// Does what was planned for an object: first the object itself, as its finalizer must be there before its Pod. Says when
/// to look again although nothing changed.
pub(super) async fn apply(
    vmi: &VirtualMachineInstance,
    plan: &Plan,
    writer: &Writer,
    now: Timestamp,
) -> Result<Option<Duration>, WriteError> {
    if let Some(wanted) = &plan.vmi {
        writer.patch_vmi(vmi, wanted).await?;
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
                    tell_refusal(vmi, refusal, writer, now).await?;
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

/// The version of `vmi` must still be that of the API server, as in a plan that has not written to it.
async fn tell_refusal(
    vmi: &VirtualMachineInstance,
    refusal: &str,
    writer: &Writer,
    now: Timestamp,
) -> Result<(), WriteError> {
    let mut wanted = vmi.clone();
    let why = Some(("FailedCreate", refusal));
    status::set(&mut wanted, status::SYNCHRONIZED, ConditionStatus::False, why, now);
    if wanted == *vmi {
        return Ok(());
    }
    writer.patch_vmi(vmi, &wanted).await?;
    let notice = Notice::warning("FailedCreate", format!("Error creating pod: {refusal}"));
    tell(vmi, &notice, writer).await;
    Ok(())
}
