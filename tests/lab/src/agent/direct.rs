//! Direct mode: the machine itself is the node.
//!
//! Fresh mount, network, IPC, host-name and PID namespaces with their own /tmp and /proc; the rest of the file system
//! is the machine's. The agent is the init of the PID namespace, so when it ends nothing of the node is left.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use super::boot::mount_at;
use super::identity::bring_loopback_up;

/// Makes the namespaces and runs `serve` as their first process; the caller waits for it. Directories that are `kept`
/// stay where they are, also below /tmp.
pub fn enter(kept: &[PathBuf], serve: impl FnOnce() -> Result<()>) -> Result<ExitCode> {
    set_pdeathsig(Signal::SIGKILL)?;
    let namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWPID;
    unshare(namespaces).context("cannot make namespaces (is this root?)")?;
    // SAFETY: the process has one thread, so the child may do whatever it likes.
    match unsafe { fork() }.context("cannot fork")? {
        ForkResult::Parent { child } => {
            waitpid(child, None)?;
            Ok(ExitCode::SUCCESS)
        }
        ForkResult::Child => {
            set_pdeathsig(Signal::SIGKILL)?;
            let all = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
            mount(None::<&str>, "/", None::<&str>, all, None::<&str>)?;
            mount_at("proc", "/proc", "proc", None)?;
            cover_tmp(kept)?;
            bring_loopback_up()?;
            serve()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// A new /tmp, in which what was shared of the old one is found again.
fn cover_tmp(kept: &[PathBuf]) -> Result<()> {
    let below: Vec<&PathBuf> = kept.iter().filter(|path| path.starts_with("/tmp")).collect();
    // Open while it can still be reached by its path.
    let open: Vec<File> = below.iter().map(File::open).collect::<Result<_, _>>()?;
    mount_at("tmpfs", "/tmp", "tmpfs", Some("mode=1777"))?;
    for (path, file) in below.iter().zip(&open) {
        fs::create_dir_all(path)?;
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(&*from), *path, None::<&str>, flags, None::<&str>)
            .with_context(|| format!("cannot keep {}", path.display()))?;
    }
    Ok(())
}
