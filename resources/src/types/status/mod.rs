//! What has become of a VirtualMachineInstance.

mod backup;
mod condition;
mod guest;
mod migration;
mod phase;
mod volume;

pub use backup::{BackupStatus, BackupVolume, ChangedBlockTracking};
pub use condition::{Condition, ConditionStatus};
pub use guest::{
    CpuTopology, FileChecksum, GuestOsInfo, InterfaceStatus, KernelBootStatus, MemoryStatus,
    TopologyHints,
};
pub use migration::{
    DowntimeTuning, ExperimentalMigration, MigrationConfiguration, MigrationSourceState,
    MigrationState, MigrationTargetState, StallDetector,
};
pub use phase::{Phase, PhaseTransition};
pub use volume::{
    ClaimInfo, ContainerDiskInfo, HotplugVolumeStatus, MemoryDumpInfo, MigratedVolume, VolumeStatus,
};

use super::Machine;
use super::fields::object;
use std::collections::BTreeMap;

object! {
    /// The status of a VirtualMachineInstance. There is no status subresource: it is part of the object.
    pub struct VirtualMachineInstanceStatus {
        /// Number of the guest's end of its socket to the host.
        #[serde(rename = "VSOCKCID")]
        pub vsock_cid: Option<i64>,
        /// uid of each Pod that may run this VM, and its node. Only the operator writes it; a node agent gives nothing to
        /// a Pod that is not listed.
        pub active_pods: BTreeMap<String, String>,
        /// Whether changed blocks of its disks are remembered.
        pub changed_block_tracking: Option<ChangedBlockTracking>,
        /// What is true of it.
        pub conditions: Vec<Condition>,
        /// Its processors at present.
        #[serde(rename = "currentCPUTopology")]
        pub current_cpu_topology: Option<CpuTopology>,
        /// The node that it is to leave.
        pub evacuation_node_name: Option<String>,
        /// `frozen` while its file systems are held still.
        pub fs_freeze_status: Option<String>,
        /// What the guest agent says of its system.
        #[serde(rename = "guestOSInfo")]
        pub guest_os_info: Option<GuestOsInfo>,
        /// Its network interfaces; that of the Pod's network comes first.
        pub interfaces: Vec<InterfaceStatus>,
        /// The kernel that it was started with.
        pub kernel_boot_status: Option<KernelBootStatus>,
        /// Image of its launcher.
        pub launcher_container_image_version: Option<String>,
        /// Its machine type.
        pub machine: Option<Machine>,
        /// Its memory.
        pub memory: Option<MemoryStatus>,
        /// Volumes that move to other storage with its next migration.
        pub migrated_volumes: Vec<MigratedVolume>,
        /// How it would migrate: `LiveMigration`, or `BlockMigration` if disks move along.
        pub migration_method: Option<String>,
        /// Its last migration, or the one under way.
        pub migration_state: Option<MigrationState>,
        /// How its migrations are carried.
        pub migration_transport: Option<String>,
        /// The node it runs on.
        pub node_name: Option<String>,
        /// Where in its life it is.
        pub phase: Phase,
        /// When it came to each phase.
        pub phase_transition_timestamps: Vec<PhaseTransition>,
        /// Quality-of-service class of its Pod.
        pub qos_class: Option<String>,
        /// Why it is in this phase, in one word.
        pub reason: Option<String>,
        /// User id of its processes.
        pub runtime_user: Option<i64>,
        /// SELinux context of its processes.
        pub selinux_context: Option<String>,
        /// What its next node must have.
        pub topology_hints: Option<TopologyHints>,
        /// The revision of its VirtualMachine that it was made from.
        pub virtual_machine_revision_name: Option<String>,
        /// Its volumes.
        pub volume_status: Vec<VolumeStatus>,
    }
}

impl VirtualMachineInstanceStatus {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}
