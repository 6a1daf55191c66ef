//! Where on a disk file systems may be: partitions of a GPT or an MBR, or all of it.

mod gpt;
mod mbr;

use std::io;

use super::source::Window;

/// More partitions of one disk are not looked at.
const MAX_PARTITIONS: usize = 128;

/// How a disk is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// A GUID partition table.
    Gpt,
    /// The second one, at the end of the disk: the first is damaged.
    GptBackup,
    /// A master boot record.
    Mbr,
    /// Not at all.
    Whole,
}

impl Scheme {
    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gpt => "GPT",
            Self::GptBackup => "GPT, the one at its end, as the first is damaged",
            Self::Mbr => "MBR",
            Self::Whole => "no partitions",
        }
    }
}

/// What a partition is for, as far as the table says it. The order is that in which they are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Boot entries and kernels (`/boot`).
    ExtendedBoot,
    /// The EFI system partition.
    EfiSystem,
    /// Marked as the one to boot.
    Active,
    /// A root file system for this processor.
    Root,
    /// Anything else.
    Other,
    /// Nothing to look into: code of a boot loader, say.
    Reserved,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    /// As the guest counts them, from 1; 0 is the whole disk.
    pub(super) number: u32,
    pub(super) purpose: Purpose,
    /// First byte.
    pub(super) start: u64,
    /// Bytes.
    pub(super) size: u64,
    /// How a kernel is told of it without an initial RAM disk (`PARTUUID`).
    pub(super) uuid: Option<String>,
}

/// The partitions of a disk with sectors of `sector` bytes, in the order in which they are to be looked at.
pub(super) fn read(disk: &Window<'_>, sector: u64) -> io::Result<(Scheme, Vec<Partition>)> {
    let other = if sector == 4096 { 512 } else { 4096 };
    let mut found = None;
    // An image may have been made for other sectors than its disk has.
    for sector in [sector, other] {
        if let Some(found_here) = gpt::read(disk, sector)? {
            found = Some(found_here);
            break;
        }
    }
    if found.is_none() {
        found = mbr::read(disk, sector)?.map(|partitions| (Scheme::Mbr, partitions));
    }
    let (scheme, mut partitions) = found.unwrap_or_else(|| (Scheme::Whole, whole(disk)));
    partitions.truncate(MAX_PARTITIONS);
    partitions.sort_by_key(|partition| partition.purpose);
    Ok((scheme, partitions))
}

fn whole(disk: &Window<'_>) -> Vec<Partition> {
    let (purpose, size) = (Purpose::Other, disk.size());
    let all = Partition { number: 0, purpose, start: 0, size, uuid: None };
    if size > 0 { vec![all] } else { Vec::new() }
}

#[cfg(feature = "fuzz")]
pub(super) fn read_any(bytes: &Vec<u8>, sector: u64) {
    use super::source::Budget;
    let budget = Budget::new(64 << 20);
    let disk = Window::whole(bytes, &budget);
    let Ok((_, partitions)) = read(&disk, sector) else { return };
    assert!(partitions.len() <= MAX_PARTITIONS);
    for partition in partitions {
        assert!(partition.size > 0);
        assert!(partition.start + partition.size <= disk.size());
    }
}

#[cfg(test)]
pub(super) mod testing {
    pub(in crate::disk_boot) use super::gpt::testing::gpt;
    pub(in crate::disk_boot) use super::mbr::testing::mbr;
}
