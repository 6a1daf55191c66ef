//! The way of the new process into the cage, up to the command.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use corten_link::{Link, Role};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::stat::{Mode, stat, umask};
use nix::unistd::{chdir, dup2_raw, execve, isatty, sethostname, setsid, write};

use super::profile::Filters;
use super::{Cage, TapRequest, mounts, network, privileges};

/// Where the command finds its link.
const LINK_FD: RawFd = 3;
/// Descriptors that must not be in the way of [`LINK_FD`] are moved to this one or above.
const OUT_OF_THE_WAY: RawFd = 10;

const CANNOT_EXECUTE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// Everything the new process needs, made ready before it exists.
pub(super) struct Plan {
    pub(super) filters: Filters,
    pub(super) taps: Vec<TapRequest>,
    pub(super) command: Command,
    pub(super) cwd: CString,
    /// Descriptors of the node to be granted.
    pub(super) devices: Vec<(Role, OwnedFd)>,
    /// The cage's end of the link: the grant is sent on it.
    pub(super) ours: Link,
    /// The command's end of the link.
    pub(super) theirs: OwnedFd,
    /// Takes the reason if the command cannot be started; closed once it has been.
    pub(super) report: OwnedFd,
}

/// A command as execve takes it.
pub(super) struct Command {
    /// Where its program may be.
    candidates: Vec<CString>,
    /// Whether they come from PATH.
    searched: bool,
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl Command {
    pub(super) fn of(cage: &Cage) -> Result<Self> {
        let program = cage.argv.first().context("no command is given")?;
        let argv = cage.argv.iter().map(|word| c_string(word.clone())).collect::<Result<_>>()?;
        let own: [(OsString, OsString); 2] = [
            ("CORTEN_CAGE".into(), cage.profile.name().into()),
            ("CORTEN_LINK_FD".into(), LINK_FD.to_string().into()),
        ];
        let given = cage.env.iter().filter(|(name, _)| own.iter().all(|(own, _)| own != name));
        let env = given.chain(&own).map(variable).collect::<Result<_>>()?;
        let path = cage.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
        let path = path.map_or(OsStr::new("/usr/bin:/bin"), |path| path);
        let searched = !program.as_bytes().contains(&b'/');
        let candidates = if searched {
            env::split_paths(path).map(|directory| c_path(&directory.join(program))).collect()
        } else {
            Ok(vec![c_string(program.clone())?])
        };
        Ok(Self { candidates: candidates?, searched, argv, env })
    }

    /// Becomes the command; returns only with the exit code of a failure.
    fn execute(&self) -> i32 {
        let mut error = Errno::ENOENT;
        for program in &self.candidates {
            let Err(refused) = execve(program, &self.argv, &self.env);
            // A directory of PATH that is closed to the launcher says nothing of the program.
            let unseen = self.searched && stat(program.as_c_str()).is_err();
            if !unseen && !matches!(refused, Errno::ENOENT | Errno::ENOTDIR) {
                error = refused;
            }
        }
        let name = self.argv.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        let _ =
            write(std::io::stderr(), format!("cage: cannot execute {name}: {error}\n").as_bytes());
        if error == Errno::ENOENT { NOT_FOUND } else { CANNOT_EXECUTE }
    }
}

/// Runs in the new process and its new namespaces. Returns the exit code if the command could not be started.
pub(super) fn enter(plan: &Plan) -> i32 {
    let report = match keep_out_of_the_way(plan.report.as_fd()) {
        Ok(report) => report,
        Err(_) => return CANNOT_EXECUTE,
    };
    match prepare(plan, report.as_fd()) {
        Ok(()) => plan.command.execute(),
        Err(error) => {
            let _ = write(&report, format!("{error:#}").as_bytes());
            CANNOT_EXECUTE
        }
    }
}

/// The order matters: each step takes what a later one gives away.
fn prepare(plan: &Plan, report: BorrowedFd<'_>) -> Result<()> {
    mounts::detach()?;
    sethostname("launcher").context("cannot set the host name")?;
    let taps = network::create(&plan.taps)?;
    grant(&plan.ours, &plan.devices, &taps)?;
    drop(taps);
    mounts::arrange()?;
    chdir(plan.cwd.as_c_str())
        .with_context(|| format!("cannot enter directory {}", plan.cwd.to_string_lossy()))?;
    own_session()?;
    default_signals()?;
    umask(Mode::from_bits_truncate(0o022));
    privileges::give_stdio()?;
    arrange_descriptors(plan.theirs.as_fd())?;
    privileges::drop_all()?;
    die_with_the_cage(report)?;
    plan.filters.install().context("cannot install the system-call filter")
}

fn grant(link: &Link, devices: &[(Role, OwnedFd)], taps: &[(Role, OwnedFd)]) -> Result<()> {
    let descriptors: Vec<_> =
        devices.iter().chain(taps).map(|(role, fd)| (role.clone(), fd.as_fd())).collect();
    link.send_grant(&descriptors).context("cannot send the grant")
}

/// On a terminal the command stays in the session that has it; without one it has a session of its own, so that a
/// signal to the cage's group reaches it once.
fn own_session() -> Result<()> {
    if !isatty(std::io::stdin()).unwrap_or(false) {
        setsid().context("cannot start a session")?;
    }
    Ok(())
}

/// Rust ignores SIGPIPE and the cage blocks what it waits for; the command shall inherit neither.
fn default_signals() -> Result<()> {
    // SAFETY: the default action runs no code of ours.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.context("cannot reset SIGPIPE")?;
    SigSet::empty().thread_set_mask().context("cannot unblock signals")
}

/// Leaves 0, 1, 2 and the link; all others close with exec, the report among them.
fn arrange_descriptors(theirs: BorrowedFd<'_>) -> Result<()> {
    let theirs = keep_out_of_the_way(theirs)?;
    // SAFETY: whatever else had this number belongs to the plan, which is not used for descriptors any more.
    let link = unsafe { dup2_raw(&theirs, LINK_FD) }.context("cannot place the link")?;
    // It is the command's now.
    let _ = link.into_raw_fd();
    let first = LINK_FD.cast_unsigned() + 1;
    let flags = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
    // SAFETY: no descriptor is closed here, only marked.
    let result = unsafe { libc::close_range(first, libc::c_uint::MAX, flags) };
    Errno::result(result).context("cannot close the other descriptors")?;
    Ok(())
}

/// Asked for last, because the kernel forgets it with each change of the user.
fn die_with_the_cage(report: BorrowedFd<'_>) -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot bind the command to the cage")?;
    // It may be gone already. Its end of the report tells, whatever namespaces lie between.
    let mut fds = [PollFd::new(report, PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO).context("cannot look for the cage process")?;
    let gone = fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR));
    ensure!(!gone, "the cage process is gone");
    Ok(())
}

fn keep_out_of_the_way(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    let raw = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(OUT_OF_THE_WAY))
        .with_context(|| format!("cannot move descriptor {}", fd.as_raw_fd()))?;
    // SAFETY: fcntl has just made it, nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn variable((name, value): &(OsString, OsString)) -> Result<CString> {
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        bail!("{name:?} is not the name of an environment variable");
    }
    let mut text = name.clone();
    text.push("=");
    text.push(value);
    c_string(text)
}

/// A path as the kernel takes it.
pub(super) fn c_path(path: &Path) -> Result<CString> {
    c_string(path.as_os_str().into())
}

fn c_string(text: OsString) -> Result<CString> {
    CString::new(text.into_vec()).context("a NUL stands in the command, its environment or path")
}
