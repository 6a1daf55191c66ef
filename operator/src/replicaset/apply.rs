//! Does what was planned.

use super::plan::Plan;
use super::status;
use crate::failure::chain;
use crate::vmi::Notice;
use crate::write::{Only, WriteError, Writer};
use corten_resources::cluster::VirtualMachineInstanceReplicaSet;
use jiff::Timestamp;
use kube::ResourceExt;
use std::time::Duration;

/// How soon to look again for an instance that is there, and of which the watch has not told yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Does what was planned for a set. The first failure ends it, and stays as a condition if it is a refusal.
pub(super) async fn apply(
    set: &VirtualMachineInstanceReplicaSet,
    plan: &Plan,
    writer: &Writer,
    now: Timestamp,
) -> Result<Option<Duration>, WriteError> {
    let mut again = plan.again;
    let mut failure = None;
    for vmi in &plan.delete {
        let what = format!("VirtualMachineInstance {}", vmi.name_any());
        match writer.delete(vmi, None, Only::This).await {
            Ok(()) => tell(set, "SuccessfulDelete", format!("Deleted {what}"), writer).await,
            Err(error) => failure = Some(("FailedDelete", format!("Cannot delete {what}"), error)),
        }
        if failure.is_some() {
            break;
        }
    }
    for vmi in plan.create.iter().take_while(|_| failure.is_none()) {
        let what = format!("VirtualMachineInstance {}", vmi.name_any());
        match writer.create(vmi).await {
            Ok(true) => tell(set, "SuccessfulCreate", format!("Created {what}"), writer).await,
            Ok(false) => again = Some(LOOK_AGAIN),
            Err(error) => {
                failure = Some(("FailedCreate", format!("Cannot create {what}"), error));
                break;
            }
        }
    }
    let mut wanted = set.clone();
    if let Some(planned) = &plan.status {
        wanted.status = planned.as_ref().clone();
    }
    let refusal = failure
        .as_ref()
        .and_then(|(reason, what, error)| Some((*reason, format!("{what}: {}", error.refusal()?))));
    match &refusal {
        Some((reason, message)) => status::failed(&mut wanted.status, reason, message, now),
        None if failure.is_none() => status::succeeded(&mut wanted.status),
        None => {}
    }
    writer.patch_status(set, &wanted).await?;
    if let Some((reason, message)) = refusal {
        let told = set.status.condition(status::FAILURE);
        // The name in it is another one each time; what the API server says is what matters.
        if told.and_then(|told| told.reason.as_deref()) != Some(reason) {
            let notice = Notice::warning(reason, message);
            report(writer.tell(set, &notice).await);
        }
    }
    failure.map_or(Ok(again), |(_, _, error)| Err(error))
}

async fn tell(
    set: &VirtualMachineInstanceReplicaSet,
    reason: &'static str,
    message: String,
    writer: &Writer,
) {
    report(writer.tell(set, &Notice::normal(reason, message)).await);
}

/// An event that is lost, as in a namespace that is being deleted, is no reason to do anything again.
fn report(told: Result<(), WriteError>) {
    if let Err(error) = told {
        tracing::warn!(error = chain(&error), "an event was lost");
    }
}
