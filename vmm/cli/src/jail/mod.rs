//! Where the VM process runs: as in a launcher Pod, or as near to it as this user may.
//!
//! | | as root | as another user |
//! |---|---|---|
//! | user and group | 107, no other group | the user's own, known inside as 107 |
//! | capabilities | none, in any set | none, in any set |
//! | root directory | an empty one, read-only, of its own mount namespace | the same |
//! | network, IPC, host name, process and cgroup namespaces | its own, with nothing in them | the same |
//! | descriptors | the link and standard error | the same |
//! | no_new_privs, no core dump, no environment | yes | yes |
//!
//! Everything it uses arrives over the link as open descriptors, so nothing of this has to be opened up for it, and no file
//! has to be given to user 107. Its program is executed from a descriptor too: in its root directory there is none.
//!
//! Where user namespaces are not for everybody, another user's VM process runs without namespaces; [`Jailed::missing`]
//! says so. Its own filters of system calls are the same in all cases.
//!
//! The process is made by clone(2) into its namespaces and then takes [`steps`] one after the other: a table, with a
//! reason on each line. It dies with the process that made it.

mod child;
pub mod steps;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{F_DUPFD_CLOEXEC, fcntl};
use nix::sched::{CloneFlags, clone};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getegid, geteuid};
use thiserror::Error;

use child::Child;
use steps::{Level, Step};

/// Enough for a child that makes system calls only.
const STACK: usize = 64 << 10;
/// Descriptors of the child are put in their places from above these.
const ABOVE: i32 = 16;

/// Why there is no VM process.
#[derive(Debug, Error)]
pub enum JailError {
    /// Nothing to begin with.
    #[error("cannot prepare the VM process")]
    Prepare(#[source] io::Error),
    /// A process cannot be made.
    #[error("cannot make the VM process")]
    Clone(#[source] Errno),
    /// A step failed.
    #[error("cannot lock the VM process in: {}", .step.text())]
    Step {
        /// Which one.
        step: Step,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// What is to be run.
#[derive(Debug)]
pub struct Cell<'a> {
    /// The program, open for reading.
    pub program: &'a File,
    /// Its arguments.
    pub arguments: &'a [&'a str],
    /// Becomes its descriptor 3.
    pub link: BorrowedFd<'a>,
    /// Becomes its standard error.
    pub stderr: BorrowedFd<'a>,
    /// An empty directory, on which the process's own root is mounted in its own namespace.
    pub root: &'a Path,
}

/// A process that is locked in.
#[derive(Debug)]
pub struct Jailed {
    /// Its number.
    pub pid: Pid,
    level: Level,
}

impl Jailed {
    /// What keeps it in, for people.
    pub fn kept_by(&self) -> Vec<String> {
        let own = "no capability, no new privileges, system-call filters of its own".to_owned();
        let namespaces = "an empty read-only root; network, IPC, process, cgroup and host name namespaces of its own";
        match self.level {
            Level::Root => vec![format!("user and group {}", steps::USER), own, namespaces.into()],
            Level::UserNamespace => vec![own, namespaces.into()],
            Level::Plain => vec![own],
        }
    }

    /// What does not, for people.
    pub fn missing(&self) -> Vec<String> {
        let user = format!("the VM process has this user's id {}, not {}", geteuid(), steps::USER);
        match self.level {
            Level::Root => Vec::new(),
            Level::UserNamespace => vec![user],
            Level::Plain if geteuid().is_root() => vec![NO_NAMESPACES.into()],
            Level::Plain => vec![user, NO_NAMESPACES.into()],
        }
    }
}

const NO_NAMESPACES: &str =
    "the VM process has no namespaces of its own, as this user may not make any";

/// Makes the process, in the strictest way that this user may.
pub fn start(cell: &Cell<'_>) -> Result<Jailed, JailError> {
    let levels: &[Level] = match geteuid().is_root() {
        true => &[Level::Root, Level::Plain],
        false => &[Level::UserNamespace, Level::Plain],
    };
    let mut last = None;
    for level in levels {
        match start_at(cell, *level) {
            Ok(pid) => return Ok(Jailed { pid, level: *level }),
            // Only where the user may not, or the kernel or its limits know no namespaces.
            Err(error) if level != &Level::Plain && is_forbidden(&error) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or(JailError::Clone(Errno::EPERM)))
}

fn is_forbidden(error: &JailError) -> bool {
    match error {
        JailError::Clone(errno) => {
            matches!(errno, Errno::EPERM | Errno::ENOSPC | Errno::EINVAL | Errno::ENOSYS)
        }
        JailError::Step { step, source } => {
            let mine = matches!(step, Step::MapUser | Step::DetachMounts | Step::EmptyRoot);
            mine && matches!(source.kind(), io::ErrorKind::PermissionDenied)
        }
        JailError::Prepare(_) => false,
    }
}

fn start_at(cell: &Cell<'_>, level: Level) -> Result<Pid, JailError> {
    let prepare = JailError::Prepare;
    let (mut told, tell) = io::pipe().map_err(prepare)?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(prepare)?;
    let up = |fd: BorrowedFd<'_>| lifted(fd).map_err(|errno| prepare(errno.into()));
    let mut child = Child {
        level,
        null: up(null.as_fd())?,
        stderr: up(cell.stderr)?,
        link: up(cell.link)?,
        program: up(cell.program.as_fd())?,
        tell: up(tell.as_fd())?,
        root: text(cell.root.as_os_str().as_bytes())?,
        arguments: arguments(cell.arguments)?,
        uid_map: map(geteuid().as_raw()),
        gid_map: map(getegid().as_raw()),
    };
    let mut stack = vec![0; STACK];
    let run = Box::new(|| child.run());
    let signal = Some(libc::SIGCHLD);
    // SAFETY: the child has a copy of this process's memory, since CLONE_VM is not among the flags, and makes nothing but
    // system calls on what was prepared here.
    let pid = unsafe { clone(run, &mut stack, level.namespaces(), signal) };
    let pid = pid.map_err(JailError::Clone)?;
    drop((tell, child));
    let mut report = Vec::new();
    told.read_to_end(&mut report).map_err(prepare)?;
    let Some((step, errno)) = report.split_first() else { return Ok(pid) };
    // It has ended; the status says no more than the report.
    let _ = waitpid(pid, None);
    let step = Step::ALL.get(usize::from(*step)).copied().unwrap_or(Step::Execute);
    let errno = errno.try_into().map(i32::from_ne_bytes).unwrap_or_default();
    Err(JailError::Step { step, source: io::Error::from_raw_os_error(errno) })
}

/// A copy out of the way of the places that the child fills.
fn lifted(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let number = fcntl(fd, F_DUPFD_CLOEXEC(ABOVE))?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(number) })
}

fn text(bytes: &[u8]) -> Result<CString, JailError> {
    CString::new(bytes).map_err(|error| JailError::Prepare(error.into()))
}

fn arguments(given: &[&str]) -> Result<Vec<CString>, JailError> {
    [&"corten-vmm"].into_iter().chain(given).map(|argument| text(argument.as_bytes())).collect()
}

/// The user of this process, known as 107 inside.
fn map(id: u32) -> Vec<u8> {
    format!("{} {id} 1\n", steps::USER).into_bytes()
}

impl Level {
    fn namespaces(self) -> CloneFlags {
        let own = CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWCGROUP;
        match self {
            Self::Root => own,
            Self::UserNamespace => own | CloneFlags::CLONE_NEWUSER,
            Self::Plain => CloneFlags::empty(),
        }
    }
}
