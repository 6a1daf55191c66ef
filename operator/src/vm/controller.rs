//! Joins watches, plan and writes, until told to stop.

use super::apply::Hands;
use super::observe::observe;
use super::plan::plan;
use super::volumes::Importer;
use crate::control::{self, Guarded, Reconcile, ReconcileError, Stores, ToldAs, Watched, name};
use crate::write::{Verb, Writer};
use corten_resources::cluster::{VirtualMachine, VirtualMachineInstance};
use corten_resources::types::ConditionStatus;
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Serves VirtualMachines until `stop`, then ends what is under way.
pub async fn run(
    client: Client,
    writer: Arc<Writer>,
    stores: &Stores,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let controller = stores.machines.controller().watches_shared_stream(
        stores.instances.touched(),
        // Its own has its name, and one that is in its way has it as well.
        |vmi: Arc<Guarded<VirtualMachineInstance>>| {
            let namespace = vmi.namespace().unwrap_or_default();
            Some(ObjectRef::new(&vmi.name_any()).within(&namespace))
        },
    );
    let machines = Machines {
        client: client.clone(),
        writer: Arc::clone(&writer),
        instances: stores.instances.clone(),
        importer: Importer::default(),
    };
    control::run(controller, machines, client, writer, stop).await;
}

/// What every reconciliation works with.
struct Machines {
    client: Client,
    writer: Arc<Writer>,
    instances: Watched<VirtualMachineInstance>,
    importer: Importer,
}

impl Reconcile for Machines {
    type Kind = VirtualMachine;

    const NAME: &'static str = "virtualmachine";

    const UNREADABLE: ToldAs = ToldAs {
        condition: super::status::FAILURE,
        status: ConditionStatus::True,
        verb: Verb::PatchStatus,
    };

    async fn reconcile(&self, vm: &VirtualMachine) -> Result<Option<Duration>, ReconcileError> {
        if let Some(pause) = self.instances.not_ready() {
            return Ok(Some(pause));
        }
        let observed = observe(vm, &self.instances, &self.importer, &self.client).await?;
        let now = Timestamp::now();
        let plan = plan(vm, &observed, now);
        if let Some(status) = &plan.status {
            let (from, to) = (&vm.status.printable_status, &status.printable_status);
            tracing::info!(vm = name(vm), ?from, ?to, "status");
        }
        if plan.create.is_some() {
            tracing::info!(vm = name(vm), "start");
        }
        if plan.delete.is_some() {
            tracing::info!(vm = name(vm), "stop");
        }
        let hands = Hands { client: &self.client, writer: &self.writer, now };
        Ok(hands.apply(vm, &plan).await?)
    }
}
