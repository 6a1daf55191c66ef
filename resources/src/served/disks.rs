//! Disks as the guest sees them.

use super::Support::{Harmless, Only, Refused, Served, Values};
use super::{Entry, alone, both};

const AS_VIRTIO: &str = "it is attached as virtio-blk";
const NO_SLOTS: &str = "the machine chooses the slot, by the device's name";

pub(super) const ENTRIES: &[Entry] = &[
    alone(
        "spec.domain.devices.disks.blockSize.custom.discardGranularity",
        Harmless("the guest is told what the disk's file has"),
    ),
    alone("spec.domain.devices.disks.blockSize.custom.logical", Served),
    alone(
        "spec.domain.devices.disks.blockSize.custom.physical",
        Harmless("the guest is told the logical size for both"),
    ),
    alone("spec.domain.devices.disks.blockSize.matchVolume.enabled", Served),
    alone("spec.domain.devices.disks.bootOrder", Served),
    alone(
        "spec.domain.devices.disks.cache",
        Values {
            served: &["none", "writeback"],
            warned: &["writethrough"],
            why: "it is taken for `none`: what the guest flushes is on the disk",
        },
    ),
    alone(
        "spec.domain.devices.disks.cdrom.bus",
        Values { served: &["virtio"], warned: &["sata", "scsi", "usb"], why: AS_VIRTIO },
    ),
    alone("spec.domain.devices.disks.cdrom.readonly", Only(&["true"])),
    alone("spec.domain.devices.disks.cdrom.tray", Only(&["closed"])),
    both(
        "spec.domain.devices.disks.changedBlockTracking",
        Refused("changed blocks are not remembered"),
    ),
    alone(
        "spec.domain.devices.disks.dedicatedIOThread",
        Harmless("disks have threads of their own"),
    ),
    alone(
        "spec.domain.devices.disks.disk.bus",
        Values { served: &["virtio"], warned: &["sata", "scsi", "usb"], why: AS_VIRTIO },
    ),
    both("spec.domain.devices.disks.disk.pciAddress", Refused(NO_SLOTS)),
    alone("spec.domain.devices.disks.disk.readonly", Served),
    alone("spec.domain.devices.disks.errorPolicy", Only(&["report", "stop"])),
    alone("spec.domain.devices.disks.io", Only(&["native", "threads"])),
    both("spec.domain.devices.disks.lun", Refused("SCSI commands are not passed through")),
    alone("spec.domain.devices.disks.name", Served),
    alone("spec.domain.devices.disks.serial", Served),
    alone("spec.domain.devices.disks.shareable", Served),
    alone("spec.domain.devices.disks.tag", Harmless("nothing tells the guest of it")),
];
