//! userfaultfd: faults on missing pages of guest memory, and pages put in place.
//!
//! Faults of KVM are the kernel's own, which only a userfaultfd made by /dev/userfaultfd (or by a privileged process)
//! may serve. It belongs to the process that makes it, so what is granted is the open device. include/uapi/linux/userfaultfd.h
//! has the rest.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

use super::PAGE;

#[repr(C)]
#[derive(Default)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct Range {
    start: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct Copy {
    destination: u64,
    source: u64,
    length: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
#[derive(Default)]
struct Zero {
    range: Range,
    mode: u64,
    zeroed: i64,
}

const TYPE: u8 = 0xaa;
const API: u64 = 0xaa;
const MISSING: u64 = 1;
/// Bits of what a registered range takes: the numbers of the calls.
const COPY_AND_ZERO: u64 = 1 << 3 | 1 << 4;
const MESSAGE: usize = 32;
const PAGE_FAULT: u8 = 0x12;
/// Where the address is in a message.
const ADDRESS: usize = 16;

const NEW: libc::c_ulong = nix::request_code_none!(TYPE, 0x00);
nix::ioctl_readwrite!(agree, TYPE, 0x3f, Api);
nix::ioctl_readwrite!(register, TYPE, 0x00, Register);
nix::ioctl_read!(wake, TYPE, 0x02, Range);
nix::ioctl_readwrite!(copy, TYPE, 0x03, Copy);
nix::ioctl_readwrite!(zero, TYPE, 0x04, Zero);

/// A userfaultfd of this process. When it is dropped, whoever waits goes on, and missing pages are pages of zeros again.
#[derive(Debug)]
pub(super) struct Userfault(File);

impl Userfault {
    /// Makes one by an open /dev/userfaultfd.
    pub(super) fn new(device: BorrowedFd<'_>) -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the call takes flags by value and touches no memory.
        let fd = Errno::result(unsafe { libc::ioctl(device.as_raw_fd(), NEW, flags) })?;
        // SAFETY: the kernel has just made this descriptor for us.
        let faults = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut api = Api { api: API, ..Api::default() };
        // SAFETY: the kernel reads and writes `api` within its size.
        unsafe { agree(faults.as_raw_fd(), &raw mut api) }?;
        Ok(Self(faults))
    }

    /// From now on faults on missing pages of this range wait for us.
    pub(super) fn register(&self, start: u64, length: u64) -> io::Result<()> {
        let range = Range { start, length };
        let mut registered = Register { range, mode: MISSING, ioctls: 0 };
        // SAFETY: the kernel reads and writes `registered` within its size; what is in the range does not change by it.
        unsafe { register(self.0.as_raw_fd(), &raw mut registered) }?;
        if registered.ioctls & COPY_AND_ZERO == COPY_AND_ZERO {
            Ok(())
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Address of the next fault; none if nobody waits.
    pub(super) fn next_fault(&mut self) -> io::Result<Option<u64>> {
        let mut message = [0; MESSAGE];
        loop {
            match self.0.read(&mut message) {
                Ok(MESSAGE) if message[0] == PAGE_FAULT => {
                    let address = message[ADDRESS..].first_chunk().copied().unwrap_or_default();
                    return Ok(Some(u64::from_ne_bytes(address)));
                }
                // No other event was asked for.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts whole pages in place and wakes who waits for them. What is in place already stays as it is.
    pub(super) fn copy(&self, address: u64, pages: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < pages.len() {
            let rest = &pages[done..];
            let mut request = Copy {
                destination: address + done as u64,
                source: rest.as_ptr().addr() as u64,
                length: rest.len() as u64,
                ..Copy::default()
            };
            // SAFETY: the kernel reads `rest`, which is that long, and writes to missing pages of a registered range of
            // guest memory, to which no reference exists; it writes back to `request` within its size.
            let outcome = unsafe { copy(self.0.as_raw_fd(), &raw mut request) };
            done += usize::try_from(request.copied).unwrap_or_default();
            match outcome {
                Ok(_) | Err(Errno::EAGAIN) => {}
                Err(Errno::EEXIST) => {
                    self.wake(address + done as u64)?;
                    done += usize::try_from(PAGE).unwrap_or(usize::MAX);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Puts a page of zeros in place and wakes who waits for it. False if a page is there already, which stays as it is.
    pub(super) fn zero(&self, address: u64) -> io::Result<bool> {
        loop {
            let range = Range { start: address, length: PAGE };
            let mut request = Zero { range, ..Zero::default() };
            // SAFETY: the kernel writes to a missing page of a registered range of guest memory, to which no reference
            // exists, and to `request` within its size.
            match unsafe { zero(self.0.as_raw_fd(), &raw mut request) } {
                Ok(_) => return Ok(true),
                Err(Errno::EAGAIN) => {}
                Err(Errno::EEXIST) => return self.wake(address).map(|()| false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Wakes who waits for a page that is in place.
    fn wake(&self, address: u64) -> io::Result<()> {
        let mut range = Range { start: address, length: PAGE };
        // SAFETY: the kernel reads `range` within its size.
        unsafe { wake(self.0.as_raw_fd(), &raw mut range) }?;
        Ok(())
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
