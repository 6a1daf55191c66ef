//! System calls that have no safe form elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{c_int, off_t};

use super::Step;

/// BLKSSZGET, of linux/fs.h.
const BLKSSZGET: libc::Ioctl = 0x1268;

/// Does one step of a transfer: a number of bytes, or an error number.
pub(in crate::block) fn call(file: &File, step: &Step<'_>) -> Result<usize, c_int> {
    let fd = file.as_raw_fd();
    let answer = match *step {
        Step::Read { vectors, offset } => {
            let (offset, count) = (offset_of(offset)?, count_of(vectors)?);
            // SAFETY: fd is open; vectors are `count` buffers that the transfer keeps, for the kernel to write to.
            unsafe { libc::preadv(fd, vectors.as_ptr(), count, offset) }
        }
        Step::Write { vectors, offset } => {
            let (offset, count) = (offset_of(offset)?, count_of(vectors)?);
            // SAFETY: fd is open; vectors are `count` buffers that the transfer keeps, for the kernel to read from.
            unsafe { libc::pwritev(fd, vectors.as_ptr(), count, offset) }
        }
        Step::Sync => {
            // SAFETY: fd is open; no memory is involved.
            let answer = unsafe { libc::fdatasync(fd) };
            isize::try_from(answer).unwrap_or(-1)
        }
        Step::Allocate { mode, offset, length } => {
            let (offset, length) = (offset_of(offset)?, offset_of(length)?);
            // SAFETY: fd is open; no memory is involved.
            let answer = unsafe { libc::fallocate(fd, mode, offset, length) };
            isize::try_from(answer).unwrap_or(-1)
        }
    };
    usize::try_from(answer)
        .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

fn offset_of(number: u64) -> Result<off_t, c_int> {
    off_t::try_from(number).map_err(|_| libc::EFBIG)
}

fn count_of(vectors: &[libc::iovec]) -> Result<c_int, c_int> {
    c_int::try_from(vectors.len()).map_err(|_| libc::EINVAL)
}

/// What transfers to and from a block device are multiples of.
pub(in crate::block) fn logical_block_size(device: &File) -> io::Result<c_int> {
    let mut size: c_int = 0;
    // SAFETY: the descriptor is open, and BLKSSZGET writes one int.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKSSZGET, &raw mut size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(size) }
}

/// Alignment of memory and of offsets under O_DIRECT; none if the file system does not say, zeroes if it cannot.
pub(in crate::block) fn direct_alignment(file: &File) -> io::Result<Option<(usize, usize)>> {
    // SAFETY: all fields of statx are integers, for which zero is a value.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, flags, mask) = (file.as_raw_fd(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: the descriptor is open, the path is a C string, and there is room for the result.
    let result = unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, &raw mut status) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let known = status.stx_mask & libc::STATX_DIOALIGN != 0;
    let alignment = (status.stx_dio_mem_align as usize, status.stx_dio_offset_align as usize);
    Ok(known.then_some(alignment))
}
