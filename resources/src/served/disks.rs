//! Disks as the guest sees them.

use super::Support::{Harmless, Only, Refused, Served, Values};
use super::{Entry, both};

const AS_VIRTIO: &str = "it is attached as virtio-blk";
const NO_SLOTS: &str = "the machine chooses the slot, by the device's name";

pub(super) const ENTRIES: &[Entry] = &[
    both(
        "spec.domain.devices.disks.blockSize.custom.discardGranularity",
        Harmless("the guest is told what the disk's file has"),
    ),
    both("spec.domain.devices.disks.blockSize.custom.logical", Served),
    both(
        "spec.domain.devices.disks.blockSize.custom.physical",
        Harmless("the guest is told the logical size for both"),
    ),
    both("spec.domain.devices.disks.blockSize.matchVolume.enabled", Served),
    both("spec.domain.devices.disks.bootOrder", Served),
    both(
        "spec.domain.devices.disks.cache",
        Values {
            served: &["none", "writeback"],
            warned: &["writethrough"],
            why: "it is taken for `none`: what the guest flushes is on the disk",
        },
    ),
    both(
        "spec.domain.devices.disks.cdrom.bus",
        Values { served: &["virtio"], warned: &["sata", "scsi", "usb"], why: AS_VIRTIO },
    ),
    both("spec.domain.devices.disks.cdrom.readonly", Only(&["true"])),
    both("spec.domain.devices.disks.cdrom.tray", Only(&["closed"])),
    both(
        "spec.domain.devices.disks.changedBlockTracking",
        Refused("changed blocks are not remembered"),
    ),
    both(
        "spec.domain.devices.disks.dedicatedIOThread",
        Harmless("disks have threads of their own"),
    ),
    both(
        "spec.domain.devices.disks.disk.bus",
        Values { served: &["virtio"], warned: &["sata", "scsi", "usb"], why: AS_VIRTIO },
    ),
    both("spec.domain.devices.disks.disk.pciAddress", Refused(NO_SLOTS)),
    both("spec.domain.devices.disks.disk.readonly", Served),
    both("spec.domain.devices.disks.errorPolicy", Only(&["report", "stop"])),
    both("spec.domain.devices.disks.io", Only(&["native", "threads"])),
    both("spec.domain.devices.disks.lun", Refused("SCSI commands are not passed through")),
    both("spec.domain.devices.disks.name", Served),
    both("spec.domain.devices.disks.serial", Served),
    both("spec.domain.devices.disks.shareable", Served),
    both("spec.domain.devices.disks.tag", Harmless("nothing tells the guest of it")),
];
