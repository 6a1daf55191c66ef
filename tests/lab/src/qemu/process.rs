//! A child that never outlives the lab.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// A running child. Dropping it kills it; so does the end of the thread that started it, however that came about.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts `program` with `descriptors` open in it and what it prints in `log`.
    ///
    /// To be called on the main thread: the kernel ends the child together with the thread that made it.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        descriptors: &[&OwnedFd],
        log: &Path,
    ) -> Result<Self> {
        let log = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let inherited: Vec<i32> = descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
        let lab = std::process::id();
        let mut command = Command::new(program);
        // A group of its own: Ctrl-C at the terminal is for the lab alone, which then ends its children in order.
        command.args(arguments).process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let prepare = move || {
            set_pdeathsig(Signal::SIGKILL)?;
            if nix::unistd::getppid().as_raw() != lab.cast_signed() {
                return Err(std::io::ErrorKind::BrokenPipe.into());
            }
            for fd in &inherited {
                // SAFETY: the descriptor is open: its owner outlives this call, and fork copied the table.
                let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) };
                fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made, which is allowed there.
        unsafe { command.pre_exec(prepare) };
        let child =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self(child))
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// How it ended, if it has.
    pub fn status(&mut self) -> Option<std::process::ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it ends by itself; false if it did not.
    pub fn wait(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.is_running() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
