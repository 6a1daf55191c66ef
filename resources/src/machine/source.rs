//! What a volume holds.

use crate::types::{
    CloudInit, ConfigMapVolume, ContainerDisk, ContainerPath, DataVolumeReference,
    DownwardApiVolume, EmptyDisk, EphemeralVolume, HostDisk, Marker, SecretVolume,
    ServiceAccountVolume, Sysprep, Volume, VolumeClaim,
};

macro_rules! sources {
    ($( $(#[$about:meta])* $variant:ident($kind:ty) = $member:ident, $field:literal; )+) => {
        /// What a volume holds.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Source<'a> {
            $( $(#[$about])* $variant(&'a $kind), )+
        }

        impl Source<'_> {
            /// The field that names it.
            pub fn field(self) -> &'static str {
                match self {
                    $( Self::$variant(_) => $field, )+
                }
            }
        }

        impl Volume {
            /// Everything that it is said to hold. One of them is right.
            pub fn sources(&self) -> Vec<Source<'_>> {
                [$( self.$member.as_ref().map(Source::$variant), )+].into_iter().flatten().collect()
            }
        }
    };
}

sources! {
    /// Data for cloud-init, as a config drive.
    CloudInitConfigDrive(CloudInit) = cloud_init_config_drive, "cloudInitConfigDrive";
    /// Data for cloud-init, as a NoCloud disk.
    CloudInitNoCloud(CloudInit) = cloud_init_no_cloud, "cloudInitNoCloud";
    /// Files of a ConfigMap.
    ConfigMap(ConfigMapVolume) = config_map, "configMap";
    /// A disk in a container image.
    ContainerDisk(ContainerDisk) = container_disk, "containerDisk";
    /// A folder of the VM's own container.
    ContainerPath(ContainerPath) = container_path, "containerPath";
    /// What a DataVolume has filled.
    DataVolume(DataVolumeReference) = data_volume, "dataVolume";
    /// Files with fields of the object itself.
    DownwardApi(DownwardApiVolume) = downward_api, "downwardAPI";
    /// Numbers of the host.
    DownwardMetrics(Marker) = downward_metrics, "downwardMetrics";
    /// An empty disk.
    EmptyDisk(EmptyDisk) = empty_disk, "emptyDisk";
    /// A claim that is read only.
    Ephemeral(EphemeralVolume) = ephemeral, "ephemeral";
    /// A file on the node.
    HostDisk(HostDisk) = host_disk, "hostDisk";
    /// Where memory is written to.
    MemoryDump(VolumeClaim) = memory_dump, "memoryDump";
    /// A PersistentVolumeClaim.
    PersistentVolumeClaim(VolumeClaim) = persistent_volume_claim, "persistentVolumeClaim";
    /// Files of a Secret.
    Secret(SecretVolume) = secret, "secret";
    /// Files of a service account.
    ServiceAccount(ServiceAccountVolume) = service_account, "serviceAccount";
    /// Answers for the set-up of Windows.
    Sysprep(Sysprep) = sysprep, "sysprep";
}

impl Volume {
    /// What it holds, if that is one thing.
    pub fn source(&self) -> Option<Source<'_>> {
        match self.sources()[..] {
            [source] => Some(source),
            _ => None,
        }
    }

    /// A disk of its own shows it to the guest.
    pub(crate) fn belongs_on_a_disk(&self) -> bool {
        !matches!(self.source(), Some(Source::ContainerPath(_) | Source::MemoryDump(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volume_holds_one_thing() {
        let volume = |value| serde_json::from_value::<Volume>(value).unwrap();
        let one = volume(json!({ "name": "v", "downwardAPI": { "fields": [] } }));
        assert_eq!(one.source().map(Source::field), Some("downwardAPI"));
        let two = volume(json!({ "name": "v", "emptyDisk": {}, "secret": {} }));
        assert_eq!((two.sources().len(), two.source()), (2, None));
        assert_eq!(volume(json!({ "name": "v" })).source(), None);
    }

    #[test]
    fn each_source_is_called_as_its_field_is() {
        let all = serde_json::to_value(Volume::default()).unwrap();
        assert_eq!(all, json!({}));
        for field in ["cloudInitNoCloud", "configMap", "downwardAPI", "hostDisk", "sysprep"] {
            let volume: Volume = serde_json::from_value(json!({ field: {} })).unwrap();
            assert_eq!(volume.source().map(Source::field), Some(field));
        }
    }
}
