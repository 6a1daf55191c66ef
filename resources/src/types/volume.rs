//! What disks hold.

use super::fields::object;
use super::{ClaimSource, DownwardApiFile, LocalObjectReference, Marker};
use crate::Quantity;

object! {
    /// Something that a disk can hold: a name and one source.
    pub struct Volume {
        /// Data for cloud-init, as a config drive.
        pub cloud_init_config_drive: Option<CloudInit>,
        /// Data for cloud-init, as a NoCloud disk.
        pub cloud_init_no_cloud: Option<CloudInit>,
        /// Files of a ConfigMap.
        pub config_map: Option<ConfigMapVolume>,
        /// A disk in a container image; what is written to it ends with the VM.
        pub container_disk: Option<ContainerDisk>,
        /// A folder of the VM's own container.
        pub container_path: Option<ContainerPath>,
        /// What a DataVolume has filled.
        pub data_volume: Option<DataVolumeReference>,
        /// Files with fields of the object itself.
        #[serde(rename = "downwardAPI")]
        pub downward_api: Option<DownwardApiVolume>,
        /// Numbers of the host, as a small disk.
        pub downward_metrics: Option<Marker>,
        /// An empty disk that ends with the VM.
        pub empty_disk: Option<EmptyDisk>,
        /// A PersistentVolumeClaim that is read only; what is written ends with the VM.
        pub ephemeral: Option<EphemeralVolume>,
        /// A file on the node.
        pub host_disk: Option<HostDisk>,
        /// Where the guest's memory is written to when asked for.
        pub memory_dump: Option<VolumeClaim>,
        /// Its name, and that of its disk.
        pub name: String,
        /// A PersistentVolumeClaim.
        pub persistent_volume_claim: Option<VolumeClaim>,
        /// Files of a Secret.
        pub secret: Option<SecretVolume>,
        /// Files of a service account.
        pub service_account: Option<ServiceAccountVolume>,
        /// Answers for the set-up of Windows.
        pub sysprep: Option<Sysprep>,
    }

    /// Data for cloud-init. Each kind has one source at most.
    pub struct CloudInit {
        /// Configuration of the network.
        pub network_data: Option<String>,
        /// Configuration of the network, in Base64.
        pub network_data_base64: Option<String>,
        /// Configuration of the network, in a Secret.
        pub network_data_secret_ref: Option<LocalObjectReference>,
        /// What the guest is to do when it first boots, in a Secret.
        pub secret_ref: Option<LocalObjectReference>,
        /// What the guest is to do when it first boots.
        pub user_data: Option<String>,
        /// What the guest is to do when it first boots, in Base64.
        pub user_data_base64: Option<String>,
    }

    /// Files of a ConfigMap.
    pub struct ConfigMapVolume {
        /// Its name.
        pub name: Option<String>,
        /// It may be missing.
        pub optional: Option<bool>,
        /// What the file system is labelled.
        pub volume_label: Option<String>,
    }

    /// A disk in a container image.
    pub struct ContainerDisk {
        /// Name of the image.
        pub image: String,
        /// `Always`, `IfNotPresent` or `Never`.
        pub image_pull_policy: Option<String>,
        /// Secret in the same namespace that lets the image be pulled.
        pub image_pull_secret: Option<String>,
        /// Path of the disk in the image; the one file in `/disk` if not given.
        pub path: Option<String>,
    }

    /// A folder of the VM's own container.
    pub struct ContainerPath {
        /// Its path.
        pub path: String,
        /// It is not written to.
        pub read_only: Option<bool>,
    }

    /// A DataVolume.
    pub struct DataVolumeReference {
        /// It was plugged in while the VM ran, and can be unplugged.
        pub hotpluggable: Option<bool>,
        /// Its name.
        pub name: String,
    }

    /// Files with fields of the object itself.
    pub struct DownwardApiVolume {
        /// The files.
        pub fields: Vec<DownwardApiFile>,
        /// What the file system is labelled.
        pub volume_label: Option<String>,
    }

    /// An empty disk.
    pub struct EmptyDisk {
        /// Its size.
        pub capacity: Option<Quantity>,
    }

    /// A PersistentVolumeClaim that is read only.
    pub struct EphemeralVolume {
        /// The claim.
        pub persistent_volume_claim: Option<ClaimSource>,
    }

    /// A file on the node.
    pub struct HostDisk {
        /// Its size, if it is yet to be made.
        pub capacity: Option<Quantity>,
        /// Its path.
        pub path: String,
        /// Every node has the same file at this path.
        pub shared: Option<bool>,
        /// `Disk`, or `DiskOrCreate` if it may be made.
        #[serde(rename = "type")]
        pub kind: String,
    }

    /// A PersistentVolumeClaim.
    pub struct VolumeClaim {
        /// Its name.
        pub claim_name: String,
        /// It was plugged in while the VM ran, and can be unplugged.
        pub hotpluggable: Option<bool>,
        /// It is not written to.
        pub read_only: Option<bool>,
    }

    /// Files of a Secret.
    pub struct SecretVolume {
        /// It may be missing.
        pub optional: Option<bool>,
        /// Its name.
        pub secret_name: Option<String>,
        /// What the file system is labelled.
        pub volume_label: Option<String>,
    }

    /// Files of a service account.
    pub struct ServiceAccountVolume {
        /// Its name.
        pub service_account_name: Option<String>,
    }

    /// Answers for the set-up of Windows: from one of these.
    pub struct Sysprep {
        /// A ConfigMap.
        pub config_map: Option<LocalObjectReference>,
        /// A Secret.
        pub secret: Option<LocalObjectReference>,
    }
}
