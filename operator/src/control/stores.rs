//! The watches of the process.

use super::Watched;
use corten_resources::cluster::{
    VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
    VirtualMachineInstanceReplicaSet,
};
use futures::FutureExt;
use kube::Client;
use kube::runtime::watcher;
use std::future::Future;

/// Every kind that controllers look at, watched once.
#[derive(Clone, Default)]
pub struct Stores {
    /// VirtualMachineInstances.
    pub instances: Watched<VirtualMachineInstance>,
    /// VirtualMachines.
    pub machines: Watched<VirtualMachine>,
    /// VirtualMachineInstanceReplicaSets.
    pub replica_sets: Watched<VirtualMachineInstanceReplicaSet>,
    /// VirtualMachineInstanceMigrations.
    pub migrations: Watched<VirtualMachineInstanceMigration>,
}

impl Stores {
    /// Watches all of them until `stop`. To be run once, beside the controllers.
    pub async fn keep(&self, client: Client, stop: impl Future<Output = ()> + Send) {
        let stop = stop.shared();
        let config = watcher::Config::default;
        futures::join!(
            self.instances.keep(client.clone(), config(), stop.clone()),
            self.machines.keep(client.clone(), config(), stop.clone()),
            self.replica_sets.keep(client.clone(), config(), stop.clone()),
            self.migrations.keep(client, config(), stop),
        );
    }
}
