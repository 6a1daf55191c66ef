//! How far a migration has come.

use crate::Quantity;
use crate::types::fields::object;
use std::collections::BTreeMap;

object! {
    /// A migration of a VM from node to node.
    pub struct MigrationState {
        /// Its end was asked for.
        pub abort_requested: Option<bool>,
        /// How far its end has come: `Aborting`, `Succeeded` or `Failed`.
        pub abort_status: Option<String>,
        /// It is over.
        pub completed: Option<bool>,
        /// When it was over.
        pub end_timestamp: Option<String>,
        /// It did not succeed.
        pub failed: Option<bool>,
        /// Why it did not.
        pub failure_reason: Option<String>,
        /// How it is done.
        pub migration_configuration: Option<MigrationConfiguration>,
        /// Which network carries it.
        pub migration_network_type: Option<String>,
        /// The policy that says how it is done.
        pub migration_policy_name: Option<String>,
        /// uid of the VirtualMachineInstanceMigration.
        pub migration_uid: Option<String>,
        /// `PreCopy`, `PostCopy` or `Paused`.
        pub mode: Option<String>,
        /// The node that it leaves.
        pub source_node: Option<String>,
        /// Claim with the state that outlives the VM, there.
        #[serde(rename = "sourcePersistentStatePVCName")]
        pub source_persistent_state_pvc_name: Option<String>,
        /// The Pod that it leaves.
        pub source_pod: Option<String>,
        /// What is known of the side that it leaves.
        pub source_state: Option<MigrationSourceState>,
        /// When it began.
        pub start_timestamp: Option<String>,
        /// uid of the Pod that brings plugged-in volumes to the new node.
        #[serde(rename = "targetAttachmentPodUID")]
        pub target_attachment_pod_uid: Option<String>,
        /// Processors of the new node that are its own.
        #[serde(rename = "targetCPUSet")]
        pub target_cpu_set: Vec<i32>,
        /// Ports on the new node, and what comes in at each.
        pub target_direct_migration_node_ports: BTreeMap<String, i32>,
        /// What its new Pod is given on top of the guest's memory.
        pub target_memory_overhead: Option<Quantity>,
        /// The node that it comes to.
        pub target_node: Option<String>,
        /// Address at which the new node waits.
        pub target_node_address: Option<String>,
        /// The machine was seen on the new node.
        pub target_node_domain_detected: Option<bool>,
        /// When the machine ran on the new node.
        pub target_node_domain_ready_timestamp: Option<String>,
        /// How processors and memory lie on the new node.
        pub target_node_topology: Option<String>,
        /// Claim with the state that outlives the VM, on the new node.
        #[serde(rename = "targetPersistentStatePVCName")]
        pub target_persistent_state_pvc_name: Option<String>,
        /// The Pod that it comes to.
        pub target_pod: Option<String>,
        /// What is known of the side that it comes to.
        pub target_state: Option<MigrationTargetState>,
    }

    /// The side that a VM leaves.
    pub struct MigrationSourceState {
        /// Name of the machine.
        pub domain_name: Option<String>,
        /// Namespace of the machine.
        pub domain_namespace: Option<String>,
        /// uid of the VirtualMachineInstanceMigration.
        #[serde(rename = "migrationUID")]
        pub migration_uid: Option<String>,
        /// The node.
        pub node: Option<String>,
        /// Labels that the other node must have.
        pub node_selectors: BTreeMap<String, String>,
        /// Claim with the state that outlives the VM.
        #[serde(rename = "persistentStatePVCName")]
        pub persistent_state_pvc_name: Option<String>,
        /// The Pod.
        pub pod: Option<String>,
        /// SELinux context of its processes.
        pub selinux_context: Option<String>,
        /// Where the clusters speak to each other.
        pub sync_address: Option<String>,
        /// uid of the VirtualMachineInstance.
        #[serde(rename = "virtualMachineInstanceUID")]
        pub virtual_machine_instance_uid: Option<String>,
    }

    /// The side that a VM comes to.
    pub struct MigrationTargetState {
        /// uid of the Pod that brings plugged-in volumes.
        #[serde(rename = "attachmentPodUID")]
        pub attachment_pod_uid: Option<String>,
        /// Processors that are its own.
        pub cpu_set: Vec<i32>,
        /// Ports, and what comes in at each.
        pub direct_migration_node_ports: BTreeMap<String, i32>,
        /// The machine was seen.
        pub domain_detected: Option<bool>,
        /// Name of the machine.
        pub domain_name: Option<String>,
        /// Namespace of the machine.
        pub domain_namespace: Option<String>,
        /// When the machine ran.
        pub domain_ready_timestamp: Option<String>,
        /// uid of the VirtualMachineInstanceMigration.
        #[serde(rename = "migrationUID")]
        pub migration_uid: Option<String>,
        /// The node.
        pub node: Option<String>,
        /// Address at which it waits.
        pub node_address: Option<String>,
        /// How processors and memory lie.
        pub node_topology: Option<String>,
        /// Claim with the state that outlives the VM.
        #[serde(rename = "persistentStatePVCName")]
        pub persistent_state_pvc_name: Option<String>,
        /// The Pod.
        pub pod: Option<String>,
        /// SELinux context of its processes.
        pub selinux_context: Option<String>,
        /// Where the clusters speak to each other.
        pub sync_address: Option<String>,
        /// uid of the VirtualMachineInstance.
        #[serde(rename = "virtualMachineInstanceUID")]
        pub virtual_machine_instance_uid: Option<String>,
    }

    /// How migrations are done.
    pub struct MigrationConfiguration {
        /// A guest that writes too fast may be slowed.
        pub allow_auto_converge: Option<bool>,
        /// The guest may run on before all of its memory has come.
        pub allow_post_copy: Option<bool>,
        /// The guest may be stopped if it does not get done otherwise.
        pub allow_workload_disruption: Option<bool>,
        /// The most bytes a second.
        pub bandwidth_per_migration: Option<Quantity>,
        /// Seconds that each GiB may take.
        #[serde(rename = "completionTimeoutPerGiB")]
        pub completion_timeout_per_gib: Option<i64>,
        /// It is carried without encryption.
        #[serde(rename = "disableTLS")]
        pub disable_tls: Option<bool>,
        /// What is yet to prove itself.
        pub experimental: Option<ExperimentalMigration>,
        /// Both Pods have the same SELinux level.
        #[serde(rename = "matchSELinuxLevelOnMigration")]
        pub match_selinux_level_on_migration: Option<bool>,
        /// The longest that the guest may stand still, in milliseconds.
        pub max_downtime_ms: Option<i64>,
        /// NetworkAttachmentDefinition of a network of its own.
        pub network: Option<String>,
        /// Taint by which a node is emptied.
        pub node_drain_taint_key: Option<String>,
        /// The most migrations at a time in the cluster.
        pub parallel_migrations_per_cluster: Option<i64>,
        /// The most migrations at a time away from a node.
        pub parallel_outbound_migrations_per_node: Option<i64>,
        /// Seconds without progress after which it is given up.
        pub progress_timeout: Option<i64>,
        /// What is known to be unsafe is not held back.
        pub unsafe_migration_override: Option<bool>,
        /// Seconds for which volumes of the VM's upkeep are waited for.
        pub utility_volumes_timeout: Option<i64>,
    }

    /// Ways of migration that are yet to prove themselves.
    pub struct ExperimentalMigration {
        /// `none` or `zstd`.
        pub compression: Option<String>,
        /// How the longest standstill is come to by steps.
        pub downtime_tuning: Option<DowntimeTuning>,
        /// How it is found that a migration gets nowhere.
        pub stall_detector: Option<StallDetector>,
    }

    /// How the longest standstill is come to by steps.
    pub struct DowntimeTuning {
        /// Seconds from step to step.
        pub cooldown_seconds: Option<i32>,
        /// Milliseconds at first.
        pub initial_ms: Option<i64>,
        /// Passes over memory before the first step.
        pub start_after_iteration: Option<i64>,
        /// How many steps.
        pub steps: Option<i32>,
    }

    /// How it is found that a migration gets nowhere.
    pub struct StallDetector {
        /// How far over the expected time it may run.
        pub completion_timeout_factor: Option<Quantity>,
        /// Weight of the last measurement.
        pub ewma_alpha: Option<Quantity>,
        /// How patience dwindles.
        pub patience_window_decay_factor: Option<Quantity>,
        /// How far over the longest standstill is still within reach.
        pub precopy_possible_factor: Option<Quantity>,
        /// A good moment is waited for.
        pub search_local_minima: Option<bool>,
        /// Percent of progress that do not count.
        pub stall_margin: Option<i64>,
        /// Seconds without progress.
        pub stall_progress_timeout: Option<i64>,
        /// Seconds that the last step may take.
        pub switchover_timeout: Option<i64>,
    }
}
