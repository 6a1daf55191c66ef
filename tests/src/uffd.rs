//! Guest memory that comes page by page, by userfaultfd.
//!
//! Faults of KVM are faults of the kernel, which only a userfaultfd made by /dev/userfaultfd (or by a privileged
//! process) may serve.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use thiserror::Error;
use vm_memory::GuestAddress;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EventFd};
use vmm_sys_util::ioctl::{ioctl_with_mut_ref, ioctl_with_val};

use crate::host::{self, HostError};
use crate::memory::{MemoryError, PAGE_SIZE, Ram};

/// include/uapi/linux/userfaultfd.h
mod abi {
    use std::ffi::{c_uint, c_ulong};

    use vmm_sys_util::ioctl::{_IOC_NONE, ioctl_expr};

    use crate::ioctl::read_write;

    #[repr(C)]
    #[derive(Default)]
    pub(super) struct Api {
        pub(super) api: u64,
        pub(super) features: u64,
        pub(super) ioctls: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    pub(super) struct Register {
        pub(super) start: u64,
        pub(super) length: u64,
        pub(super) mode: u64,
        pub(super) ioctls: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    pub(super) struct Copy {
        pub(super) destination: u64,
        pub(super) source: u64,
        pub(super) length: u64,
        pub(super) mode: u64,
        pub(super) copied: i64,
    }

    const TYPE: c_uint = 0xaa;
    pub(super) const USERFAULTFD_IOC_NEW: c_ulong = ioctl_expr(_IOC_NONE, TYPE, 0x00, 0);
    pub(super) const UFFDIO_API: c_ulong = read_write::<Api>(TYPE, 0x3f);
    pub(super) const UFFDIO_REGISTER: c_ulong = read_write::<Register>(TYPE, 0x00);
    pub(super) const UFFDIO_COPY: c_ulong = read_write::<Copy>(TYPE, 0x03);

    pub(super) const API: u64 = 0xaa;
    pub(super) const REGISTER_MISSING: u64 = 1;
    pub(super) const EVENT_PAGE_FAULT: u8 = 0x12;
    pub(super) const MESSAGE_SIZE: usize = 32;
    pub(super) const MESSAGE_ADDRESS: usize = 16;
}

/// Why pages cannot be served.
#[derive(Debug, Error)]
pub enum PageServerError {
    /// No device.
    #[error("no userfaultfd")]
    Host(#[from] HostError),
    /// The range is not in guest memory, or could not be emptied.
    #[error("cannot empty the range")]
    Memory(#[from] MemoryError),
    /// A call of its own failed.
    #[error("cannot {what}")]
    System {
        /// Which one.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The thread panicked.
    #[error("the page server panicked")]
    Panicked,
}

/// A thread that serves each page of a range when it is first touched.
#[derive(Debug)]
pub struct PageServer {
    stop: EventFd,
    thread: Option<JoinHandle<Result<Vec<GuestAddress>, PageServerError>>>,
}

/// A range of guest memory whose faults come to us.
struct Range {
    faults: File,
    first: GuestAddress,
    /// Where `first` is in this process.
    start: u64,
}

impl PageServer {
    /// Empties `pages` pages from `first` on. From now on `contents` fills each, given its address.
    pub fn start<F>(
        ram: &Ram,
        first: GuestAddress,
        pages: usize,
        contents: F,
    ) -> Result<Self, PageServerError>
    where
        F: Fn(GuestAddress, &mut [u8; PAGE_SIZE]) + Send + 'static,
    {
        ram.discard(first, pages)?;
        let start = ram.host_address(first, pages * PAGE_SIZE)?.addr().get() as u64;
        let range = Range { faults: registered(start, pages * PAGE_SIZE)?, first, start };
        let stop = EventFd::new(EFD_CLOEXEC).map_err(system("make an eventfd"))?;
        let stopped = stop.try_clone().map_err(system("share an eventfd"))?;
        let thread = std::thread::spawn(move || range.serve(&stopped, contents));
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it and tells which pages were served, in their order.
    pub fn finish(mut self) -> Result<Vec<GuestAddress>, PageServerError> {
        self.join().unwrap_or(Ok(Vec::new()))
    }

    fn join(&mut self) -> Option<Result<Vec<GuestAddress>, PageServerError>> {
        let thread = self.thread.take()?;
        if let Err(source) = self.stop.write(1) {
            return Some(Err(PageServerError::System { what: "stop the page server", source }));
        }
        Some(thread.join().unwrap_or(Err(PageServerError::Panicked)))
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.join();
    }
}

impl Range {
    fn serve<F>(mut self, stop: &EventFd, contents: F) -> Result<Vec<GuestAddress>, PageServerError>
    where
        F: Fn(GuestAddress, &mut [u8; PAGE_SIZE]),
    {
        let mut served = Vec::new();
        let mut page = [0; PAGE_SIZE];
        while self.wait(stop)? {
            let Some(address) = self.next_fault()? else { continue };
            contents(address, &mut page);
            if self.place(address, &page)? {
                served.push(address);
            }
        }
        Ok(served)
    }

    /// Until there may be a fault (true) or the end has come (false).
    fn wait(&self, stop: &EventFd) -> Result<bool, PageServerError> {
        // SAFETY: the eventfd stays open as long as the borrow of it lasts.
        let stop = unsafe { BorrowedFd::borrow_raw(stop.as_raw_fd()) };
        let mut polled = [
            PollFd::new(self.faults.as_fd(), PollFlags::POLLIN),
            PollFd::new(stop, PollFlags::POLLIN),
        ];
        loop {
            match poll(&mut polled, PollTimeout::NONE) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(system("wait for faults")(errno.into())),
                Ok(_) => return Ok(!polled[1].any().unwrap_or(true)),
            }
        }
    }

    /// The page of the next fault; none where another thread's fault was over before we looked.
    fn next_fault(&mut self) -> Result<Option<GuestAddress>, PageServerError> {
        let mut message = [0; abi::MESSAGE_SIZE];
        match self.faults.read(&mut message) {
            Ok(abi::MESSAGE_SIZE) if message[0] == abi::EVENT_PAGE_FAULT => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(source) => return Err(system("read a fault")(source)),
        }
        let mut address = [0; size_of::<u64>()];
        address.copy_from_slice(&message[abi::MESSAGE_ADDRESS..][..size_of::<u64>()]);
        let offset = u64::from_le_bytes(address) - self.start;
        Ok(Some(GuestAddress(self.first.0 + offset / PAGE_SIZE as u64 * PAGE_SIZE as u64)))
    }

    /// Puts one page in place and wakes who waits for it; false where it is there already.
    fn place(
        &self,
        address: GuestAddress,
        page: &[u8; PAGE_SIZE],
    ) -> Result<bool, PageServerError> {
        let mut copy = abi::Copy {
            destination: self.start + (address.0 - self.first.0),
            source: page.as_ptr().addr() as u64,
            length: PAGE_SIZE as u64,
            ..Default::default()
        };
        // SAFETY: the kernel reads one page from `page` and writes to a registered range of guest memory, of which
        // no Rust reference exists; it writes back to `copy` within its size.
        let result = unsafe { ioctl_with_mut_ref(&self.faults, abi::UFFDIO_COPY, &mut copy) };
        match (result, Errno::last()) {
            (0, _) => Ok(true),
            (_, Errno::EEXIST) => Ok(false),
            (_, errno) => Err(system("place a page")(errno.into())),
        }
    }
}

/// A userfaultfd that gets the missing-page faults of the range.
fn registered(start: u64, length: usize) -> Result<File, PageServerError> {
    let device = host::userfaultfd()?;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let flags = libc::c_ulong::from(flags.unsigned_abs());
    // SAFETY: this call takes flags by value and touches no memory.
    let fd = unsafe { ioctl_with_val(&device, abi::USERFAULTFD_IOC_NEW, flags) };
    if fd < 0 {
        return Err(system("make a userfaultfd")(io::Error::last_os_error()));
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let faults = File::from(unsafe { OwnedFd::from_raw_fd(fd) });

    let mut api = abi::Api { api: abi::API, ..Default::default() };
    // SAFETY: the kernel reads and writes `api` within its size.
    let result = unsafe { ioctl_with_mut_ref(&faults, abi::UFFDIO_API, &mut api) };
    done(result, "agree on the userfaultfd API")?;

    let mut register =
        abi::Register { start, length: length as u64, mode: abi::REGISTER_MISSING, ioctls: 0 };
    // SAFETY: the kernel reads and writes `register` within its size; contents of the range do not change by it.
    let result = unsafe { ioctl_with_mut_ref(&faults, abi::UFFDIO_REGISTER, &mut register) };
    done(result, "register guest memory")?;
    Ok(faults)
}

fn done(result: libc::c_int, what: &'static str) -> Result<(), PageServerError> {
    if result == 0 { Ok(()) } else { Err(system(what)(io::Error::last_os_error())) }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> PageServerError {
    move |source| PageServerError::System { what, source }
}
