//! Stops a VM process at a chosen exit of a vCPU, from outside: the program that is shipped knows nothing of it.
//!
//! The vCPU's thread is traced from one KVM_RUN to the next. At the exit that is wanted it is held until the order to
//! park has reached it, so that this exit is the last one that it answers.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use corten_link::Request;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::process::VmProcess;
use crate::threads::thread;

const IOCTL: u64 = libc::SYS_ioctl.unsigned_abs();
const KVM_RUN: u64 = 0xae80;
const SOON: Duration = Duration::from_secs(60);

/// How a run to an exit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// At the exit that was wanted: the machine is paused.
    AtExit,
    /// The VM ended before.
    Ended,
}

/// Resumes a paused machine, lets its vCPU exit `exits` times, and pauses it there.
///
/// All of it in the thread that calls: a tracer is a thread, not a process.
pub fn resume_for_exits(process: &mut VmProcess, vcpu: usize, exits: u64) -> Result<Stopped> {
    ensure!(exits > 0, "the first exit is number 1");
    let thread = thread(process.id(), &format!("vcpu-{vcpu}"))?;
    ptrace::seize(thread, ptrace::Options::PTRACE_O_TRACESYSGOOD)?;
    ptrace::interrupt(thread)?;
    ensure!(wait(thread)?.is_some(), "the vCPU's thread ended before it was resumed");
    let resumed = process.send(Request::Resume)?;
    ptrace::syscall(thread, None)?;
    let mut seen = 0;
    while let Some(status) = wait(thread)? {
        if let WaitStatus::PtraceSyscall(_) = status
            && is_exit(thread)?
        {
            seen += 1;
        }
        if seen == exits {
            process.must_reply(resumed)?;
            let paused = process.send(Request::Pause)?;
            // The order is in the thread's queue before it is kicked.
            wait_until_kicked(process.id(), thread)?;
            ptrace::detach(thread, None)?;
            process.must_reply(paused)?;
            return Ok(Stopped::AtExit);
        }
        ptrace::syscall(thread, passed_on(status))?;
    }
    process.must_reply(resumed)?;
    Ok(Stopped::Ended)
}

/// The next stop of the thread; none once it ended.
fn wait(thread: Pid) -> Result<Option<WaitStatus>> {
    match waitpid(thread, Some(WaitPidFlag::__WALL)) {
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(nix::Error::ECHILD) => Ok(None),
        Ok(status) => Ok(Some(status)),
        Err(error) => Err(error).context("cannot wait for the vCPU's thread"),
    }
}

/// A signal on its way to the thread still has to reach it.
fn passed_on(status: WaitStatus) -> Option<Signal> {
    match status {
        WaitStatus::Stopped(_, signal) => Some(signal),
        _ => None,
    }
}

/// Whether the thread has just left KVM_RUN, with something to answer. Interrupted runs have nothing.
fn is_exit(thread: Pid) -> Result<bool> {
    let registers = match ptrace::getregs(thread) {
        Ok(registers) => registers,
        // Killed meanwhile, with its process.
        Err(nix::Error::ESRCH) => return Ok(false),
        Err(error) => return Err(error).context("cannot read the vCPU thread's registers"),
    };
    // On its way into a system call, the result is not there yet.
    Ok(registers.orig_rax == IOCTL && registers.rsi == KVM_RUN && registers.rax == 0)
}

fn wait_until_kicked(process: u32, thread: Pid) -> Result<()> {
    let deadline = Instant::now() + SOON;
    let path = format!("/proc/{process}/task/{thread}/status");
    while !has_pending_signal(&fs::read_to_string(&path)?) {
        ensure!(Instant::now() < deadline, "nobody kicks the vCPU");
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

fn has_pending_signal(status: &str) -> bool {
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    pending.is_some_and(|mask| mask.trim().bytes().any(|digit| digit != b'0'))
}
