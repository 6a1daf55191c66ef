//! The sandbox of Corten's VM process, tried from outside on the program that is shipped.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use corten_link::{
    Addressing, DiskDescription, DiskEngine, DiskHost, EndReason, Event, Grant, Ipv4Addressing,
    Ipv6Addressing, MachineDescription, NetworkDescription, NetworkHost, Reply, Request,
    Restoration, Role,
};
use corten_microguest::DiskWork;
use corten_tests::injection::{call, fail_next, inject};
use corten_tests::process::{VMM, VmProcess, disk, machine};
use corten_tests::snapshot_files::SnapshotFiles;
use corten_tests::threads::{thread, threads};
use corten_tests::vmm::microguest;
use corten_vmm::sandbox::ThreadKind;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Pid;

use crate::addresses::link::host_side;

const SOON: Duration = Duration::from_secs(60);
const MEMORY: u64 = 32 << 20;
/// The main thread has the program's name; it calls itself the owner.
const OWNER: &str = "corten-vmm";
/// By name and number. None gets so far that its arguments count.
const INJECTED: [(&str, i64); 7] = [
    ("openat", libc::SYS_openat),
    ("socket", libc::SYS_socket),
    ("connect", libc::SYS_connect),
    ("bind", libc::SYS_bind),
    ("execve", libc::SYS_execve),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_register", libc::SYS_io_uring_register),
];
/// As much as is read of a saved machine.
const BLANK_MIB: u64 = 64;
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

/// The same with an interface whose guest is told its addresses.
fn telling(arguments: &[&str]) -> Result<VmProcess> {
    let (sockets, tap) = host_side([10, 0, 2, 1].into())?;
    let ipv4 = Ipv4Addressing {
        address: [10, 0, 2, 2].into(),
        prefix: 24,
        server: [10, 0, 2, 1].into(),
        gateway: None,
        routes: Vec::new(),
        dns: Vec::new(),
    };
    let ipv6 = Ipv6Addressing {
        address: "fd10:0:2::2".parse()?,
        prefix: 120,
        is_router: true,
        router_mac: None,
        dns: Vec::new(),
    };
    let told = Addressing { ipv4: Some(ipv4), ipv6: Some(ipv6), ..Addressing::default() };
    let host = NetworkHost { addressing: Some(told), ..NetworkHost::default() };
    let mut machine = machine(1, MEMORY);
    let (name, mac) = ("net1".into(), [2, 0, 0, 0, 0, 1]);
    machine.networks = vec![NetworkDescription { name, mac, mtu: None, pairs: 1, host }];
    let mut grant = vec![(Role::tap("net1", 0)?, tap)];
    grant.extend(sockets);
    let source = microguest("count every=65536")?;
    let mut process = VmProcess::boot_with_arguments(arguments, machine, source, grant)?;
    // It has sent something then.
    let deadline = Instant::now() + SOON;
    loop {
        let told = process.counters()?.networks["net1"].addresses;
        if told.advertised + told.errors > 0 {
            return Ok(process);
        }
        ensure!(Instant::now() < deadline, "no advertisement:\n{}", process.console());
    }
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

/// Whether a thread has a filter and cannot gain privileges.
fn is_locked_in(process: &VmProcess, thread: Pid) -> Result<bool> {
    let status = fs::read_to_string(format!("/proc/{}/task/{thread}/status", process.id()))?;
    Ok(status.contains("\nSeccomp:\t2\n") && status.contains("\nNoNewPrivs:\t1\n"))
}

/// Waits until there is a thread of this name, and it is locked in: one that has not been scheduled yet has neither.
fn locked_in(process: &VmProcess, name: &str) -> Result<Pid> {
    let deadline = Instant::now() + SOON;
    loop {
        match thread(process.id(), name) {
            Ok(thread) if is_locked_in(process, thread)? => return Ok(thread),
            _ => ensure!(Instant::now() < deadline, "no thread {name} is locked in"),
        }
    }
}

/// Waits until every thread is.
fn all_are_locked_in(process: &VmProcess) -> Result<()> {
    let names = names(process)?;
    names.iter().try_for_each(|name| locked_in(process, name).map(drop))
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

/// A process with a thread of this kind, and what the thread is called.
fn with_thread(kind: ThreadKind) -> Result<(VmProcess, &'static str)> {
    Ok(match kind {
        ThreadKind::Owner => (working(DiskEngine::Ring, &[])?, OWNER),
        ThreadKind::Vcpu => (working(DiskEngine::Ring, &[])?, "vcpu-0"),
        ThreadKind::Io => (working(DiskEngine::Ring, &[])?, "io-0"),
        ThreadKind::Disk => (working(DiskEngine::Pool, &[])?, "disk-0"),
        ThreadKind::Control => (working(DiskEngine::Ring, &[])?, "control"),
        ThreadKind::Events => (working(DiskEngine::Ring, &[])?, "events"),
        ThreadKind::Pager => (waiting_for_memory()?, "pager"),
        ThreadKind::Collapse => (with_huge_pages()?, "collapse"),
        ThreadKind::Parser => (reading()?, "parser"),
        ThreadKind::Addresses => (telling(&[])?, "addresses"),
    })
}

/// One with a snapshot that nobody has resumed: its memory is not there yet.
fn waiting_for_memory() -> Result<VmProcess> {
    let mut process = VmProcess::boot(1, MEMORY, microguest("loop")?)?;
    process.must(Request::Pause)?;
    let files = process.must_snapshot_in(SnapshotFiles::in_memory()?)?;
    process.end_now()?;
    let source = microguest("loop")?;
    let mut process = VmProcess::restore(&files, source, &[], true, Restoration::default())?;
    process.ask(Request::Info)?;
    Ok(process)
}

fn with_huge_pages() -> Result<VmProcess> {
    let machine = MachineDescription { huge_pages: true, ..machine(1, MEMORY) };
    let mut process = VmProcess::boot_machine(machine, microguest("loop")?, &[])?;
    process.ask(Request::Info)?;
    Ok(process)
}

/// One that reads a saved machine of nothing but blanks, which takes a while.
fn reading() -> Result<VmProcess> {
    let file = File::from(memfd_create("records", MFdFlags::MFD_CLOEXEC)?);
    let blanks = vec![b' '; 1 << 20];
    for place in 0..BLANK_MIB {
        file.write_all_at(&blanks, place << 20)?;
    }
    let saved = Grant::from_iter([(Role::records(), file.into())]);
    VmProcess::load(saved)
}

/// A process, what its thread of this kind is called, and the thread. One that does not live for ever may be gone before
/// it is found: then another is tried.
fn caught(kind: ThreadKind) -> Result<(VmProcess, &'static str, Pid)> {
    let once = || {
        let (process, called) = with_thread(kind)?;
        let thread = locked_in(&process, called)?;
        Ok((process, called, thread))
    };
    once().or_else(|_: anyhow::Error| once()).or_else(|_: anyhow::Error| once())
}

/// Has each of the calls made in a thread of the kind, each in a process of its own.
fn injected_calls_are_named(kind: ThreadKind) -> Result<()> {
    for (name, number) in INJECTED {
        let (process, called, thread) = caught(kind)?;
        inject(thread, number, [0; 3])?;
        let own_name = if called == OWNER { "owner" } else { called };
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
fn call_injected_into_any_kind_of_thread_ends_the_process() -> Result<()> {
    std::thread::scope(|scope| {
        let kinds =
            ThreadKind::ALL.map(|kind| (kind, scope.spawn(move || injected_calls_are_named(kind))));
        for (kind, outcome) in kinds {
            let outcome = outcome.join().map_err(|_| anyhow::anyhow!("it panicked"));
            outcome.flatten().with_context(|| format!("{kind:?}"))?;
        }
        Ok(())
    })
}

/// A machine at whose serial console somebody types.
fn typed_at() -> Result<(VmProcess, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let grant = vec![(Role::console_input(), theirs.into())];
    let mut process = VmProcess::boot_granted(machine(1, MEMORY), microguest("loop")?, grant)?;
    process.ask(Request::Info)?;
    Ok((process, ours))
}

/// It is of the kind of I/O threads, which has been tried by another of them.
#[test]
fn call_injected_into_the_thread_of_the_keyboard_ends_the_process() -> Result<()> {
    for (name, number) in INJECTED {
        let (process, _typing) = typed_at()?;
        let thread = locked_in(&process, "keyboard")?;
        inject(thread, number, [0; 3])?;
        let (status, text) = process.end(SOON)?;
        ensure!(status == i32::from(EndReason::Forbidden.exit_status()), "{status}: {text}");
        let line =
            format!("corten-vmm: thread keyboard may not make the system call {name} ({number})\n");
        ensure!(text == line, "{text:?} is not {line:?}");
    }
    Ok(())
}

#[test]
fn thread_that_tells_addresses_is_locked_in() -> Result<()> {
    let process = telling(&[])?;
    let found = names(&process)?;
    ensure!(found.contains(&"addresses".into()), "{found:?}");
    all_are_locked_in(&process)
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
