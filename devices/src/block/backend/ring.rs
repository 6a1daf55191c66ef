//! An io_uring that can do nothing but read, write, sync and fallocate one file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, squeue, types};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::{Backend, Completion, Step, Transfer};

/// The disk's place among the registered files.
const DISK: types::Fixed = types::Fixed(0);
/// IOSQE_FIXED_FILE.
const FIXED_FILE: u8 = 1;

/// One queue's ring. System calls go past no filter of ours: the ring is restricted before it is enabled, and what it
/// is restricted to cannot be changed any more.
pub(in crate::block) struct RingBackend {
    ring: IoUring,
    eventfd: EventFd,
    /// By place, which the kernel gives back. Boxed, so that what the kernel knows of does not move.
    transfers: Vec<Option<Box<Transfer>>>,
    free: Vec<usize>,
    /// Places whose next step is not in the submission queue yet.
    waiting: Vec<usize>,
    /// Of transfers with nothing to ask.
    done: Vec<Completion>,
    /// The registered file is this one's.
    _file: Arc<File>,
}

impl RingBackend {
    /// A ring for `entries` transfers at a time on `file`. Fails where a filter or a setting of the host denies it.
    pub(in crate::block) fn new(file: &Arc<File>, entries: u16) -> io::Result<Self> {
        let ring = IoUring::builder().setup_r_disabled().build(entries.into())?;
        let eventfd = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
        let submitter = ring.submitter();
        submitter.register_files(&[file.as_raw_fd()])?;
        submitter.register_eventfd(eventfd.as_raw_fd())?;
        submitter.register_restrictions(&mut [
            Restriction::sqe_op(opcode::Readv::CODE),
            Restriction::sqe_op(opcode::Writev::CODE),
            Restriction::sqe_op(opcode::Fsync::CODE),
            Restriction::sqe_op(opcode::Fallocate::CODE),
            Restriction::sqe_flags_allowed(FIXED_FILE),
            Restriction::sqe_flags_required(FIXED_FILE),
        ])?;
        submitter.register_enable_rings()?;
        Ok(Self {
            ring,
            eventfd,
            transfers: Vec::new(),
            free: Vec::new(),
            waiting: Vec::new(),
            done: Vec::new(),
            _file: Arc::clone(file),
        })
    }

    /// Puts the next step of a place into the submission queue; false if there is no room.
    fn enqueue(&mut self, place: usize) -> bool {
        let step = self.transfers[place].as_ref().and_then(|transfer| transfer.step());
        let Some(step) = step else { return true };
        let entry = entry(&step).user_data(place as u64);
        // SAFETY: the buffers belong to the transfer, which stays in its place until the kernel has answered, or is
        // leaked with its memory if it never does.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    fn enqueue_waiting(&mut self) {
        while let Some(place) = self.waiting.pop() {
            if !self.enqueue(place) {
                self.waiting.push(place);
                return;
            }
        }
    }
}

fn entry(step: &Step<'_>) -> squeue::Entry {
    let count = |vectors: &[libc::iovec]| u32::try_from(vectors.len()).unwrap_or(u32::MAX);
    match *step {
        Step::Read { vectors, offset } => {
            opcode::Readv::new(DISK, vectors.as_ptr(), count(vectors)).offset(offset).build()
        }
        Step::Write { vectors, offset } => {
            opcode::Writev::new(DISK, vectors.as_ptr(), count(vectors)).offset(offset).build()
        }
        Step::Sync => opcode::Fsync::new(DISK).flags(types::FsyncFlags::DATASYNC).build(),
        Step::Allocate { mode, offset, length } => {
            opcode::Fallocate::new(DISK, length).offset(offset).mode(mode).build()
        }
    }
}

impl Backend for RingBackend {
    fn completed(&self) -> &EventFd {
        &self.eventfd
    }

    fn submit(&mut self, transfer: Transfer) {
        if transfer.step().is_none() {
            self.done.push(Completion { token: transfer.token(), result: Ok(()) });
            // The only failure is a count of 2^64 - 1, at which it is readable.
            let _ = self.eventfd.write(1);
            return;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.transfers.push(None);
            self.transfers.len() - 1
        });
        self.transfers[place] = Some(Box::new(transfer));
        self.waiting.push(place);
    }

    fn kick(&mut self) -> io::Result<()> {
        loop {
            self.enqueue_waiting();
            if self.ring.submission().is_empty() {
                return Ok(());
            }
            match self.ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                Ok(_) => {}
            }
        }
    }

    fn completions(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        done.append(&mut self.done);
        let answers: Vec<(u64, i32)> =
            self.ring.completion().map(|answer| (answer.user_data(), answer.result())).collect();
        for (place, result) in answers {
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            let Some(transfer) = self.transfers.get_mut(place).and_then(Option::as_mut) else {
                continue;
            };
            let answer = usize::try_from(result).map_err(|_| result.saturating_neg());
            let Some(result) = transfer.advance(answer) else {
                self.waiting.push(place);
                continue;
            };
            done.push(Completion { token: transfer.token(), result });
            self.transfers[place] = None;
            self.free.push(place);
        }
        self.kick()
    }

    fn in_flight(&self) -> usize {
        self.transfers.len() - self.free.len() + self.done.len()
    }
}

impl Drop for RingBackend {
    /// Closing a ring does not wait for the kernel: memory that it may still write to is never given back.
    fn drop(&mut self) {
        self.transfers.drain(..).flatten().for_each(std::mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this process is denied rings: by the administrator, or by a container's profile.
    fn is_denied() -> bool {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let disabled = read("/proc/sys/kernel/io_uring_disabled");
        let is_filtered = read("/proc/self/status").lines().any(|line| line == "Seccomp:\t2");
        !matches!(disabled.trim(), "" | "0") || is_filtered
    }

    #[test]
    fn ring_does_nothing_else() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut backend = match RingBackend::new(&file, 4) {
            Ok(backend) => backend,
            Err(error) => {
                assert!(is_denied(), "there is no ring, though nobody denies it: {error}");
                eprintln!("NOT CHECKED: rings are denied here");
                return;
            }
        };
        let nop = opcode::Nop::new().build();
        let plain = opcode::Fsync::new(types::Fd(file.as_raw_fd())).build();
        let close = opcode::Close::new(DISK).build();
        let here = types::Fd(libc::AT_FDCWD);
        let open = opcode::OpenAt::new(here, c"/dev/null".as_ptr()).build();
        let socket = opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build();
        let connect = opcode::Connect::new(DISK, std::ptr::null(), 0).build();
        for entry in [nop, plain, close, open, socket, connect] {
            // SAFETY: none of these has a buffer but a constant's.
            unsafe { backend.ring.submission().push(&entry) }.unwrap();
            backend.ring.submit_and_wait(1).unwrap();
            let answers: Vec<i32> =
                backend.ring.completion().map(|answer| answer.result()).collect();
            assert_eq!(answers, [-libc::EACCES]);
        }
        assert!(backend.ring.submitter().register_files_update(0, &[1]).is_err());
    }
}
