//! Starting a supervisor, and staying with it: what `run` and `restore` share.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use corten_link::{EndReason, Link};
use nix::errno::Errno;
use nix::unistd::{dup2, setsid};

use super::report::{self, Report, create};
use super::run::absolute;
use crate::client::attach::{Outcome, Session, attach};
use crate::client::progress::Progress;
use crate::client::{Client, ClientError, terminal};
use crate::failure::{Failure, NO_STATUS, SAVED, TIMED_OUT};
use crate::job::{Job, Network};
use crate::junit;
use crate::options::{BridgeOf, How, Seccomp};
use crate::place::Runtime;
use crate::protocol::{ClientEnd, Ended, Keyboard};
use crate::{kvm, program, supervisor};

/// Looks at KVM, and for the program of the VM process.
pub(super) fn ready(how: &How) -> Result<PathBuf, Failure> {
    let program = program::find(how.vmm.as_deref())?;
    if !how.any_kvm {
        kvm::check()?;
    }
    Ok(program)
}

/// How networks are connected, by what the command line says of bridges.
pub(super) fn network(how: &How) -> Result<Network, Failure> {
    if how.no_network {
        return Ok(Network::None);
    }
    let (mut named, mut others) = (BTreeMap::new(), None);
    for BridgeOf { network, bridge } in &how.bridges {
        let before = match network {
            Some(network) => named.insert(network.clone(), bridge.clone()),
            None => others.replace(bridge.clone()),
        };
        if let Some(before) = before {
            let whose = network.as_deref().unwrap_or("all networks");
            let text = format!("--bridge names both {before} and {bridge} for {whose}");
            return Err(Failure::Said(text));
        }
    }
    Ok(match (named.is_empty(), others) {
        (true, None) => Network::Own,
        (true, Some(bridge)) => Network::Bridge(bridge),
        (false, others) => Network::Bridges { named, others },
    })
}

/// Not in memory, as the run directory usually is: overlays grow with what a guest writes.
pub(super) fn scratch(how: &How) -> Result<PathBuf, Failure> {
    let directory = how.scratch.clone().unwrap_or_else(|| "/var/tmp".into());
    absolute(&directory)
}

pub(super) fn seccomp_log(how: &How) -> bool {
    how.seccomp == Seccomp::Log
}

/// Where the console is written to as well. That it can be is found out before a VM is started; a pipe is left for the
/// supervisor, as its reader would see the end of it.
pub(super) fn log(how: &How) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = how.log.as_deref().map(absolute).transpose()? else { return Ok(None) };
    if path.metadata().map_or(true, |found| found.is_file() || found.is_dir()) {
        create(&path)?;
    }
    Ok(Some(path))
}

/// Starts the VM of `job`, and stays until it ends, unless the user leaves or wants it in the background.
pub(super) fn start(
    runtime: &Runtime,
    job: &Job,
    how: &How,
    report: &mut Report,
) -> Result<report::Outcome, Failure> {
    terminal::restore_on_panic();
    let name = job.name.clone();
    report.name.clone_from(&name);
    let mut child = Supervisor::start(runtime, job)?;
    let mut progress = Progress::new(&name, how.quiet);
    let session = Session { keyboard: Keyboard::IfFree, stops: true, until_running: how.detach };
    let stayed = child.client(&name).and_then(|mut client| {
        let outcome = attach(&mut client, session, &mut progress, &mut report.tail)?;
        if matches!(outcome, Outcome::Left) {
            client.leave()?;
        }
        Ok(outcome)
    });
    let outcome = match stayed {
        Err(Failure::Client(ClientError::Ended { end, .. })) => Outcome::Ended(*end),
        // However it was killed, the VM died with it.
        Err(error @ Failure::Client(ClientError::Gone { .. })) => {
            child.wait();
            runtime.is_running(&name);
            return Err(error);
        }
        // The VM lives with this command, which can do nothing more for it: it has its grace period, and is gone then.
        Err(error @ Failure::System { .. }) => {
            progress.note("this command can go on no more: the VM is asked to power off");
            child.wait();
            return Err(error);
        }
        stayed => stayed?,
    };
    match outcome {
        Outcome::Left => {
            if how.detach {
                super::print(&format!("{name}\n"))?;
            } else {
                progress.note(&format!(
                    "left; `corten console {name}` comes back, `corten stop {name}` ends it"
                ));
            }
            let verdict = junit::Verdict::Error("its console was left, and it goes on".into());
            Ok(report::Outcome { status: 0, verdict })
        }
        Outcome::Ended(end) => {
            child.wait();
            let Verdict { status, text } = Verdict::of(&end, how.exit_status);
            if !how.quiet || status != 0 {
                progress.note(&text);
            }
            let verdict = match (status, end.reason) {
                (0, _) => junit::Verdict::Passed,
                (_, EndReason::NotStarted) => junit::Verdict::Error(text),
                _ => junit::Verdict::Failed(text),
            };
            Ok(report::Outcome { status, verdict })
        }
    }
}

/// What an end is to whoever ran the VM.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    status: u8,
    text: String,
}

impl Verdict {
    fn of(end: &Ended, wants_status: bool) -> Self {
        let ended = end.text();
        if end.saved {
            return Self { status: SAVED, text: ended };
        }
        match (end.timed_out, end.reason, end.guest_status) {
            (true, ..) => Self { status: TIMED_OUT, text: ended },
            (false, EndReason::PoweredOff, Some(status)) if wants_status => {
                Self { status, text: format!("{ended}; it told status {status}") }
            }
            (false, EndReason::PoweredOff, None) if wants_status => {
                Self { status: NO_STATUS, text: format!("{ended}, but told no status") }
            }
            (false, reason, _) => Self { status: reason.exit_status(), text: ended },
        }
    }
}

/// A supervisor that was started.
struct Supervisor {
    child: Child,
    link: Option<OwnedFd>,
}

impl Supervisor {
    fn start(runtime: &Runtime, job: &Job) -> Result<Self, Failure> {
        let system = |source| Failure::System { what: "start a supervisor", source };
        let (ours, theirs) = Link::pair().map_err(|error| system(io::Error::other(error)))?;
        let (theirs, job) = (theirs.into_fd(), OwnedFd::from(job.to_file()?));
        let mut command = Command::new("/proc/self/exe");
        command.arg0("corten").arg("--runtime").arg(runtime.path()).arg("supervise");
        // Where the user stands may be a file system that is to be unmounted.
        command.current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec only system calls are made, which is allowed there.
        unsafe { command.pre_exec(move || hand_over(&theirs, &job).map_err(Into::into)) };
        let child = command.spawn().map_err(system)?;
        Ok(Self { child, link: Some(ours.into_fd()) })
    }

    fn client(&mut self, name: &str) -> Result<Client, Failure> {
        let gone = |source| ClientError::Gone { name: name.into(), source };
        let link = self.link.take().ok_or_else(|| ClientError::Silent(name.into()))?;
        Ok(Client::over(ClientEnd::from_fd(link).map_err(gone)?, name, true)?)
    }

    /// It has told its end, and goes.
    fn wait(&mut self) {
        let _ = self.child.wait();
    }
}

/// Makes both descriptors those that a supervisor looks for, and leaves the terminal's session.
fn hand_over(link: &OwnedFd, job: &OwnedFd) -> Result<(), Errno> {
    setsid()?;
    // Out of the way of each other first.
    let (link, job) = (lifted(link)?, lifted(job)?);
    for (fd, number) in [(&link, supervisor::LINK), (&job, supervisor::JOB)] {
        // SAFETY: whatever the number is in the child, it is ours to replace: nothing runs there but this and exec.
        let mut place = unsafe { OwnedFd::from_raw_fd(number) };
        let outcome = dup2(fd, &mut place);
        std::mem::forget(place);
        outcome?;
    }
    Ok(())
}

fn lifted(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    let number = nix::fcntl::fcntl(fd, nix::fcntl::F_DUPFD_CLOEXEC(supervisor::JOB + 1))?;
    debug_assert!(number != fd.as_raw_fd());
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(reason: EndReason, timed_out: bool, guest_status: Option<u8>) -> Ended {
        Ended { reason, detail: String::new(), timed_out, saved: false, guest_status }
    }

    #[test]
    fn status_says_how_it_ended() {
        let cases = [
            (ended(EndReason::PoweredOff, false, None), false, 0),
            (ended(EndReason::PoweredOff, false, Some(3)), true, 3),
            (ended(EndReason::PoweredOff, false, Some(0)), true, 0),
            (ended(EndReason::PoweredOff, false, None), true, NO_STATUS),
            (ended(EndReason::Panicked, false, Some(0)), true, 81),
            (ended(EndReason::Killed, true, Some(0)), true, TIMED_OUT),
            (ended(EndReason::Killed, false, None), false, 80),
            (ended(EndReason::NotStarted, false, None), false, 84),
        ];
        for (end, wants_status, status) in cases {
            assert_eq!(Verdict::of(&end, wants_status).status, status, "{end:?}");
        }
        let saved = Ended { saved: true, ..ended(EndReason::Killed, false, Some(0)) };
        let verdict = Verdict::of(&saved, true);
        assert_eq!(verdict.status, SAVED);
        assert!(verdict.text.starts_with("the VM was saved"), "{}", verdict.text);
    }
}
