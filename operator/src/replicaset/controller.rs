//! Joins watches, plan and writes, until told to stop.

use super::apply::apply;
use super::plan::{Observed, plan};
use super::status;
use crate::control::{self, Reconcile, ReconcileError, Stores, ToldAs, Watched, name};
use crate::write::{Verb, Writer};
use corten_resources::cluster::{VirtualMachineInstance, VirtualMachineInstanceReplicaSet};
use corten_resources::types::ConditionStatus;
use jiff::Timestamp;
use kube::Client;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Serves VirtualMachineInstanceReplicaSets until `stop`, then ends what is under way.
pub async fn run(
    client: Client,
    writer: Arc<Writer>,
    stores: &Stores,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let controller =
        stores.replica_sets.controller().owns_shared_stream(stores.instances.touched());
    let sets = Sets { writer: Arc::clone(&writer), instances: stores.instances.clone() };
    control::run(controller, sets, client, writer, stop).await;
}

/// What every reconciliation works with.
struct Sets {
    writer: Arc<Writer>,
    instances: Watched<VirtualMachineInstance>,
}

impl Reconcile for Sets {
    type Kind = VirtualMachineInstanceReplicaSet;

    const NAME: &'static str = "virtualmachineinstancereplicaset";

    const UNREADABLE: ToldAs = ToldAs {
        condition: status::FAILURE,
        status: ConditionStatus::True,
        verb: Verb::PatchStatus,
    };

    async fn reconcile(
        &self,
        set: &VirtualMachineInstanceReplicaSet,
    ) -> Result<Option<Duration>, ReconcileError> {
        if let Some(pause) = self.instances.not_ready() {
            return Ok(Some(pause));
        }
        let all = self.instances.store().state();
        let observed = Observed::of(set, &all);
        let now = Timestamp::now();
        let plan = plan(set, &observed, now);
        let (created, deleted) = (plan.create.len(), plan.delete.len());
        if created + deleted > 0 {
            tracing::info!(replica_set = name(set), created, deleted, "change");
        }
        Ok(apply(set, &plan, &self.writer, now).await?)
    }
}
