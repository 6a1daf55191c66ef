//! The cage process: starts the command, stays with it and gives back how it ended.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, bail, ensure};
use corten_link::{Link, Role};
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, clone};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, Uid, close, pipe2};

use super::enter::{Command, Plan, c_path, enter};
use super::{Cage, Device};

/// For what the new process does before it becomes the command.
const STACK: usize = 1 << 20;

/// Runs the command of `cage` to its end: its exit code, 128 + N if signal N ended it, 127 if there is no such program,
/// 126 if it cannot be executed.
///
/// To be called by a process that has one thread and is root in the node. SIGTERM and SIGINT go to the command; being the
/// first process of its PID namespace, it does not feel them without a handler, so the second one kills it.
pub fn run(cage: &Cage) -> Result<i32> {
    ensure!(Uid::effective().is_root(), "the cage is built by root");
    let (ours, theirs) = Link::pair()?;
    let (outcome, report) = pipe2(OFlag::O_CLOEXEC).context("cannot open a pipe")?;
    let plan = Plan {
        filters: cage.profile.compile()?,
        taps: cage.taps.clone(),
        command: Command::of(cage)?,
        cwd: c_path(&cage.cwd)?,
        devices: open_all(&cage.devices)?,
        ours,
        theirs: theirs.into_fd(),
        report,
    };

    let waited = WaitedSignals::block()?;
    let child = start(&plan, &outcome)?;
    let Plan { ours, theirs, report, .. } = plan;
    drop((theirs, report));
    if let Some(reason) = reason_of_failure(outcome)? {
        waitpid(child, None).context("cannot wait for the failed command")?;
        bail!(reason);
    }
    let code = waited.until_end_of(child)?;
    drop(ours);
    Ok(code)
}

fn open_all(devices: &[Device]) -> Result<Vec<(Role, OwnedFd)>> {
    devices.iter().filter_map(|device| open(device).transpose()).collect()
}

/// Opens a device; None if the node has none and need not have it.
fn open(device: &Device) -> Result<Option<(Role, OwnedFd)>> {
    let path = device.path.display();
    match OpenOptions::new().read(true).write(true).open(&device.path) {
        Ok(file) => Ok(Some((device.role.clone(), file.into()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            ensure!(!device.required, "the node has no {path}");
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot open {path}")),
    }
}

fn start(plan: &Plan, outcome: &OwnedFd) -> Result<Pid> {
    let namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    let mut stack = vec![0; STACK];
    let child = Box::new(|| {
        // Only the cage process may hold this end: that it is open shows that the cage lives.
        let _ = close(outcome.as_raw_fd());
        isize::try_from(enter(plan)).unwrap_or(1)
    });
    // SAFETY: memory is copied, not shared, and this process has one thread, so the child finds no lock taken. It ends in
    // execve or with the callback and never returns into the caller.
    unsafe { clone(child, &mut stack, namespaces, Some(libc::SIGCHLD)) }
        .context("cannot start a process in new namespaces")
}

/// Waits until the command runs, which closes the pipe, or for the reason why it does not.
fn reason_of_failure(outcome: OwnedFd) -> Result<Option<String>> {
    let mut reason = String::new();
    File::from(outcome)
        .read_to_string(&mut reason)
        .context("cannot learn whether the command runs")?;
    Ok(Some(reason).filter(|reason| !reason.is_empty()))
}

/// The signals the cage waits for, blocked as long as this lives.
struct WaitedSignals {
    waited: SigSet,
    before: SigSet,
}

impl WaitedSignals {
    fn block() -> Result<Self> {
        // Where it was ignored the kernel would neither tell of the command's end nor keep its status.
        // SAFETY: the default action runs no code of ours.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }.context("cannot reset SIGCHLD")?;
        let waited: SigSet =
            [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        let before = waited
            .thread_swap_mask(SigmaskHow::SIG_BLOCK)
            .context("cannot block the signals to wait for")?;
        Ok(Self { waited, before })
    }

    fn until_end_of(&self, command: Pid) -> Result<i32> {
        let mut asked = false;
        loop {
            match waitpid(command, Some(WaitPidFlag::WNOHANG))
                .context("cannot wait for the command")?
            {
                WaitStatus::Exited(_, code) => return Ok(code),
                WaitStatus::Signaled(_, signal, _) => return Ok(128 + signal as i32),
                _ => {}
            }
            let received = self.waited.wait().context("cannot wait for signals")?;
            if received != Signal::SIGCHLD {
                let passed_on = if asked { Signal::SIGKILL } else { received };
                asked = true;
                // It can only have ended just now, and then SIGCHLD is next.
                let _ = kill(command, passed_on);
            }
        }
    }
}

impl Drop for WaitedSignals {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use nix::unistd::{ForkResult, dup2_stderr, dup2_stdout, fork};

    use super::*;
    use crate::cage::{Profile, TapRequest};

    const FAILED: i32 = 125;

    /// A cage process of its own, and what it and its command print.
    struct Running {
        cage: Pid,
        output: BufReader<File>,
    }

    impl Running {
        fn start(argv: &[&str]) -> Self {
            Self::start_in("/", argv)
        }

        fn start_in(cwd: &str, argv: &[&str]) -> Self {
            let cage = Cage {
                profile: Profile::Launcher,
                // None, so that these tests run on machines without KVM.
                devices: Vec::new(),
                taps: vec![TapRequest { network: "net1".into(), queues: 2 }],
                argv: argv.iter().map(Into::into).collect(),
                // root's own directory is closed to the launcher.
                env: vec![("PATH".into(), "/root/bin:/usr/bin:/bin".into())],
                cwd: cwd.into(),
            };
            let (output, input) = pipe2(OFlag::O_CLOEXEC).unwrap();
            // SAFETY: fork leaves the heap usable in the child, which then ends with _exit.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    let code = in_child(&cage, &input);
                    // SAFETY: ends the child without running what belongs to the parent.
                    unsafe { libc::_exit(code) }
                }
                ForkResult::Parent { child } => {
                    Self { cage: child, output: BufReader::new(output.into()) }
                }
            }
        }

        fn line(&mut self) -> String {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            line.trim_end().into()
        }

        fn signal(&self, signal: Signal) {
            kill(self.cage, signal).unwrap();
        }

        /// Waits until nobody has the output any more: neither cage nor command live then.
        fn end(mut self) -> (WaitStatus, String) {
            let mut rest = String::new();
            self.output.read_to_string(&mut rest).unwrap();
            (waitpid(self.cage, None).unwrap(), rest)
        }

        fn code(self) -> (i32, String) {
            match self.end() {
                (WaitStatus::Exited(_, code), output) => (code, output),
                (other, output) => panic!("the cage did not exit: {other:?} {output}"),
            }
        }
    }

    fn in_child(cage: &Cage, output: &OwnedFd) -> i32 {
        if dup2_stdout(output).is_err() || dup2_stderr(output).is_err() {
            return FAILED;
        }
        // What other tests have open must end with them.
        // SAFETY: nothing in this process uses a descriptor from 3 on.
        unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
        run(cage).unwrap_or_else(|error| {
            let _ = nix::unistd::write(std::io::stderr(), format!("{error:#}").as_bytes());
            FAILED
        })
    }

    #[test]
    fn exit_code_is_the_commands() {
        assert_eq!(Running::start(&["sh", "-c", "echo out; exit 7"]).code(), (7, "out\n".into()));
    }

    #[test]
    fn pipes_open_again_by_the_names_in_dev() {
        let script = "echo out >/dev/stdout; echo err >/dev/stderr";
        assert_eq!(Running::start(&["sh", "-c", script]).code(), (0, "out\nerr\n".into()));
    }

    #[test]
    fn device_that_is_absent_is_an_error_if_required() {
        let absent = |required| Device { role: Role::kvm(), path: "/no/such".into(), required };
        assert_eq!(open(&absent(true)).unwrap_err().to_string(), "the node has no /no/such");
        assert!(open(&absent(false)).unwrap().is_none());
        let null = Device { path: "/dev/null".into(), ..absent(true) };
        assert_eq!(open(&null).unwrap().unwrap().0, Role::kvm());
    }

    #[test]
    fn absent_program_is_127_and_what_is_no_program_126() {
        let (code, output) = Running::start(&["no-such-program"]).code();
        assert_eq!(code, 127, "{output}");
        assert!(output.starts_with("cage: cannot execute no-such-program: ENOENT"), "{output}");
        let (code, output) = Running::start(&["/etc/passwd"]).code();
        assert_eq!(code, 126, "{output}");
        assert!(output.starts_with("cage: cannot execute /etc/passwd: EACCES"), "{output}");
    }

    #[test]
    fn failed_step_is_one_line_that_names_it() {
        let (code, output) = Running::start_in("/no/such/place", &["true"]).code();
        assert_eq!(code, FAILED);
        assert_eq!(
            output,
            "cannot enter directory /no/such/place: ENOENT: No such file or directory"
        );
    }

    #[test]
    fn sigterm_reaches_the_command() {
        let mut running =
            Running::start(&["sh", "-c", "trap 'exit 5' TERM; echo ready; sleep 60 & wait"]);
        assert_eq!(running.line(), "ready");
        running.signal(Signal::SIGTERM);
        assert_eq!(running.code().0, 5);
    }

    #[test]
    fn second_signal_kills_a_command_that_does_not_listen() {
        let mut running = Running::start(&["sh", "-c", "echo ready; sleep 60"]);
        assert_eq!(running.line(), "ready");
        running.signal(Signal::SIGTERM);
        running.signal(Signal::SIGINT);
        assert_eq!(running.code().0, 128 + libc::SIGKILL);
    }

    #[test]
    fn command_and_its_children_die_with_a_killed_cage() {
        let mut running = Running::start(&["sh", "-c", "sleep 60 & echo ready; wait"]);
        assert_eq!(running.line(), "ready");
        running.signal(Signal::SIGKILL);
        let (status, rest) = running.end();
        assert!(matches!(status, WaitStatus::Signaled(_, Signal::SIGKILL, _)), "{status:?}");
        assert_eq!(rest, "");
    }
}
