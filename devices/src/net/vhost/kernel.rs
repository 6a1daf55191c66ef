//! What is asked of the kernel's vhost, call by call (linux/vhost.h).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use libc::{c_int, c_uint};

use super::table::MemoryTable;
use crate::virtio::RingPlaces;

/// The letter of vhost's calls.
const VHOST: u8 = 0xaf;
/// In the place of a descriptor: none.
const NO_FD: c_int = -1;

/// `struct vhost_vring_state`.
#[repr(C)]
struct RingNumber {
    ring: c_uint,
    number: c_uint,
}

/// `struct vhost_vring_file`.
#[repr(C)]
struct RingFile {
    ring: c_uint,
    fd: c_int,
}

/// `struct vhost_vring_addr`.
#[repr(C)]
struct RingAddresses {
    ring: c_uint,
    flags: c_uint,
    descriptors: u64,
    used: u64,
    available: u64,
    log: u64,
}

/// `struct vhost_memory` without its regions, which is what the number of the call is made with.
#[repr(C)]
struct MemoryHeader {
    regions: u32,
    padding: u32,
}

nix::ioctl_read!(get_features, VHOST, 0x00, u64);
nix::ioctl_write_ptr!(set_features, VHOST, 0x00, u64);
nix::ioctl_none!(set_owner, VHOST, 0x01);
nix::ioctl_write_ptr!(set_memory, VHOST, 0x03, MemoryHeader);
nix::ioctl_write_ptr!(set_size, VHOST, 0x10, RingNumber);
nix::ioctl_write_ptr!(set_addresses, VHOST, 0x11, RingAddresses);
nix::ioctl_write_ptr!(set_base, VHOST, 0x12, RingNumber);
nix::ioctl_readwrite!(get_base, VHOST, 0x12, RingNumber);
nix::ioctl_write_ptr!(set_kick, VHOST, 0x20, RingFile);
nix::ioctl_write_ptr!(set_call, VHOST, 0x21, RingFile);
nix::ioctl_write_ptr!(set_error, VHOST, 0x22, RingFile);
nix::ioctl_write_ptr!(set_backend, VHOST, 0x30, RingFile);

/// One of a pair's rings, as vhost-net numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    Receive,
    Transmit,
}

impl Ring {
    pub(super) const BOTH: [Self; 2] = [Self::Receive, Self::Transmit];

    fn number(self) -> c_uint {
        match self {
            Self::Receive => 0,
            Self::Transmit => 1,
        }
    }
}

/// One call, with all that it says. A descriptor is taken away by giving none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// What the driver and the device agreed on.
    Features(u64),
    /// Where guest memory is.
    Memory(MemoryTable),
    /// How many descriptors a ring has.
    Size(Ring, u16),
    /// Where it is.
    Addresses(Ring, RingPlaces),
    /// The next chain to take. Only while it has no TAP.
    Base(Ring, u16),
    /// What the driver rings.
    Kick(Ring, Option<RawFd>),
    /// What tells the driver.
    Interrupt(Ring, Option<RawFd>),
    /// What tells us that the driver broke it.
    Error(Ring, Option<RawFd>),
    /// The TAP. With it the ring is at work; when it is taken away, nothing is in flight.
    Backend(Ring, Option<RawFd>),
}

/// Who is asked.
pub(super) trait Vhost {
    /// Does it.
    fn call(&self, call: &Call) -> io::Result<()>;

    /// The next chain that it would take.
    fn base(&self, ring: Ring) -> io::Result<u16>;
}

/// An open /dev/vhost-net that works for this process.
pub(in crate::net) struct VhostDevice {
    fd: OwnedFd,
    features: u64,
}

impl VhostDevice {
    /// Has a descriptor that nobody used before work on this process's memory.
    pub(in crate::net) fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: VHOST_SET_OWNER takes no argument.
        unsafe { set_owner(fd.as_raw_fd()) }?;
        let mut features = 0;
        // SAFETY: VHOST_GET_FEATURES writes 64 bits, for which there is room.
        unsafe { get_features(fd.as_raw_fd(), &raw mut features) }?;
        Ok(Self { fd, features })
    }

    /// What it can do.
    pub(in crate::net) fn features(&self) -> u64 {
        self.features
    }
}

fn file(ring: Ring, fd: Option<RawFd>) -> RingFile {
    RingFile { ring: ring.number(), fd: fd.unwrap_or(NO_FD) }
}

fn number(ring: Ring, number: u16) -> RingNumber {
    RingNumber { ring: ring.number(), number: number.into() }
}

impl Vhost for VhostDevice {
    fn call(&self, call: &Call) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        let answer = match call {
            // SAFETY: VHOST_SET_FEATURES reads 64 bits.
            Call::Features(features) => unsafe { set_features(fd, features) },
            Call::Memory(table) => {
                // SAFETY: VHOST_SET_MEM_TABLE reads the header and as many regions as it says, which follow it. They are
                // this process's mappings of guest memory, which nothing but the guest expects to be unchanged.
                unsafe { set_memory(fd, table.bytes().as_ptr().cast()) }
            }
            // SAFETY: VHOST_SET_VRING_NUM reads this struct.
            Call::Size(ring, size) => unsafe { set_size(fd, &number(*ring, *size)) },
            Call::Addresses(ring, places) => {
                let RingPlaces { descriptors, available, used } = *places;
                let ring = ring.number();
                let addresses =
                    RingAddresses { ring, flags: 0, descriptors, used, available, log: 0 };
                // SAFETY: VHOST_SET_VRING_ADDR reads this struct. The rings are in guest memory, whole: see VirtQueue::places.
                unsafe { set_addresses(fd, &raw const addresses) }
            }
            // SAFETY: VHOST_SET_VRING_BASE reads this struct.
            Call::Base(ring, next) => unsafe { set_base(fd, &number(*ring, *next)) },
            // SAFETY: VHOST_SET_VRING_KICK reads this struct, and keeps a reference to the eventfd of its own.
            Call::Kick(ring, eventfd) => unsafe { set_kick(fd, &file(*ring, *eventfd)) },
            // SAFETY: as for VHOST_SET_VRING_KICK.
            Call::Interrupt(ring, eventfd) => unsafe { set_call(fd, &file(*ring, *eventfd)) },
            // SAFETY: as for VHOST_SET_VRING_KICK.
            Call::Error(ring, eventfd) => unsafe { set_error(fd, &file(*ring, *eventfd)) },
            // SAFETY: VHOST_NET_SET_BACKEND reads this struct, and keeps a reference to the TAP of its own. From now on the
            // kernel writes to guest memory; who asked keeps it mapped until it has taken the TAP away.
            Call::Backend(ring, tap) => unsafe { set_backend(fd, &file(*ring, *tap)) },
        };
        answer?;
        Ok(())
    }

    fn base(&self, ring: Ring) -> io::Result<u16> {
        let mut state = number(ring, 0);
        // SAFETY: VHOST_GET_VRING_BASE reads and writes this struct.
        unsafe { get_base(self.fd.as_raw_fd(), &raw mut state) }?;
        u16::try_from(state.number).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn structs_are_as_long_as_the_kernels() {
        assert_eq!(size_of::<RingNumber>(), 8);
        assert_eq!(size_of::<RingFile>(), 8);
        assert_eq!(size_of::<RingAddresses>(), 40);
        assert_eq!(size_of::<MemoryHeader>(), 8);
    }

    #[test]
    fn descriptor_that_is_no_vhost_is_refused() {
        let null = OwnedFd::from(File::open("/dev/null").unwrap());
        let error = VhostDevice::new(null).err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
