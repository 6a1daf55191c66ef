//! A launcher whose VM runs is locked in, and lives on whatever it is made to try.

use std::fs;

use anyhow::{Result, ensure};
use corten_link::EndReason;
use corten_link::launcher::{Answer, ToLauncher};
use corten_tests::injection::call;
use corten_tests::threads::threads;
use nix::libc;

use crate::rig::Launcher;
use crate::{FOR_EVER, LONG_GRACE, ended_with};

/// By name and number, with arguments that would do if they were looked at.
const FORBIDDEN: [(&str, i64, [u64; 3]); 10] = [
    ("open", libc::SYS_open, [0; 3]),
    ("openat", libc::SYS_openat, [0; 3]),
    ("openat2", libc::SYS_openat2, [0; 3]),
    ("socket", libc::SYS_socket, [1, 1, 0]),
    ("connect", libc::SYS_connect, [0; 3]),
    ("bind", libc::SYS_bind, [0; 3]),
    ("execve", libc::SYS_execve, [0; 3]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0]),
    ("socketpair of datagram sockets", libc::SYS_socketpair, [1, 2, 0]),
    ("ptrace", libc::SYS_ptrace, [0; 3]),
];

#[test]
fn forbidden_calls_are_refused_and_the_vm_goes_on() -> Result<()> {
    let launcher = Launcher::start()?;
    let mut agent = launcher.running(FOR_EVER, LONG_GRACE)?;
    let pid = launcher.pid()?;
    let threads = threads(u32::try_from(pid.as_raw())?)?;
    ensure!(threads.len() == 1, "{threads:?}");
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    ensure!(
        status.contains("\nSeccomp:\t2\n") && status.contains("\nNoNewPrivs:\t1\n"),
        "{status}"
    );
    for (name, number, arguments) in FORBIDDEN {
        let result = call(pid, number, arguments)?;
        ensure!(result == -i64::from(libc::EPERM), "{name} gave {result}");
    }
    ensure!(matches!(agent.ask(|id| ToLauncher::Info { id })?, Answer::Info { .. }));
    drop(agent);
    let mut next = launcher.next_agent()?;
    ensure!(next.ask(|id| ToLauncher::Kill { id })? == Answer::Done);
    ended_with(&launcher.end()?, EndReason::Killed)?;
    Ok(())
}
