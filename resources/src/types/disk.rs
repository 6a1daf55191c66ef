//! Disks as the guest sees them. What they hold are volumes.

use super::FeatureState;
use super::fields::object;

object! {
    /// A disk. Its volume has the same name.
    pub struct Disk {
        /// Sizes of its blocks.
        pub block_size: Option<BlockSize>,
        /// Its place among what is tried for a system to boot, from 1.
        pub boot_order: Option<i32>,
        /// What the host keeps of it in memory: `none`, `writethrough` or `writeback`.
        pub cache: Option<String>,
        /// It is a CD-ROM.
        pub cdrom: Option<CdRomTarget>,
        /// Changed blocks are remembered, for backups.
        pub changed_block_tracking: Option<bool>,
        /// A thread of its own serves it.
        #[serde(rename = "dedicatedIOThread")]
        pub dedicated_io_thread: Option<bool>,
        /// It is a disk; so it is if nothing else is said.
        pub disk: Option<DiskTarget>,
        /// What an error of the host does: `stop`, `ignore`, `report` or `enospace`.
        pub error_policy: Option<String>,
        /// How the host reads and writes: `native` or `threads`.
        pub io: Option<String>,
        /// It is a unit of a SCSI target.
        pub lun: Option<LunTarget>,
        /// Its name, and that of its volume.
        pub name: String,
        /// What the guest reads as its serial number.
        pub serial: Option<String>,
        /// Other VMs may use it at the same time.
        pub shareable: Option<bool>,
        /// A word that cloud-init passes on with its address.
        pub tag: Option<String>,
    }

    /// A disk.
    pub struct DiskTarget {
        /// `virtio`, `sata`, `scsi` or `usb`.
        pub bus: Option<String>,
        /// Its address on the PCI bus.
        pub pci_address: Option<String>,
        /// The guest cannot write to it.
        pub readonly: Option<bool>,
    }

    /// A CD-ROM.
    pub struct CdRomTarget {
        /// `sata`, `scsi` or `usb`.
        pub bus: Option<String>,
        /// The guest cannot write to it; so it is unless this says no.
        pub readonly: Option<bool>,
        /// `open` or `closed`.
        pub tray: Option<String>,
    }

    /// A unit of a SCSI target, whose commands are passed through.
    pub struct LunTarget {
        /// `scsi` or `sata`.
        pub bus: Option<String>,
        /// The guest cannot write to it.
        pub readonly: Option<bool>,
        /// The guest may reserve it.
        pub reservation: Option<bool>,
    }

    /// Sizes of a disk's blocks: one of these.
    pub struct BlockSize {
        /// As given.
        pub custom: Option<CustomBlockSize>,
        /// As its volume has them.
        pub match_volume: Option<FeatureState>,
    }

    /// Sizes of a disk's blocks, in bytes.
    pub struct CustomBlockSize {
        /// The least that is given back at once.
        pub discard_granularity: Option<i32>,
        /// The least that is read or written.
        pub logical: Option<i32>,
        /// The least that is written without reading first.
        pub physical: Option<i32>,
    }
}
