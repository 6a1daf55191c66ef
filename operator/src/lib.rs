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
//! | [`settings`] | what the cluster's administrator decides for every VM |
//! | [`mod@write`] | every write to the API server, counted |
//!
//! One replica runs. A second would do no harm, as Pods have names that follow from their VirtualMachineInstance and
//! every other write compares versions, but the two would only fetch each other's refusals: there is no election yet.

#![forbid(unsafe_code)]

pub mod control;
mod failure;
pub mod migration;
pub mod pod;
pub mod replicaset;
pub mod settings;
pub mod vm;
pub mod vmi;
pub mod write;

pub use settings::{SeccompKind, Settings};

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
