//! Joins watch, plan and writes, until told to stop.

use super::plan::{NOT_SERVED, plan};
use crate::control::{self, Reconcile, ReconcileError, Stores, ToldAs};
use crate::failure::chain;
use crate::vmi::Notice;
use crate::write::{Verb, Writer};
use corten_resources::cluster::VirtualMachineInstanceMigration;
use corten_resources::types::ConditionStatus;
use jiff::Timestamp;
use kube::Client;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Serves VirtualMachineInstanceMigrations until `stop`, then ends what is under way.
pub async fn run(
    client: Client,
    writer: Arc<Writer>,
    stores: &Stores,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let controller = stores.migrations.controller();
    let migrations = Migrations { writer: Arc::clone(&writer) };
    control::run(controller, migrations, client, writer, stop).await;
}

/// What every reconciliation works with.
struct Migrations {
    writer: Arc<Writer>,
}

impl Reconcile for Migrations {
    type Kind = VirtualMachineInstanceMigration;

    const NAME: &'static str = "virtualmachineinstancemigration";

    const UNREADABLE: ToldAs =
        ToldAs { condition: NOT_SERVED, status: ConditionStatus::True, verb: Verb::PatchStatus };

    async fn reconcile(
        &self,
        migration: &VirtualMachineInstanceMigration,
    ) -> Result<Option<Duration>, ReconcileError> {
        let plan = plan(migration, Timestamp::now());
        let mut is = migration.clone();
        if let Some(wanted) = &plan.object {
            is.metadata.resource_version = self.writer.patch(migration, wanted).await?;
        }
        if let Some(wanted) = &plan.status {
            self.writer.patch_status(&is, wanted).await?;
        }
        // Not a warning: nothing has failed.
        if let Some(message) = plan.tell
            && let Err(error) =
                self.writer.tell(migration, &Notice::normal(NOT_SERVED, message)).await
        {
            tracing::warn!(error = chain(&error), "an event was lost");
        }
        Ok(None)
    }
}
