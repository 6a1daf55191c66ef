//! The sandbox of Corten's VM process, tried from outside on the program that is shipped.

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use corten_link::{DiskDescription, DiskEngine, DiskHost, EndReason, Event, Reply, Request, Role};
use corten_microguest::DiskWork;
use corten_tests::injection::{call, fail_next, inject};
use corten_tests::process::{VMM, VmProcess, disk, machine};
use corten_tests::threads::{thread, threads};
use corten_tests::vmm::microguest;
use nix::sys::memfd::{MFdFlags, memfd_create};

const SOON: Duration = Duration::from_secs(60);
const MEMORY: u64 = 32 << 20;
/// The main thread has the program's name; it calls itself the owner.
const OWNER: &str = "corten-vmm";
/// By name and number. None gets so far that its arguments count.
const INJECTED: [(&str, i64); 6] = [
    ("openat", libc::SYS_openat),
    ("socket", libc::SYS_socket),
    ("connect", libc::SYS_connect),
    ("execve", libc::SYS_execve),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_register", libc::SYS_io_uring_register),
];
/// A guest that works on its disk for longer than any test takes.
const WORK: DiskWork = DiskWork { rounds: 1 << 40, blocks: 64, sectors: 8, seed: 1 };

/// A machine whose guest works on its disk.
fn start(engine: DiskEngine, arguments: &[&str], commands: &str) -> Result<VmProcess> {
    let file = File::from(memfd_create("disk", MFdFlags::MFD_CLOEXEC)?);
    file.set_len(WORK.size())?;
    let mut machine = machine(1, MEMORY);
    let host = DiskHost { engine, ..DiskHost::default() };
    machine.disks = vec![DiskDescription { host, ..disk("data") }];
    let source = microguest(commands)?;
    let grant = vec![(Role::disk("data")?, file.into())];
    VmProcess::boot_with_arguments(arguments, machine, source, grant)
}

fn working(engine: DiskEngine, arguments: &[&str]) -> Result<VmProcess> {
    let mut process = start(engine, arguments, &WORK.to_string())?;
    let deadline = Instant::now() + SOON;
    while requests(&mut process)? == 0 {
        ensure!(Instant::now() < deadline, "no request on the disk:\n{}", process.console());
    }
    Ok(process)
}

fn requests(process: &mut VmProcess) -> Result<u64> {
    let (Reply::Counters { counters }, _) = process.ask(Request::Counters)? else {
        anyhow::bail!("no counters")
    };
    let disk = counters.disks.get("data").context("no counters of the disk")?;
    Ok(disk.reads + disk.writes)
}

fn names(process: &VmProcess) -> Result<Vec<String>> {
    let mut names: Vec<_> = threads(process.id())?.into_iter().map(|(name, _)| name).collect();
    names.sort();
    Ok(names)
}

/// Waits until every thread has a filter and cannot gain privileges: one that has not been scheduled yet has neither.
fn all_are_locked_in(process: &VmProcess) -> Result<()> {
    let deadline = Instant::now() + SOON;
    for (name, thread) in threads(process.id())? {
        let path = format!("/proc/{}/task/{thread}/status", process.id());
        loop {
            let status = fs::read_to_string(&path)?;
            if status.contains("\nSeccomp:\t2\n") && status.contains("\nNoNewPrivs:\t1\n") {
                break;
            }
            ensure!(Instant::now() < deadline, "{name} is not locked in:\n{status}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

#[test]
fn every_thread_is_locked_in_when_the_guest_works() -> Result<()> {
    let process = working(DiskEngine::Ring, &[])?;
    let (found, expected) = (names(&process)?, ["control", OWNER, "events", "io-0", "vcpu-0"]);
    ensure!(found == expected, "{found:?}");
    all_are_locked_in(&process)?;
    let process = working(DiskEngine::Pool, &[])?;
    let disks = ["disk-0", "disk-1", "disk-2", "disk-3"];
    let expected = [&["control", OWNER], &disks[..], &["events", "io-0", "vcpu-0"]].concat();
    let found = names(&process)?;
    ensure!(found == expected, "{found:?}");
    all_are_locked_in(&process)
}

#[test]
fn threads_of_a_machine_that_was_reset_are_locked_in() -> Result<()> {
    let few = DiskWork { rounds: 4, ..WORK };
    let reset = format!("{few} doorbell port=0x64 size=1 value=0xfe");
    for engine in [DiskEngine::Ring, DiskEngine::Pool] {
        let mut process = start(engine, &[], &reset)?;
        for _ in 0..2 {
            ensure!(process.next_event(SOON)? == Event::Reset);
        }
        process.must(Request::Pause)?;
        all_are_locked_in(&process)?;
    }
    Ok(())
}

#[test]
fn process_leaves_no_core_dump() -> Result<()> {
    let process = working(DiskEngine::Auto, &[])?;
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.id()))?;
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let values: Vec<_> = core.context("no limit")?.split_whitespace().skip(4).take(2).collect();
    ensure!(values == ["0", "0"], "{limits}");
    Ok(())
}

fn injected_call_is_named(engine: DiskEngine, thread_name: &str) -> Result<()> {
    let own_name = if thread_name == OWNER { "owner" } else { thread_name };
    for (name, number) in INJECTED {
        let process = working(engine, &[])?;
        inject(thread(process.id(), thread_name)?, number, [0; 3])?;
        let (status, text) = process.end(SOON)?;
        let line = format!(
            "corten-vmm: thread {own_name} may not make the system call {name} ({number})\n"
        );
        ensure!(status == i32::from(EndReason::Forbidden.exit_status()), "{status}: {text}");
        ensure!(text == line, "{text:?} is not {line:?}");
    }
    Ok(())
}

#[test]
fn call_injected_into_the_owner_ends_the_process() -> Result<()> {
    injected_call_is_named(DiskEngine::Ring, OWNER)
}

#[test]
fn call_injected_into_a_vcpu_ends_the_process() -> Result<()> {
    injected_call_is_named(DiskEngine::Ring, "vcpu-0")
}

#[test]
fn call_injected_into_an_io_thread_ends_the_process() -> Result<()> {
    injected_call_is_named(DiskEngine::Ring, "io-0")
}

#[test]
fn call_injected_into_a_disk_thread_ends_the_process() -> Result<()> {
    injected_call_is_named(DiskEngine::Pool, "disk-0")
}

#[test]
fn call_injected_into_the_control_thread_ends_the_process() -> Result<()> {
    injected_call_is_named(DiskEngine::Ring, "control")
}

#[test]
fn call_injected_into_the_events_thread_ends_the_process() -> Result<()> {
    injected_call_is_named(DiskEngine::Ring, "events")
}

#[test]
fn process_that_only_logs_goes_on_after_injected_calls() -> Result<()> {
    for engine in [DiskEngine::Ring, DiskEngine::Pool] {
        let mut process = working(engine, &["--seccomp", "log"])?;
        all_are_locked_in(&process)?;
        for (_, thread) in threads(process.id())? {
            let open = call(thread, libc::SYS_openat, [0; 3])?;
            ensure!(open == -i64::from(libc::EFAULT), "openat gave {open}");
            let socket = call(thread, libc::SYS_socket, [1, 1, 0])?;
            ensure!(socket > 2, "socket gave {socket}");
        }
        let before = requests(&mut process)?;
        let deadline = Instant::now() + SOON;
        while requests(&mut process)? <= before {
            ensure!(Instant::now() < deadline, "the guest does not go on");
        }
        process.must(Request::Kill)?;
        let (status, text) = process.end(SOON)?;
        ensure!(status == i32::from(EndReason::Killed.exit_status()), "{status}: {text}");
    }
    Ok(())
}

#[test]
fn panic_of_a_worker_is_told_and_ends_the_process() -> Result<()> {
    let mut process = working(DiskEngine::Auto, &[])?;
    process.must(Request::Pause)?;
    let worker = thread(process.id(), "io-0")?;
    // A kernel that is out of memory would say so, and a queue would be dead.
    fail_next(worker, libc::SYS_epoll_ctl, libc::ENOMEM, || {
        process.send(Request::Resume).map(drop)
    })?;
    let (status, text) = process.end(SOON)?;
    ensure!(status == i32::from(EndReason::Crashed.exit_status()), "{status}: {text}");
    let expected = "corten-vmm: thread io-0 panicked at vmm/src/machine/workers.rs:";
    ensure!(text.starts_with(expected) && text.contains("OutOfMemory"), "{text}");
    Ok(())
}

#[test]
fn unknown_arguments_are_refused() -> Result<()> {
    let program = std::env::var_os(VMM).context("no VM process")?;
    for arguments in [&["--seccomp", "off"][..], &["--seccomp"], &["log"]] {
        let output = Command::new(&program).args(arguments).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(84), "{}: {text}", output.status);
        ensure!(text == "corten-vmm: there is one argument, --seccomp log\n", "{text}");
    }
    Ok(())
}
