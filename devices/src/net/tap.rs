//! One queue of a TAP that was opened elsewhere.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_short, c_uint, iovec};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use thiserror::Error;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use super::offload::USO_FLAGS;

nix::ioctl_read_bad!(get_interface, libc::TUNGETIFF, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_queue, libc::TUNSETQUEUE, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_header_size, libc::TUNSETVNETHDRSZ, c_int);
nix::ioctl_write_int_bad!(set_offload, libc::TUNSETOFFLOAD);

/// Frames dropped at once. The kernel queues 1000, unless told otherwise.
const MAX_DISCARDED: usize = 4096;

/// Why a descriptor cannot be a queue of an interface.
#[derive(Debug, Error)]
pub enum TapFault {
    /// Not a TAP.
    #[error("it is not a queue of a TAP")]
    NotTap(#[source] io::Error),
    /// Opened in another way than is needed.
    #[error("the TAP was opened with flags {flags:#x}: it needs {needed}")]
    Flags {
        /// As TUNSETIFF has them.
        flags: c_int,
        /// What is missing, or must not be.
        needed: &'static str,
    },
    /// The kernel is too old.
    #[error("the TAP does not segment UDP, which the guest was promised: that takes Linux 6.2")]
    NoUso,
    /// A call that should have worked.
    #[error("cannot {step}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// Its error.
        #[source]
        source: io::Error,
    },
}

/// One queue of a TAP.
#[derive(Debug)]
pub(super) struct TapQueue {
    fd: OwnedFd,
    /// One of several. Only then can it be detached, for the TAP to send nothing its way.
    is_multi: bool,
    is_attached: AtomicBool,
}

impl TapQueue {
    /// Checks that `fd` is one, of several if `is_multi`, and makes it not block.
    pub(super) fn new(fd: OwnedFd, is_multi: bool) -> Result<Self, TapFault> {
        let queue = Self { fd, is_multi, is_attached: AtomicBool::new(true) };
        let flags = queue.flags().map_err(|error| TapFault::NotTap(error.into()))?;
        let has = |flag| flags & flag == flag;
        for (is_so, needed) in [
            (has(libc::IFF_TAP), "IFF_TAP"),
            (has(libc::IFF_NO_PI), "IFF_NO_PI"),
            (has(libc::IFF_VNET_HDR), "IFF_VNET_HDR"),
            (
                !is_multi || has(libc::IFF_MULTI_QUEUE),
                "IFF_MULTI_QUEUE, to be one of several queues",
            ),
        ] {
            if !is_so {
                return Err(TapFault::Flags { flags, needed });
            }
        }
        // Whoever had it before may have left it so.
        queue.is_attached.store(!has(libc::IFF_DETACH_QUEUE), Ordering::Release);
        queue.set_nonblocking()?;
        Ok(queue)
    }

    fn set_nonblocking(&self) -> Result<(), TapFault> {
        let failed =
            |source: Errno| TapFault::Io { step: "make the TAP not block", source: source.into() };
        let flags = fcntl(&self.fd, FcntlArg::F_GETFL).map_err(failed)?;
        let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
        fcntl(&self.fd, FcntlArg::F_SETFL(flags)).map_err(failed)?;
        Ok(())
    }

    fn flags(&self) -> nix::Result<c_int> {
        let mut request = no_request();
        // SAFETY: the request is valid for writes; TUNGETIFF fills it.
        unsafe { get_interface(self.fd.as_raw_fd(), &raw mut request) }?;
        // SAFETY: TUNGETIFF has just filled this member of the union.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        // IFF_VNET_HDR is bit 14, IFF_NOFILTER bit 12, IFF_PERSIST bit 11: as they are, without a sign.
        Ok(c_int::from(flags.cast_unsigned()))
    }

    /// Has the TAP use this queue, or not. What was in the queue is lost when it is detached. Only one of several queues
    /// can be.
    pub(super) fn set_attached(&self, attached: bool) -> io::Result<()> {
        if !self.is_multi || self.is_attached.load(Ordering::Acquire) == attached {
            return Ok(());
        }
        self.switch(if attached { libc::IFF_ATTACH_QUEUE } else { libc::IFF_DETACH_QUEUE })?;
        self.is_attached.store(attached, Ordering::Release);
        Ok(())
    }

    fn switch(&self, flag: c_int) -> io::Result<()> {
        let mut request = no_request();
        request.ifr_ifru.ifru_flags =
            c_short::try_from(flag).map_err(|_| io::Error::from(Errno::EINVAL))?;
        // SAFETY: the request is valid for reads.
        unsafe { set_queue(self.fd.as_raw_fd(), &raw const request) }?;
        Ok(())
    }

    /// Says how long the header before each frame is, for all queues of the TAP.
    pub(super) fn set_header_size(&self, size: usize) -> io::Result<()> {
        let size = c_int::try_from(size).map_err(|_| io::Error::from(Errno::EINVAL))?;
        // SAFETY: TUNSETVNETHDRSZ reads one int.
        unsafe { set_header_size(self.fd.as_raw_fd(), &raw const size) }?;
        Ok(())
    }

    /// Says what the reader of the TAP takes unfinished, for all of its queues.
    pub(super) fn set_offloads(&self, flags: c_uint) -> io::Result<()> {
        let flags = c_int::try_from(flags).map_err(|_| io::Error::from(Errno::EINVAL))?;
        // SAFETY: TUNSETOFFLOAD takes an integer.
        unsafe { set_offload(self.fd.as_raw_fd(), flags) }?;
        Ok(())
    }

    /// Whether it can leave segmentation of UDP to its reader. Leaves it with no offload at all.
    pub(super) fn has_uso(&self) -> Result<bool, TapFault> {
        let has_uso = self.set_offloads(USO_FLAGS).is_ok();
        let failed = |source| TapFault::Io { step: "set the TAP's offloads", source };
        self.set_offloads(0).map_err(failed)?;
        Ok(has_uso)
    }

    /// Drops the frames that are in the queue, up to more than one holds unless somebody made it so.
    pub(super) fn discard_frames(&self) {
        let mut start = [0_u8; 64];
        let vector = iovec { iov_base: start.as_mut_ptr().cast(), iov_len: start.len() };
        for _ in 0..MAX_DISCARDED {
            // SAFETY: the vector is memory of our own.
            match unsafe { self.read(&[vector]) } {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
                _ => {}
            }
        }
    }

    /// Reads one frame with its header: as many bytes as there is room for.
    ///
    /// # Safety
    ///
    /// The vectors are memory that the kernel may write to.
    pub(super) unsafe fn read(&self, vectors: &[iovec]) -> io::Result<usize> {
        let count = c_int::try_from(vectors.len()).map_err(|_| io::Error::from(Errno::EINVAL))?;
        // SAFETY: the descriptor is open; the caller answers for the vectors.
        let answer = unsafe { libc::readv(self.fd.as_raw_fd(), vectors.as_ptr(), count) };
        usize::try_from(answer).map_err(|_| io::Error::last_os_error())
    }

    /// Writes one frame with its header.
    ///
    /// # Safety
    ///
    /// The vectors are memory that the kernel may read.
    pub(super) unsafe fn write(&self, vectors: &[iovec]) -> io::Result<usize> {
        let count = c_int::try_from(vectors.len()).map_err(|_| io::Error::from(Errno::EINVAL))?;
        // SAFETY: the descriptor is open; the caller answers for the vectors.
        let answer = unsafe { libc::writev(self.fd.as_raw_fd(), vectors.as_ptr(), count) };
        usize::try_from(answer).map_err(|_| io::Error::last_os_error())
    }
}

impl AsRawFd for TapQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn no_request() -> libc::ifreq {
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_ifindex: 0 };
    libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru }
}

/// Wakes a task for its TAP, for as much as it wants of it now.
///
/// A worker listens to the same descriptors as long as it has a task, and a TAP with frames for which the guest has no
/// buffers would wake it without end. So what it listens to is this set, which is empty then. A TAP that is not wanted is
/// not in it at all: one that is gone is always ready, with an error that cannot be masked.
#[derive(Debug)]
pub(super) struct TapWatch {
    epoll: Epoll,
    tap: RawFd,
    wanted: EventSet,
}

impl TapWatch {
    /// Wants nothing. `tap` outlives it.
    pub(super) fn new(tap: &TapQueue) -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new()?, tap: tap.fd.as_raw_fd(), wanted: EventSet::empty() })
    }

    /// Wants to be woken, or not, when there is a frame.
    pub(super) fn want_frames(&mut self, wanted: bool) -> io::Result<()> {
        self.want(EventSet::IN, wanted)
    }

    /// Wants to be woken, or not, when there is room for a frame.
    pub(super) fn want_room(&mut self, wanted: bool) -> io::Result<()> {
        self.want(EventSet::OUT, wanted)
    }

    fn want(&mut self, event: EventSet, wanted: bool) -> io::Result<()> {
        let mut events = self.wanted;
        events.set(event, wanted);
        if events == self.wanted {
            return Ok(());
        }
        let operation = match (self.wanted.is_empty(), events.is_empty()) {
            (true, _) => ControlOperation::Add,
            (_, true) => ControlOperation::Delete,
            _ => ControlOperation::Modify,
        };
        self.epoll.ctl(operation, self.tap, EpollEvent::new(events, 0))?;
        self.wanted = events;
        Ok(())
    }
}

impl AsRawFd for TapWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}
