//! What a disk asks of those who go past the page cache.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;

use nix::libc;

/// What transfers of a disk are multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Through the page cache.
    pub cached: u32,
    /// Past it; none if it cannot be told, or cannot be.
    pub direct: Option<u32>,
}

/// Asks the disk that `file` is open on.
///
/// The VM process asks in the same way. A disk that could be had past the page cache only in blocks larger than its guest expects
/// is better had through it: a partition table that was written for other blocks cannot be read.
pub fn blocks(file: &File) -> io::Result<Blocks> {
    // SAFETY: all fields of statx are integers, for which zero is a value.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, flags, mask) = (file.as_raw_fd(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: the descriptor is open, the path is a C string, and there is room for the result.
    let result = unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, &raw mut status) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let is_device = file.metadata()?.file_type().is_block_device();
    let direct = (status.stx_mask & libc::STATX_DIOALIGN != 0 && status.stx_dio_offset_align > 0)
        .then_some(status.stx_dio_offset_align.max(512));
    let cached = if is_device { logical_block_size(file)? } else { 512 };
    Ok(Blocks { cached, direct })
}

/// A block device has blocks of its own also for the cache.
fn logical_block_size(device: &File) -> io::Result<u32> {
    let mut size = 0;
    // SAFETY: the descriptor is open, and BLKSSZGET writes one int.
    unsafe { block_size(device.as_raw_fd(), &raw mut size) }?;
    u32::try_from(size).map_err(|_| io::ErrorKind::InvalidData.into())
}

nix::ioctl_read_bad!(
    /// BLKSSZGET.
    block_size,
    0x1268,
    libc::c_int
);

#[cfg(test)]
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    #[test]
    fn files_have_sectors_and_memory_is_not_gone_past() {
        let memory = File::from(memfd_create("disk", MFdFlags::MFD_CLOEXEC).unwrap());
        assert_eq!(blocks(&memory).unwrap().cached, 512);
        let file = tempfile::tempfile().unwrap();
        let blocks = blocks(&file).unwrap();
        assert_eq!(blocks.cached, 512);
        assert!(blocks.direct.is_none_or(u32::is_power_of_two));
    }
}
