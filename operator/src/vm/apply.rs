//! Does what was planned.

use super::plan::{Plan, Problem};
use super::{revision, status, volumes};
use crate::control::{conditions, owner};
use crate::failure::chain;
use crate::vmi::Notice;
use crate::write::{Only, WriteError, Writer};
use corten_resources::cluster::{VirtualMachine, VirtualMachineInstance};
use corten_resources::types::VirtualMachineStatus;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use std::time::Duration;

/// How soon to look again for an instance that is there, and of which the watch has not told yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a plan is applied with.
pub(super) struct Hands<'a> {
    pub(super) client: &'a Client,
    pub(super) writer: &'a Writer,
    pub(super) now: Timestamp,
}

impl Hands<'_> {
    /// Does what was planned for an object. A request is taken from the status after what it asked for is done, a
    /// failure is noted before what failed is deleted: whatever is interrupted is found again.
    pub(super) async fn apply(
        &self,
        vm: &VirtualMachine,
        plan: &Plan,
    ) -> Result<Option<Duration>, WriteError> {
        let mut is = vm.clone();
        if let Some(wanted) = &plan.vm {
            is.metadata.resource_version = self.writer.patch(vm, wanted).await?;
        }
        for volume in &plan.volumes {
            let created = self.writer.create_dynamic(volume, &volumes::data_volume()).await;
            let what = format!("DataVolume {}", volume.name_any());
            let reasons = ("SuccessfulDataVolumeCreate", "FailedDataVolumeCreate");
            self.created(&is, plan, created, &what, reasons).await?;
        }
        if let Some(creation) = &plan.create {
            let (vmi, revision) = &**creation;
            let what = format!("VirtualMachineInstance {}", vmi.name_any());
            let reasons = ("SuccessfulCreate", "FailedCreate");
            // The revision comes first: an instance without one could never be compared.
            let created = match self.writer.create(revision).await {
                Ok(_) => self.writer.create(vmi).await,
                Err(error) => Err(error),
            };
            if !self.created(&is, plan, created, &what, reasons).await? {
                // Whose it is is seen when the watch tells of it.
                return Ok(Some(LOOK_AGAIN));
            }
        }
        if let Some(wanted) = &plan.status {
            self.write_status(&is, wanted.as_ref().clone()).await?;
        }
        if let Some(vmi) = &plan.adopt {
            let mut wanted = VirtualMachineInstance::clone(vmi);
            wanted.owner_references_mut().push(owner::reference(vm));
            self.writer.patch(&**vmi, &wanted).await?;
            let message = format!("Adopted the VirtualMachineInstance {}", vmi.name_any());
            self.tell(vm, &Notice::normal("SuccessfulAdopt", message)).await;
        }
        if let Some(vmi) = &plan.delete {
            self.delete(vm, vmi).await?;
        }
        if plan.create.is_some() {
            self.prune(vm).await;
        }
        for notice in &plan.notices {
            self.tell(vm, notice).await;
        }
        Ok(plan.again)
    }

    /// Tells what came of a creation; whether it was one. A refusal stays as a condition, once, and is tried again.
    async fn created(
        &self,
        vm: &VirtualMachine,
        plan: &Plan,
        created: Result<bool, WriteError>,
        what: &str,
        (done, failed): (&'static str, &'static str),
    ) -> Result<bool, WriteError> {
        let error = match created {
            Ok(true) => {
                self.tell(vm, &Notice::normal(done, format!("Created {what}"))).await;
                return Ok(true);
            }
            Ok(false) => return Ok(false),
            Err(error) => error,
        };
        if let Some(refusal) = error.refusal() {
            let message = format!("Cannot create {what}: {refusal}");
            let problem = Problem { reason: failed, message };
            let planned = plan.status.as_deref().unwrap_or(&vm.status);
            let wanted = status::not_made(vm, planned, &problem, self.now);
            let told = conditions::get(&vm.status.conditions, status::FAILURE);
            let is_new = told.and_then(|told| told.message.as_ref()) != Some(&problem.message);
            self.write_status(vm, wanted).await?;
            if is_new {
                self.tell(vm, &Notice::warning(failed, problem.message)).await;
            }
        }
        Err(error)
    }

    async fn delete(
        &self,
        vm: &VirtualMachine,
        vmi: &VirtualMachineInstance,
    ) -> Result<(), WriteError> {
        // When the machine itself goes, its instance may have been left to stay, and the cache be behind.
        let only = match vm.metadata.deletion_timestamp {
            Some(_) => Only::ThisVersion,
            None => Only::This,
        };
        let deleted = self.writer.delete(vmi, None, only).await;
        let what = format!("VirtualMachineInstance {}", vmi.name_any());
        if let Some(refusal) = deleted.as_ref().err().and_then(WriteError::refusal) {
            let message = format!("Cannot delete {what}: {refusal}");
            self.tell(vm, &Notice::warning("FailedDelete", message)).await;
        }
        deleted?;
        self.tell(vm, &Notice::normal("SuccessfulDelete", format!("Deleted {what}"))).await;
        Ok(())
    }

    /// Deletes the revisions of starts before. What is left over is found at the next start.
    async fn prune(&self, vm: &VirtualMachine) {
        let api: Api<ControllerRevision> =
            Api::namespaced(self.client.clone(), &vm.namespace().unwrap_or_default());
        let all = ListParams::default().labels(&revision::selector(vm));
        let found = match api.list(&all).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot list ControllerRevisions");
                return;
            }
        };
        let present = revision::revision_name(vm);
        let own = |revision: &ControllerRevision| owner::is_of(revision, vm);
        for old in found.items.iter().filter(|it| own(it) && it.name_any() != present) {
            if let Err(error) = self.writer.delete(old, None, Only::This).await {
                tracing::warn!(error = chain(&error), "a ControllerRevision was left over");
            }
        }
    }

    async fn write_status(
        &self,
        is: &VirtualMachine,
        status: VirtualMachineStatus,
    ) -> Result<(), WriteError> {
        let mut should = is.clone();
        should.status = status;
        self.writer.patch_status(is, &should).await.map(drop)
    }

    /// An event that is lost, as in a namespace that is being deleted, is no reason to do anything again.
    async fn tell(&self, vm: &VirtualMachine, notice: &Notice) {
        if let Err(error) = self.writer.tell(vm, notice).await {
            tracing::warn!(error = chain(&error), "an event was lost");
        }
    }
}
