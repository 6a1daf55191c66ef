//! What has become of a VirtualMachine.

use crate::types::fields::object;
use crate::types::{
    ChangedBlockTracking, Condition, DataVolumeReference, Disk, MigratedVolume, VolumeClaim,
};
use std::collections::BTreeMap;

object! {
    /// The status of a VirtualMachine.
    pub struct VirtualMachineStatus {
        /// Whether changed blocks of its disks are remembered.
        pub changed_block_tracking: Option<ChangedBlockTracking>,
        /// What is true of it.
        pub conditions: Vec<Condition>,
        /// Its VirtualMachineInstance is there.
        pub created: Option<bool>,
        /// Generation that is to be reached.
        pub desired_generation: Option<i64>,
        /// The instance type that was used.
        pub instancetype_ref: Option<InstancetypeStatus>,
        /// A copy of its memory that was asked for.
        pub memory_dump_request: Option<MemoryDumpRequest>,
        /// Generation that was last looked at.
        pub observed_generation: Option<i64>,
        /// The preference that was used.
        pub preference_ref: Option<InstancetypeStatus>,
        /// What becomes of it, in one word.
        pub printable_status: Option<String>,
        /// Its guest runs and is ready to serve.
        pub ready: Option<bool>,
        /// The restore under way.
        pub restore_in_progress: Option<String>,
        /// The run strategy that was last acted on.
        pub run_strategy: Option<String>,
        /// The snapshot under way.
        pub snapshot_in_progress: Option<String>,
        /// How it failed to start.
        pub start_failure: Option<StartFailure>,
        /// Starts and stops that were asked for.
        pub state_change_requests: Vec<StateChangeRequest>,
        /// Volumes that are to be plugged in or out.
        pub volume_requests: Vec<VolumeRequest>,
        /// Which volumes can be part of a snapshot.
        pub volume_snapshot_statuses: Vec<VolumeSnapshotStatus>,
        /// How far a change of its volumes has come.
        pub volume_update_state: Option<VolumeUpdateState>,
    }

    /// An instance type or preference that was used.
    pub struct InstancetypeStatus {
        /// What keeps it as it was.
        pub controller_revision_ref: Option<ControllerRevision>,
        /// The volume whose labels named it.
        pub infer_from_volume: Option<String>,
        /// What happens if they do not.
        pub infer_from_volume_failure_policy: Option<String>,
        /// Its kind.
        pub kind: Option<String>,
        /// Its name.
        pub name: Option<String>,
    }

    /// A ControllerRevision.
    pub struct ControllerRevision {
        /// Its name.
        pub name: Option<String>,
    }

    /// A copy of a guest's memory that was asked for.
    pub struct MemoryDumpRequest {
        /// The claim it is written to.
        pub claim_name: String,
        /// When it was done.
        pub end_timestamp: Option<String>,
        /// The file it is written to.
        pub file_name: Option<String>,
        /// Why it is in its phase.
        pub message: Option<String>,
        /// How far it has come.
        pub phase: String,
        /// It is to be taken away again.
        pub remove: Option<bool>,
        /// When it began.
        pub start_timestamp: Option<String>,
    }

    /// How a VirtualMachine failed to start.
    pub struct StartFailure {
        /// How many times in a row.
        pub consecutive_fail_count: Option<i32>,
        /// uid of the VirtualMachineInstance that failed last.
        #[serde(rename = "lastFailedVMIUID")]
        pub last_failed_vmi_uid: Option<String>,
        /// When it is tried again.
        pub retry_after_timestamp: Option<String>,
    }

    /// A start or stop that was asked for.
    pub struct StateChangeRequest {
        /// `Start` or `Stop`.
        pub action: String,
        /// More about it.
        pub data: BTreeMap<String, String>,
        /// uid of the VirtualMachineInstance that is to stop.
        pub uid: Option<String>,
    }

    /// A volume that is to be plugged in or out: one of these.
    pub struct VolumeRequest {
        /// It is to be plugged in.
        pub add_volume_options: Option<AddVolume>,
        /// It is to be plugged out.
        pub remove_volume_options: Option<RemoveVolume>,
    }

    /// A volume that is to be plugged in.
    pub struct AddVolume {
        /// How the guest sees it.
        pub disk: Disk,
        /// Whether it is only tried.
        pub dry_run: Vec<String>,
        /// Its name.
        pub name: String,
        /// What it holds.
        pub volume_source: HotplugVolumeSource,
    }

    /// What a volume holds that is plugged in: one of these.
    pub struct HotplugVolumeSource {
        /// What a DataVolume has filled.
        pub data_volume: Option<DataVolumeReference>,
        /// A PersistentVolumeClaim.
        pub persistent_volume_claim: Option<VolumeClaim>,
    }

    /// A volume that is to be plugged out.
    pub struct RemoveVolume {
        /// Whether it is only tried.
        pub dry_run: Vec<String>,
        /// Its name.
        pub name: String,
    }

    /// Whether a volume can be part of a snapshot.
    pub struct VolumeSnapshotStatus {
        /// It can.
        pub enabled: bool,
        /// Its name.
        pub name: String,
        /// Why it cannot.
        pub reason: Option<String>,
    }

    /// How far a change of volumes has come.
    pub struct VolumeUpdateState {
        /// The part that is done by migration.
        pub volume_migration_state: Option<VolumeMigrationState>,
    }

    /// Volumes that change by migration.
    pub struct VolumeMigrationState {
        /// These.
        pub migrated_volumes: Vec<MigratedVolume>,
    }
}
