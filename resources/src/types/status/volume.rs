//! What has become of volumes.

use crate::Quantity;
use crate::types::fields::object;
use std::collections::BTreeMap;

object! {
    /// A volume of a VM.
    pub struct VolumeStatus {
        /// The image that it comes from.
        pub container_disk_volume: Option<ContainerDiskInfo>,
        /// How it was plugged in.
        pub hotplug_volume: Option<HotplugVolumeStatus>,
        /// The memory that was written to it.
        pub memory_dump_volume: Option<MemoryDumpInfo>,
        /// Why it is in its phase, for people.
        pub message: Option<String>,
        /// Its name.
        pub name: String,
        /// The claim behind it.
        pub persistent_volume_claim_info: Option<ClaimInfo>,
        /// How far plugging it in or out has come.
        pub phase: Option<String>,
        /// Why it is in its phase, in one word.
        pub reason: Option<String>,
        /// Its size, in bytes.
        pub size: Option<i64>,
        /// What the guest calls it, such as `vda`.
        pub target: String,
    }

    /// The image that a disk comes from.
    pub struct ContainerDiskInfo {
        /// Checksum of the disk.
        pub checksum: Option<i64>,
    }

    /// How a volume was plugged in.
    pub struct HotplugVolumeStatus {
        /// The Pod that brought it to the node.
        pub attach_pod_name: Option<String>,
        /// uid of that Pod.
        #[serde(rename = "attachPodUID")]
        pub attach_pod_uid: Option<String>,
    }

    /// Memory of a guest that was written to a volume.
    pub struct MemoryDumpInfo {
        /// The claim it was written to.
        pub claim_name: Option<String>,
        /// When it was done.
        pub end_timestamp: Option<String>,
        /// When it began.
        pub start_timestamp: Option<String>,
        /// The file it was written to.
        pub target_file_name: Option<String>,
    }

    /// A PersistentVolumeClaim behind a volume.
    pub struct ClaimInfo {
        /// How nodes may use it.
        pub access_modes: Vec<String>,
        /// What it has, by resource.
        pub capacity: BTreeMap<String, Quantity>,
        /// Its name.
        pub claim_name: Option<String>,
        /// Which part of it the file system needs itself.
        pub filesystem_overhead: Option<String>,
        /// Its space was taken in advance.
        pub preallocated: Option<bool>,
        /// What was asked for, by resource.
        pub requests: BTreeMap<String, Quantity>,
        /// `Block` or `Filesystem`.
        pub volume_mode: Option<String>,
    }

    /// A volume that moves to other storage.
    pub struct MigratedVolume {
        /// Where it moves to.
        #[serde(rename = "destinationPVCInfo")]
        pub destination_pvc_info: Option<ClaimInfo>,
        /// Where it is.
        #[serde(rename = "sourcePVCInfo")]
        pub source_pvc_info: Option<ClaimInfo>,
        /// Its name.
        pub volume_name: String,
    }
}
