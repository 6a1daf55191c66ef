//! The process that keeps a VM.
//!
//! `corten run` starts it with two descriptors: its own end of a link, and the [`Job`]. It takes the run
//! directory, prepares in a thread what the VM needs (`prepare`), starts the VM process and from then on waits in one
//! loop (`keeper`) for signals, clients, the VM process, its console and those who watch it; nothing in that loop blocks.
//!
//! ```text
//!                prepared             first answer of the VM         the VM process ended
//!   preparing ──────────▶ starting ───────────────▶ running ────────────────────────▶ cleaned up, told, gone
//!       │                    │                         │                                   ▲
//!       └── stop, kill, SIGTERM, its time is over, the client that it lives with is gone ──┘
//! ```
//!
//! How a VM is stopped is the launcher's own code ([`corten_launcher::stop`]): power button, grace, kill, force.

mod agent;
mod clients;
mod console;
mod exit_stream;
mod fields;
mod images;
mod keeper;
mod networks;
mod prepare;
mod sources;
mod taken_port;
mod viewers;
mod vm;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use corten_launcher::log::chain;
use corten_link::EndReason;
use nix::errno::Errno;
use nix::fcntl::{F_GETFD, F_SETFD, FdFlag, fcntl};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{dup2_stderr, dup2_stdout};
use thiserror::Error;

use crate::job::{Job, JobError};
use crate::place::{PlaceError, Runtime};
use crate::protocol::{Ended, SupervisorEnd, ToClient};
use keeper::{Keeper, Parts};

pub(crate) use console::aside;
pub(crate) use keeper::CONSOLE_LOG;
pub use networks::NetworkError;
pub(crate) use networks::check as check_networks;
pub use prepare::PrepareError;
pub(crate) use prepare::{SAVED_JOB, SAVED_MEMORY, SAVED_RECORDS, saved_name};

/// Where it finds the link to the client that started it.
pub const LINK: RawFd = 3;
/// Where it finds its job.
pub const JOB: RawFd = 4;

/// Why a supervisor cannot even begin.
#[derive(Debug, Error)]
pub enum SupervisorError {
    /// It was not started by `corten run`.
    #[error("descriptor {0} is not open: this command is what `corten run` starts")]
    NotStarted(RawFd),
    /// The link.
    #[error("the link to `corten run` is none")]
    Link(#[from] corten_link::LinkError),
    /// The job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// Its run directory.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Its signals.
    #[error("cannot receive signals")]
    Signals(#[source] Errno),
    /// The file of `--log`.
    #[error("cannot write the console to {path}")]
    Log {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Something in its run directory.
    #[error("cannot make {what} in the run directory")]
    Make {
        /// What.
        what: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Keeps a VM from its beginning to its end.
pub fn supervise(runtime: &Runtime) -> Result<(), SupervisorError> {
    let link = SupervisorEnd::from_fd(inherited(LINK)?)?;
    let begun = inherited(JOB).and_then(|job| begin(runtime, File::from(job)));
    match begun {
        Ok(parts) => {
            Keeper::new(parts, link).run();
            Ok(())
        }
        Err(error) => {
            // Whoever waits for it prints it; there is nobody else to read it.
            let end = Ended {
                reason: EndReason::NotStarted,
                detail: chain(&error),
                timed_out: false,
                saved: false,
                guest_status: None,
            };
            let _ = link.send(&ToClient::Ended { end }, &[]);
            Err(error)
        }
    }
}

fn begin(runtime: &Runtime, job: File) -> Result<Parts, SupervisorError> {
    let job = Job::from_file(job)?;
    // Before there is a thread, which would get them otherwise.
    let mask: SigSet =
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD].into_iter().collect();
    mask.thread_block().map_err(SupervisorError::Signals)?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&mask, flags).map_err(SupervisorError::Signals)?;
    let place = runtime.take(&job.name)?;
    speak_into(&place.path().join("supervisor.log"))?;
    Parts::make(job, (runtime, place), signals)
}

/// From here on, what this process and the VM process say is written down.
fn speak_into(path: &Path) -> Result<(), SupervisorError> {
    let failed = |source| SupervisorError::Make { what: "the log", source };
    let log = File::options().create(true).append(true).open(path).map_err(failed)?;
    dup2_stdout(&log).map_err(|errno| failed(errno.into()))?;
    dup2_stderr(&log).map_err(|errno| failed(errno.into()))
}

fn inherited(number: RawFd) -> Result<OwnedFd, SupervisorError> {
    // SAFETY: the borrow is used for a call that only looks whether the number is open.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    fcntl(fd, F_GETFD).map_err(|_| SupervisorError::NotStarted(number))?;
    // SAFETY: it is open, and nothing in this process has taken it yet.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let closing = fcntl(fd.as_fd(), F_SETFD(FdFlag::FD_CLOEXEC));
    closing.map_err(|_| SupervisorError::NotStarted(number))?;
    Ok(fd)
}

/// One line in the log. That it cannot be written must not end a VM.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "corten: {text}");
}
