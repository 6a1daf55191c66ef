//! Makes a thread of a VM process make a system call, or lets one of its own fail, from outside: the program that is
//! shipped knows nothing of it.
//!
//! All of it in the thread that calls: a tracer is a thread, not a process.

use anyhow::{Context, Result, bail};
use libc::user_regs_struct;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The instruction `syscall`, as it is read from memory.
const SYSCALL: i64 = 0x050f;
/// Registers of a thread that is in no system call.
const NO_CALL: u64 = u64::MAX;
/// What the kernel keeps for itself: the interrupted call is to be made again.
const RESTART: std::ops::RangeInclusive<i64> = -516..=-512;

/// Lets `thread` make the call, and go on with whatever comes of it.
pub fn inject(thread: Pid, number: i64, arguments: [u64; 3]) -> Result<()> {
    let registers = stop_at_call(thread)?;
    ptrace::setregs(thread, with_call(registers, number, arguments))?;
    Ok(ptrace::detach(thread, None)?)
}

/// Lets `thread` make the call, gives back the result, and lets it go on as if nothing had been.
pub fn call(thread: Pid, number: i64, arguments: [u64; 3]) -> Result<i64> {
    let before = stop_at_call(thread)?;
    ptrace::setregs(thread, with_call(before, number, arguments))?;
    // Into it, and out of it.
    for _ in 0..2 {
        next_call_stop(thread)?;
    }
    let result = ptrace::getregs(thread)?.rax.cast_signed();
    let mut after = before;
    if before.orig_rax != NO_CALL && RESTART.contains(&before.rax.cast_signed()) {
        // The kernel would have done this itself.
        after.rip -= 2;
        after.rax = before.orig_rax;
    }
    after.orig_rax = NO_CALL;
    ptrace::setregs(thread, after)?;
    ptrace::detach(thread, None)?;
    Ok(result)
}

/// Calls `meanwhile`, and answers the next call of this number that `thread` makes with `error` instead of its result.
pub fn fail_next(
    thread: Pid,
    number: i64,
    error: i32,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<()> {
    stop(thread)?;
    meanwhile()?;
    loop {
        next_call_stop(thread)?;
        let mut registers = ptrace::getregs(thread)?;
        // On its way into a call it has this for a result.
        let is_entry = registers.rax.cast_signed() == -i64::from(libc::ENOSYS);
        if registers.orig_rax.cast_signed() == number && !is_entry {
            registers.rax = (-i64::from(error)).cast_unsigned();
            ptrace::setregs(thread, registers)?;
            return Ok(ptrace::detach(thread, None)?);
        }
    }
}

/// Stops a thread where it has made a system call, is in one, or would make its next one.
fn stop_at_call(thread: Pid) -> Result<user_regs_struct> {
    stop(thread)?;
    let registers = ptrace::getregs(thread)?;
    let before = ptrace::read(thread, (registers.rip - 2) as ptrace::AddressType)?;
    if before & 0xffff == SYSCALL {
        return Ok(registers);
    }
    // Into its next one, in whose place one is made that every thread may make, and out of it: as if it had been interrupted.
    next_call_stop(thread)?;
    let entered = ptrace::getregs(thread)?;
    let harmless = libc::SYS_getpid.cast_unsigned();
    ptrace::setregs(thread, user_regs_struct { orig_rax: harmless, ..entered })?;
    next_call_stop(thread)?;
    Ok(user_regs_struct { rax: RESTART.end().cast_unsigned(), ..entered })
}

fn stop(thread: Pid) -> Result<()> {
    ptrace::seize(thread, ptrace::Options::PTRACE_O_TRACESYSGOOD)?;
    interrupt(thread)
}

fn interrupt(thread: Pid) -> Result<()> {
    ptrace::interrupt(thread)?;
    loop {
        match waitpid(thread, Some(WaitPidFlag::__WALL))? {
            WaitStatus::PtraceEvent(..) => return Ok(()),
            // Still has to reach it.
            WaitStatus::Stopped(_, signal) => ptrace::cont(thread, signal)?,
            other => bail!("{other:?} is no stop"),
        }
    }
}

/// Lets a thread go on to the next entry to a system call or the next return from one.
fn next_call_stop(thread: Pid) -> Result<()> {
    let mut signal = None;
    loop {
        ptrace::syscall(thread, signal)?;
        match waitpid(thread, Some(WaitPidFlag::__WALL)).context("cannot wait for the thread")? {
            WaitStatus::PtraceSyscall(_) => return Ok(()),
            // Still has to reach it.
            WaitStatus::Stopped(_, passed_on) => signal = Some(passed_on),
            WaitStatus::PtraceEvent(..) => signal = None,
            other => bail!("the thread {thread} ended: {other:?}"),
        }
    }
}

fn with_call(
    mut registers: user_regs_struct,
    number: i64,
    [first, second, third]: [u64; 3],
) -> user_regs_struct {
    registers.rip -= 2;
    registers.rax = number.cast_unsigned();
    // Nothing is to be made again.
    registers.orig_rax = NO_CALL;
    (registers.rdi, registers.rsi, registers.rdx) = (first, second, third);
    registers
}
