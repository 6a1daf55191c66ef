//! How large files are made.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use nix::sys::statvfs::fstatvfs;

use super::DiskImageError;
use super::opening::Volume;
use crate::volumes::probe::SECTOR;

/// What sizes of files that are made are multiples of.
const MEBIBYTE: u64 = 1 << 20;
/// What is left free of a volume.
const RESERVE: u64 = 128 << 10;
/// How much less than asked for is taken, in percent.
const TOLERANCE: u64 = 10;

/// What a disk of that capacity can have where it is to be made.
pub(super) fn fitting(volume: &Volume, capacity: u64) -> Result<u64, DiskImageError> {
    let wanted = whole_mebibytes(capacity)?;
    let free = free(&volume.directory)
        .map_err(|source| DiskImageError::Open(volume.path.clone(), source))?;
    if wanted <= free {
        return Ok(wanted);
    }
    if wanted - wanted / 100 * TOLERANCE > free {
        return Err(DiskImageError::NoRoom { path: volume.path.clone(), free, wanted });
    }
    whole_mebibytes(free)
}

/// Makes a file larger, if what it is on has the room.
pub(super) fn grown(file: &File, size: u64, capacity: u64) -> io::Result<u64> {
    let wanted = capacity - capacity % MEBIBYTE;
    let metadata = file.metadata()?;
    let room = free(file)?.saturating_add(metadata.blocks().saturating_mul(SECTOR));
    let wanted = wanted.min(room - room % MEBIBYTE);
    if !metadata.is_file() || wanted <= size {
        return Ok(size);
    }
    file.set_len(wanted)?;
    Ok(wanted)
}

fn free(volume: &impl AsFd) -> io::Result<u64> {
    let room = fstatvfs(volume)?;
    Ok(room.blocks_available().saturating_mul(room.fragment_size()).saturating_sub(RESERVE))
}

/// No less than that capacity.
pub(super) fn enough_mebibytes(capacity: u64) -> Result<u64, DiskImageError> {
    let least = whole_mebibytes(capacity)?;
    Ok(capacity.checked_next_multiple_of(MEBIBYTE).unwrap_or(least))
}

fn whole_mebibytes(capacity: u64) -> Result<u64, DiskImageError> {
    match capacity - capacity % MEBIBYTE {
        0 => Err(DiskImageError::TooSmall(capacity)),
        size => Ok(size),
    }
}
