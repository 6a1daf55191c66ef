//! Numbers of ioctls that no crate here has.

use std::ffi::{c_uint, c_ulong};

use vmm_sys_util::ioctl::{_IOC_READ, _IOC_WRITE, ioctl_expr};

/// The number of an ioctl whose argument, a `T`, is read and written.
#[expect(clippy::cast_possible_truncation, reason = "an ioctl's argument is smaller than 16 KiB")]
pub(crate) const fn read_write<T>(kind: c_uint, number: c_uint) -> c_ulong {
    ioctl_expr(_IOC_READ | _IOC_WRITE, kind, number, size_of::<T>() as c_uint)
}
