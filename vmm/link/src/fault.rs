//! What exactly kept a VM from starting, for whoever tells users what to do.

use serde::{Deserialize, Serialize};

use crate::BootFault;

/// What exactly kept a VM from starting. It goes with [`EndReason::NotStarted`](crate::EndReason::NotStarted) into the termination
/// message, as one word; who reads that takes words of later releases as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartFault {
    /// The object says something that cannot be.
    InvalidSpec,
    /// What a disk is to be made of is not there.
    DiskMissing,
    /// An image has no file that could be a disk, or more than one.
    ImageWithoutDisk,
    /// Another VM writes to a disk.
    DiskInUse,
    /// There is not enough room for a disk.
    NoRoomForDisk,
    /// What is there is no disk.
    VolumeUnusable,
    /// The kernel or the initial RAM disk is not there.
    KernelMissing,
    /// The kernel is none, or damaged.
    KernelUnusable,
    /// The initial RAM disk cannot be read.
    InitrdUnusable,
    /// The command line is more than the kernel takes.
    CommandLineTooLong,
    /// Guest memory is too small for what is booted.
    GuestMemoryTooSmall,
    /// The agent gives the launcher nothing.
    Dismissed,
}

impl From<BootFault> for StartFault {
    fn from(fault: BootFault) -> Self {
        match fault {
            BootFault::Kernel => Self::KernelUnusable,
            BootFault::Initrd => Self::InitrdUnusable,
            BootFault::CommandLine => Self::CommandLineTooLong,
            BootFault::Memory => Self::GuestMemoryTooSmall,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_one_word_each_that_does_not_change() {
        let table = [
            (StartFault::InvalidSpec, "invalid-spec"),
            (StartFault::DiskMissing, "disk-missing"),
            (StartFault::ImageWithoutDisk, "image-without-disk"),
            (StartFault::DiskInUse, "disk-in-use"),
            (StartFault::NoRoomForDisk, "no-room-for-disk"),
            (StartFault::VolumeUnusable, "volume-unusable"),
            (StartFault::KernelMissing, "kernel-missing"),
            (StartFault::KernelUnusable, "kernel-unusable"),
            (StartFault::InitrdUnusable, "initrd-unusable"),
            (StartFault::CommandLineTooLong, "command-line-too-long"),
            (StartFault::GuestMemoryTooSmall, "guest-memory-too-small"),
            (StartFault::Dismissed, "dismissed"),
        ];
        for (fault, word) in table {
            assert_eq!(serde_json::to_value(fault).unwrap(), word);
        }
    }
}
