//! A VMM's process, which never outlives the one that measures it.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};
use corten_link::Link;
use nix::fcntl::{F_SETFD, FdFlag, fcntl};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, dup2};

/// The descriptor on which a child finds its link.
const LINK: i32 = 3;
/// No more of what it says on standard error is kept: an error is to stay readable.
const ERROR_TEXT: u64 = 4096;

/// A running VMM.
#[derive(Debug)]
pub struct VmmProcess {
    child: Child,
    errors: File,
    /// A VM process ends when its link does.
    _control: Option<Arc<Link>>,
}

impl VmmProcess {
    /// Starts `command`, which finds `inherited` under the same numbers. To be called by the main thread, with whose end the
    /// process ends too.
    pub fn spawn(mut command: Command, inherited: Vec<OwnedFd>) -> Result<Self> {
        let prepare = move || {
            die_with_parent()?;
            for descriptor in &inherited {
                fcntl(descriptor, F_SETFD(FdFlag::empty()))?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made, which is allowed there.
        unsafe { command.pre_exec(prepare) };
        Self::start(command, None)
    }

    /// As [`Self::spawn`], with one end of a link as descriptor 3. The other is kept open.
    pub fn spawn_linked(mut command: Command, theirs: OwnedFd, ours: Arc<Link>) -> Result<Self> {
        let prepare = move || {
            die_with_parent()?;
            place(&theirs)
        };
        // SAFETY: between fork and exec only system calls are made, which is allowed there.
        unsafe { command.pre_exec(prepare) };
        Self::start(command, Some(ours))
    }

    fn start(mut command: Command, control: Option<Arc<Link>>) -> Result<Self> {
        let errors = tempfile::tempfile().context("cannot make a file for error messages")?;
        command.stdin(Stdio::null()).stderr(errors.try_clone()?);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        Ok(Self { child, errors, _control: control })
    }

    /// Its process id.
    pub fn id(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// What it said on standard error so far.
    pub fn errors(&mut self) -> String {
        let mut text = Vec::new();
        let read = self.errors.rewind();
        let _ = read.and_then(|()| (&mut self.errors).take(ERROR_TEXT).read_to_end(&mut text));
        String::from_utf8_lossy(&text).trim().to_owned()
    }
}

impl Drop for VmmProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn die_with_parent() -> std::io::Result<()> {
    Ok(set_pdeathsig(Signal::SIGKILL)?)
}

/// In the child: makes `theirs` descriptor 3, open across exec.
fn place(theirs: &OwnedFd) -> std::io::Result<()> {
    if theirs.as_raw_fd() == LINK {
        fcntl(theirs, F_SETFD(FdFlag::empty()))?;
        return Ok(());
    }
    // SAFETY: whatever 3 is in the child, it is ours to replace: nothing runs there but this and exec.
    let mut three = unsafe { OwnedFd::from_raw_fd(LINK) };
    let outcome = dup2(theirs, &mut three);
    std::mem::forget(three);
    Ok(outcome?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_says_is_kept_and_its_end_is_seen() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo cannot >&2; exit 3"]).stdout(Stdio::null());
        let mut process = VmmProcess::spawn(command, Vec::new()).unwrap();
        let status = process.child.wait().unwrap();
        assert_eq!(process.ended().unwrap(), Some(status));
        assert_eq!((status.code(), process.errors().as_str()), (Some(3), "cannot"));
    }

    #[test]
    fn linked_child_finds_its_link_on_descriptor_3() {
        let (ours, theirs) = Link::pair().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "readlink /proc/self/fd/3 >&2"]).stdout(Stdio::null());
        let mut process =
            VmmProcess::spawn_linked(command, theirs.into_fd(), Arc::new(ours)).unwrap();
        process.child.wait().unwrap();
        assert!(process.errors().starts_with("socket:"), "{}", process.errors());
    }
}
