//! What fails around a guest of Corten's VM process: a disk on a file system that is full, one so slow that it does not
//! finish, a control peer that does not read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_link::{
    DiskDescription, DiskEngine, DiskHost, EndReason, Event, OnDiskError, Reply, Request, RunState,
};
use corten_microguest::{DiskWork, HostileWork};
use corten_tests::process::{VmProcess, disk, machine};
use corten_tests::vmm::microguest;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Long, for a machine in an emulator under load.
const SOON: Duration = Duration::from_secs(60);
const POWER_OFF: &str = "doorbell port=0x600 size=1 value=0x34";
/// The kind of attack that moves BARs, and no other.
const ATTACK_BAR: u64 = 1 << 1;
const WORK: DiskWork = DiskWork { rounds: 64, blocks: 64, sectors: 8, seed: 5 };

fn start(disk_file: &File, on_error: OnDiskError, engine: DiskEngine) -> Result<VmProcess> {
    let host = DiskHost { on_error, engine, ..DiskHost::default() };
    let mut machine = machine(1, 32 << 20);
    machine.disks = vec![DiskDescription { host, ..disk("data") }];
    let source = microguest(&format!("{WORK} ticks=100000 {POWER_OFF}"))?;
    VmProcess::boot_machine(machine, source, &[("data", disk_file)])
}

/// The next event that is not about another request that failed for the same reason.
fn next_failure(process: &mut VmProcess) -> Result<(String, String)> {
    match process.next_event(SOON)? {
        Event::DiskFailed { disk, operation, error, paused } => {
            ensure!(disk == "data" && paused, "{disk}: {operation}: {error}, paused {paused}");
            Ok((operation, error))
        }
        other => anyhow::bail!("{other:?}\n{}", process.console()),
    }
}

/// Skips further failures that were on their way, to the end; checks what the guest found and left.
fn completes(mut process: VmProcess, console: &str, file: &File) -> Result<()> {
    let event = loop {
        match process.next_event(SOON)? {
            Event::DiskFailed { .. } => {
                process.must(Request::Resume)?;
            }
            event => break event,
        }
    };
    let console = console.to_owned() + &process.end_now()?;
    ensure!(
        matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
        "{event:?}\n{console}"
    );
    let mut expected = vec![0; usize::try_from(WORK.size())?];
    let line = WORK.console_line(WORK.apply(&mut expected));
    ensure!(console.contains(&line), "not {line:?} on the console:\n{console}");
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, 0)?;
    ensure!(found == expected, "the disk is not as the guest left it");
    Ok(())
}

/// A file system of half the disk's size, that only this thread and its children see.
fn small_file_system() -> Result<&'static Path> {
    unshare(CloneFlags::CLONE_NEWNS).context("this test wants to be root")?;
    let nothing: Option<&str> = None;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    let options = format!("size={}", WORK.size() / 2);
    mount(Some("tmpfs"), "/mnt", Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))?;
    Ok(Path::new("/mnt"))
}

/// A disk that is larger than its file system.
fn disk_on(place: &Path) -> Result<File> {
    let path = place.join("disk");
    let file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
    file.set_len(WORK.size())?;
    Ok(file)
}

fn make_room(place: &Path) -> Result<()> {
    let more = format!("size={}", WORK.size() * 2);
    Ok(mount(Some("tmpfs"), place, Some("tmpfs"), MsFlags::MS_REMOUNT, Some(more.as_str()))?)
}

fn full_disk(engine: DiskEngine) -> Result<()> {
    let place = small_file_system()?;
    let file = disk_on(place)?;
    let mut process = start(&file, OnDiskError::Pause, engine)?;
    let (operation, error) = next_failure(&mut process)?;
    ensure!(operation == "write" && error.contains("No space left"), "{operation}: {error}");
    // Still full: it fails again, and nothing is lost by trying.
    process.must(Request::Resume)?;
    next_failure(&mut process)?;
    let (Reply::Counters { counters }, _) = process.ask(Request::Counters)? else {
        anyhow::bail!("no counters")
    };
    ensure!(counters.disks.get("data").is_some_and(|disk| disk.errors >= 2), "{counters:?}");
    make_room(place)?;
    process.must(Request::Resume)?;
    completes(process, "", &file)
}

#[test]
fn full_disk_pauses_the_machine_until_there_is_room() -> Result<()> {
    full_disk(DiskEngine::Ring)
}

#[test]
fn full_disk_pauses_the_machine_without_rings_too() -> Result<()> {
    full_disk(DiskEngine::Pool)
}

#[test]
fn held_requests_are_done_in_a_new_process() -> Result<()> {
    let place = small_file_system()?;
    let file = disk_on(place)?;
    let mut process = start(&file, OnDiskError::Pause, DiskEngine::Auto)?;
    next_failure(&mut process)?;
    let saved = process.must(Request::Save)?;
    let console = process.end_now()?;
    make_room(place)?;
    let mut process = VmProcess::load_with_disks(saved, &[("data", &file)])?;
    process.must(Request::Resume)?;
    completes(process, &console, &file)
}

/// Threads that are traced and do nothing.
struct Held(Vec<Pid>);

impl Held {
    /// Those whose names start like this.
    fn new(process: u32, named: &str) -> Result<Self> {
        let mut held = Self(Vec::new());
        for entry in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let entry = entry?;
            if std::fs::read_to_string(entry.path().join("comm"))?.starts_with(named) {
                let name = entry.file_name();
                let thread = Pid::from_raw(name.to_str().context("threads have numbers")?.parse()?);
                ptrace::seize(thread, ptrace::Options::empty())?;
                held.0.push(thread);
                ptrace::interrupt(thread)?;
                waitpid(thread, Some(WaitPidFlag::__WALL))?;
            }
        }
        ensure!(!held.0.is_empty(), "no thread is called {named}");
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for thread in &self.0 {
            // One that was killed meanwhile is gone only when its tracer knows.
            if ptrace::detach(*thread, None).is_err() {
                let _ = waitpid(*thread, Some(WaitPidFlag::__WALL));
            }
        }
    }
}

#[test]
fn disk_that_does_not_finish_fails_the_pause_and_the_guest_goes_on() -> Result<()> {
    let file = File::from(memfd_create("disk", MFdFlags::MFD_CLOEXEC)?);
    file.set_len(WORK.size())?;
    let mut process = start(&file, OnDiskError::Report, DiskEngine::Pool)?;
    process.wait_for("microguest", 1, SOON)?;
    let held = Held::new(process.id(), "disk-")?;
    // By now a request is with them, or the guest is done: then the pause succeeds, and this test fails.
    std::thread::sleep(Duration::from_millis(500));
    let (reply, _) = process.ask(Request::Pause)?;
    let Reply::Refused { reason } = reply else { anyhow::bail!("{reply:?}") };
    ensure!(reason.contains("did not finish"), "{reason}");
    let (Reply::Info { info }, _) = process.ask(Request::Info)? else { anyhow::bail!("no info") };
    ensure!(info.state == RunState::Running);
    drop(held);
    completes(process, "", &file)
}

#[test]
fn vcpu_that_does_not_stop_holds_up_a_bar_that_moves_and_no_more() -> Result<()> {
    let file = || -> Result<File> {
        let file = File::from(memfd_create("disk", MFdFlags::MFD_CLOEXEC)?);
        file.set_len(HostileWork::SIZE)?;
        Ok(file)
    };
    let (neighbour, moved) = (file()?, file()?);
    let mut machine = machine(2, 32 << 20);
    machine.disks = vec![disk("neighbour"), disk("moved")];
    let work = HostileWork { rounds: 64, steps: 16, seed: 1 };
    let source = microguest(&format!("{work} attacks={ATTACK_BAR} every=1 {POWER_OFF}"))?;
    let disks = [("neighbour", &neighbour), ("moved", &moved)];
    let mut process = VmProcess::boot_machine(machine, source, &disks)?;
    process.wait_for("hostile: round ", 1, SOON)?;
    let held = Held::new(process.id(), "vcpu-1")?;
    // Longer than the owner waits for it at a time.
    std::thread::sleep(Duration::from_millis(2500));
    let (Reply::Info { info }, _) = process.ask(Request::Info)? else { anyhow::bail!("no info") };
    ensure!(info.state == RunState::Running);
    drop(held);
    let event = process.next_event(SOON)?;
    let console = process.end_now()?;
    ensure!(
        matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
        "{event:?}\n{console}"
    );
    let mut expected = vec![0; usize::try_from(HostileWork::SIZE)?];
    ensure!(console.contains(&work.console_line(work.apply(&mut expected))), "{console}");
    Ok(())
}

#[test]
fn guest_is_told_of_errors_where_that_is_the_policy() -> Result<()> {
    let file = disk_on(small_file_system()?)?;
    let process = start(&file, OnDiskError::Report, DiskEngine::Auto)?;
    process.wait_for("driver failed: ", 1, SOON)
}

#[test]
fn peer_that_does_not_read_cannot_stop_the_owner() -> Result<()> {
    // Each reset is an event.
    let source = microguest("doorbell port=0x64 size=1 value=0xfe")?;
    let mut process = VmProcess::boot(1, 32 << 20, source)?;
    process.deaf(|process| {
        process.wait_for("microguest by PVH entry", 400, SOON)?;
        process.send(Request::Kill)
    })?;
    let (status, _) = process.end(SOON)?;
    ensure!(status == i32::from(EndReason::Killed.exit_status()));
    Ok(())
}
