//! A VirtualMachineInstanceMigration: the wish that a VM moves to another node, and how far it has come.

use super::fields::object;
use super::{Condition, MigrationState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

object! {
    /// The specification of a VirtualMachineInstanceMigration.
    pub struct VirtualMachineInstanceMigrationSpec {
        /// Labels the new node must have, on top of what the VM asks for.
        pub added_node_selector: BTreeMap<String, String>,
        /// Which migrations come first: `system-critical`, `user-triggered` or `system-maintenance`.
        pub priority: Option<String>,
        /// It is the side that a VM comes to from another cluster.
        pub receive: Option<MigrationReceiver>,
        /// It is the side that a VM leaves for another cluster.
        pub send_to: Option<MigrationSender>,
        /// The VirtualMachineInstance, of the same namespace.
        pub vmi_name: Option<String>,
    }

    /// The side that a VM comes to from another cluster.
    pub struct MigrationReceiver {
        /// What both sides call the migration.
        #[serde(rename = "migrationID")]
        pub migration_id: String,
    }

    /// The side that a VM leaves for another cluster.
    pub struct MigrationSender {
        /// Where the other cluster waits.
        #[serde(rename = "connectURL")]
        pub connect_url: String,
        /// What both sides call the migration.
        #[serde(rename = "migrationID")]
        pub migration_id: String,
    }

    /// The status of a VirtualMachineInstanceMigration.
    pub struct VirtualMachineInstanceMigrationStatus {
        /// What is true of it.
        pub conditions: Vec<Condition>,
        /// How far the VM has come; a copy from the VirtualMachineInstance.
        pub migration_state: Option<MigrationState>,
        /// Where in its life it is.
        pub phase: MigrationPhase,
        /// When it came to each phase.
        pub phase_transition_timestamps: Vec<MigrationPhaseTransition>,
        /// Where the clusters speak to each other.
        pub synchronization_addresses: Vec<String>,
    }

    /// When a migration came to a phase.
    pub struct MigrationPhaseTransition {
        /// The phase.
        pub phase: MigrationPhase,
        /// When, as RFC 3339 writes it.
        pub phase_transition_timestamp: String,
    }
}

impl VirtualMachineInstanceMigrationStatus {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// Where in its life a migration is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
pub enum MigrationPhase {
    /// Nobody has looked at it yet.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// Accepted; it waits for its turn.
    Pending,
    /// The new Pod has been made.
    Scheduling,
    /// The new Pod has a node and runs.
    Scheduled,
    /// The new node gets ready.
    PreparingTarget,
    /// The new node waits for the VM.
    TargetReady,
    /// The VM is on its way.
    Running,
    /// The VM runs on the new node.
    Succeeded,
    /// The VM stayed, or was lost.
    Failed,
    /// It waits for the other cluster.
    WaitingForSync,
    /// The clusters speak to each other.
    Synchronizing,
    /// Nobody knows, or a later release does.
    #[serde(other)]
    Unknown,
}

impl MigrationPhase {
    /// Nobody has looked at it yet.
    pub fn is_unset(&self) -> bool {
        *self == Self::Unset
    }

    /// Nothing comes after.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}
