//! The VM process, as its parent and control peer sees it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use corten_link::{Link, LinkError, MAX_DESCRIPTORS, MachineDescription, Message, Request, Role};
use nix::errno::Errno;
use nix::fcntl::{F_GETFL, F_SETFD, F_SETFL, FdFlag, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, dup2};
use thiserror::Error;

/// Where the VM process finds its link.
const LINK: i32 = 3;

/// Why there is no VM process.
#[derive(Debug, Error)]
pub enum VmmError {
    /// It cannot be started.
    #[error("cannot start {program}")]
    Spawn {
        /// Its program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The link to it cannot be prepared.
    #[error("cannot prepare the link to the VM process")]
    Prepare(#[source] Errno),
    /// The link to it failed.
    #[error("the link to the VM process failed")]
    Link(#[from] LinkError),
}

/// A VM process.
#[derive(Debug)]
pub struct Vmm {
    pid: Pid,
    link: Link,
    last_id: u64,
}

impl Vmm {
    /// Starts `program`, grants it `descriptors`, which stay open here, and asks it to boot `machine`, or to make it and wait.
    pub fn start(
        program: &Path,
        descriptors: &[(Role, BorrowedFd<'_>)],
        machine: MachineDescription,
        paused: bool,
    ) -> Result<Self, VmmError> {
        let (ours, theirs) = Link::pair()?;
        let pid = spawn(program, theirs.into_fd())?;
        Self::begin(pid, ours, descriptors, Request::Boot { machine, paused })
    }

    /// Takes a VM process that was started with the other end of `link`, grants it `descriptors`, which stay open here,
    /// and asks it for the first thing.
    pub fn begin(
        pid: Pid,
        link: Link,
        descriptors: &[(Role, BorrowedFd<'_>)],
        first: Request,
    ) -> Result<Self, VmmError> {
        let link = Link::from_fd(nonblocking(link.into_fd()).map_err(VmmError::Prepare)?)?;
        let mut vmm = Self { pid, link, last_id: 0 };
        // What one message does not hold comes with the next.
        let (granted, more) = descriptors.split_at(descriptors.len().min(MAX_DESCRIPTORS));
        vmm.link.send_grant(granted)?;
        vmm.ask_with(first, more)?;
        Ok(vmm)
    }

    /// Asks for something; gives back the number that its reply will have.
    pub fn ask(&mut self, request: Request) -> Result<u64, LinkError> {
        self.ask_with(request, &[])
    }

    /// Asks for something with descriptors, which stay open here.
    pub fn ask_with(
        &mut self,
        request: Request,
        descriptors: &[(Role, BorrowedFd<'_>)],
    ) -> Result<u64, LinkError> {
        self.last_id += 1;
        self.link.send_request(self.last_id, request, descriptors)?;
        Ok(self.last_id)
    }

    /// What it says next, if it has said something. Descriptors with it are closed: none is asked for.
    pub fn receive(&self) -> Result<Option<Message>, LinkError> {
        match self.link.receive() {
            Ok((message, _)) => Ok(Some(message)),
            Err(LinkError::Io { source: Errno::EAGAIN, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends it by signal.
    pub fn force(&self) {
        // It may have ended a moment ago; as long as nobody has waited for it, the number is still its own.
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its link, to wait for what it says.
    pub fn link(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the link, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.link.as_raw_fd()) }
    }
}

/// Starts the program with nothing but its link and our standard error.
fn spawn(program: &Path, link: OwnedFd) -> Result<Pid, VmmError> {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).env_clear();
    // SAFETY: between fork and exec only system calls are made, which is allowed there.
    unsafe { command.pre_exec(move || inherit(&link).map_err(Into::into)) };
    let child =
        command.spawn().map_err(|source| VmmError::Spawn { program: program.into(), source })?;
    let pid = i32::try_from(child.id()).map_err(|_| VmmError::Prepare(Errno::EOVERFLOW))?;
    // The loop waits for all children alike, as the first process of a container has to.
    Ok(Pid::from_raw(pid))
}

/// Makes `link` descriptor 3 of the program that comes next.
fn inherit(link: &OwnedFd) -> Result<(), Errno> {
    if link.as_raw_fd() == LINK {
        return fcntl(link, F_SETFD(FdFlag::empty())).map(drop);
    }
    // SAFETY: whatever 3 is in the child, it is ours to replace: nothing runs there but this and exec.
    let mut three = unsafe { OwnedFd::from_raw_fd(LINK) };
    let outcome = dup2(link, &mut three);
    std::mem::forget(three);
    outcome
}

/// A VM process that does not read must not make its launcher wait.
fn nonblocking(socket: OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlag::from_bits_retain(fcntl(socket.as_fd(), F_GETFL)?);
    fcntl(socket.as_fd(), F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_that_one_message_does_not_hold_come_with_the_next() {
        let (ours, theirs) = Link::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let disk = |number: usize| (Role::disk(&format!("d{number}")).unwrap(), file.as_fd());
        let descriptors: Vec<_> = (0..MAX_DESCRIPTORS + 2).map(disk).collect();
        let machine = MachineDescription::default();
        let first = Request::Boot { machine, paused: false };
        let _vmm = Vmm::begin(Pid::this(), ours, &descriptors, first).unwrap();
        assert_eq!(theirs.receive_grant().unwrap().len(), MAX_DESCRIPTORS);
        assert_eq!(theirs.receive().unwrap().1.len(), 2);
    }

    #[test]
    fn missing_program_is_named() {
        let (_ours, theirs) = Link::pair().unwrap();
        let error = spawn(Path::new("/nonexistent/vmm"), theirs.into_fd()).unwrap_err();
        assert_eq!(error.to_string(), "cannot start /nonexistent/vmm");
    }
}
