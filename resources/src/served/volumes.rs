//! What disks hold.

use super::Support::{Harmless, Only, Partly, Refused, Served};
use super::{Entry, both, each};

/// It would open any file of the node to whoever may make a VM there.
const NO_HOST_DISK: &str = "files of a node are not opened for its guests: take a PersistentVolumeClaim, for example on a local volume";
const NO_HOTPLUG: &str = "nothing is plugged in while the machine runs";

pub(super) const ENTRIES: &[Entry] = &[
    both("spec.volumes.cloudInitConfigDrive", Served),
    both("spec.volumes.cloudInitConfigDrive.networkData", Served),
    both("spec.volumes.cloudInitConfigDrive.networkDataBase64", Served),
    both("spec.volumes.cloudInitConfigDrive.networkDataSecretRef.name", Served),
    both("spec.volumes.cloudInitConfigDrive.secretRef.name", Served),
    both("spec.volumes.cloudInitConfigDrive.userData", Served),
    both("spec.volumes.cloudInitConfigDrive.userDataBase64", Served),
    both("spec.volumes.cloudInitNoCloud", Served),
    both("spec.volumes.cloudInitNoCloud.networkData", Served),
    both("spec.volumes.cloudInitNoCloud.networkDataBase64", Served),
    both("spec.volumes.cloudInitNoCloud.networkDataSecretRef.name", Served),
    both("spec.volumes.cloudInitNoCloud.secretRef.name", Served),
    both("spec.volumes.cloudInitNoCloud.userData", Served),
    both("spec.volumes.cloudInitNoCloud.userDataBase64", Served),
    both("spec.volumes.configMap.name", Served),
    both("spec.volumes.configMap.optional", Served),
    both("spec.volumes.configMap.volumeLabel", Served),
    both("spec.volumes.containerDisk.image", Served),
    both("spec.volumes.containerDisk.imagePullPolicy", Only(&["Always", "IfNotPresent", "Never"])),
    each(
        "spec.volumes.containerDisk.imagePullSecret",
        Harmless("images are fetched with the credentials of whoever starts the machine"),
        Served,
    ),
    both("spec.volumes.containerDisk.path", Served),
    both("spec.volumes.containerPath", Refused("folders are not shared with guests")),
    both("spec.volumes.dataVolume.hotpluggable", Refused(NO_HOTPLUG)),
    both("spec.volumes.dataVolume.name", Served),
    both("spec.volumes.downwardAPI.fields.fieldRef.apiVersion", Served),
    both("spec.volumes.downwardAPI.fields.fieldRef.fieldPath", Served),
    both(
        "spec.volumes.downwardAPI.fields.mode",
        Harmless("files on the guest's disk can be read by everybody"),
    ),
    both("spec.volumes.downwardAPI.fields.path", Served),
    both(
        "spec.volumes.downwardAPI.fields.resourceFieldRef",
        Refused("there is no container whose resources it could tell"),
    ),
    both("spec.volumes.downwardAPI.volumeLabel", Served),
    both("spec.volumes.downwardMetrics", Served),
    both("spec.volumes.emptyDisk.capacity", Served),
    both("spec.volumes.ephemeral.persistentVolumeClaim.claimName", Served),
    both("spec.volumes.ephemeral.persistentVolumeClaim.readOnly", Served),
    each("spec.volumes.hostDisk.capacity", Served, Refused(NO_HOST_DISK)),
    each("spec.volumes.hostDisk.path", Served, Refused(NO_HOST_DISK)),
    each("spec.volumes.hostDisk.shared", Harmless("there is one node"), Refused(NO_HOST_DISK)),
    each("spec.volumes.hostDisk.type", Only(&["Disk", "DiskOrCreate"]), Refused(NO_HOST_DISK)),
    both("spec.volumes.memoryDump", Refused("memory dumps are not served")),
    both("spec.volumes.name", Served),
    both("spec.volumes.persistentVolumeClaim.claimName", Served),
    both("spec.volumes.persistentVolumeClaim.hotpluggable", Refused(NO_HOTPLUG)),
    both("spec.volumes.persistentVolumeClaim.readOnly", Served),
    both("spec.volumes.secret.optional", Served),
    both("spec.volumes.secret.secretName", Served),
    both("spec.volumes.secret.volumeLabel", Served),
    each(
        "spec.volumes.serviceAccount.serviceAccountName",
        Partly("its files are those of the directory that `corten run --volume NAME=DIR` names"),
        Served,
    ),
    both("spec.volumes.sysprep", Refused("the set-up of Windows is not served")),
];
