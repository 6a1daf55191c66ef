//! Corten's control plane: observes `kubevirt.io/v1` objects, plans with pure functions, applies.
//!
//! | module | holds |
//! |---|---|
//! | [`vm`] | the controller of VirtualMachines: run strategies, starts and stops |
//! | [`replicaset`] | the controller of VirtualMachineInstanceReplicaSets |
//! | [`migration`] | says of VirtualMachineInstanceMigrations that they come later |
//! | [`vmi`] | the controller of VirtualMachineInstances: their Pods, phases, conditions, deletion |
//! | [`pod`] | a VirtualMachineInstance as a launcher Pod; a pure function |
//! | [`control`] | what controllers share: one watch of a kind, the run loop, conditions |
//! | [`install`] | the KubeVirt object: node agents, policies and webhooks as it says |
//! | [`settings`] | what can change while the operator runs, from the KubeVirt object |
//! | [`admission`] | reviews of what is written to the API server |
//! | [`certs`] | the certificate for it, made and renewed by the operator itself |
//! | [`serve`] | the ports: webhooks, health, metrics |
//! | [`metrics`] | what is counted |
//! | [`lease`] | which replica leads |
//! | [`mod@write`] | every write to the API server, counted |
//!
//! Every replica serves; the one that holds the Lease runs the controllers. Two that think they lead do no harm: Pods
//! have names that follow from their VirtualMachineInstance, and every other write compares versions.

#![forbid(unsafe_code)]

pub mod admission;
pub mod certs;
pub mod control;
mod failure;
pub mod install;
pub mod lease;
pub mod metrics;
pub mod migration;
pub mod pod;
pub mod replicaset;
pub mod serve;
pub mod settings;
mod stop;
#[cfg(test)]
mod testing;
pub mod vm;
pub mod vmi;
pub mod write;

pub use settings::{SeccompKind, Settings};
pub use stop::{Stop, Stopper};

/// What the operator is told when it starts.
#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// Image of the launcher
    #[arg(long, env = "CORTEN_LAUNCHER_IMAGE")]
    pub launcher_image: String,
    /// When the launcher's image is pulled: Always, IfNotPresent or Never
    #[arg(long, env = "CORTEN_LAUNCHER_PULL_POLICY", default_value = "IfNotPresent",
        value_parser = ["Always", "IfNotPresent", "Never"])]
    pub launcher_pull_policy: String,
}
