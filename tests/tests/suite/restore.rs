//! Corten's VM process stopped, saved and loaded in a new process at every n-th exit of a guest that works on a disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_link::{DiskDescription, DiskEngine, DiskHost, EndReason, Event, Request};
use corten_microguest::DiskWork;
use corten_tests::exit_stop::{Stopped, resume_for_exits};
use corten_tests::process::{VmProcess, disk, machine};
use corten_tests::vmm::microguest;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Long, for a machine in an emulator under load.
const SOON: Duration = Duration::from_secs(60);
const MEMORY: u64 = 32 << 20;
const POWER_OFF: &str = "doorbell port=0x600 size=1 value=0x34";

/// A disk that needs no file system, filled with something.
fn image(work: &DiskWork) -> Result<File> {
    let file = File::from(memfd_create("disk", MFdFlags::MFD_CLOEXEC)?);
    let bytes: Vec<u8> = (0..work.size()).map(|at| (at * 31).to_le_bytes()[1]).collect();
    file.write_all_at(&bytes, 0)?;
    Ok(file)
}

fn content(file: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn start(
    work: &DiskWork,
    settings: &str,
    engine: DiskEngine,
    disk_file: &File,
) -> Result<VmProcess> {
    let host = DiskHost { engine, ..DiskHost::default() };
    let mut machine = machine(1, MEMORY);
    machine.disks = vec![DiskDescription { host, ..disk("data") }];
    let source = microguest(&format!("{work} {settings} {POWER_OFF}"))?;
    VmProcess::boot_machine(machine, source, &[("data", disk_file)])
}

/// What the guest must have said, and what must be on its disk.
fn check(work: &DiskWork, console: &str, disk: &File, before: &[u8]) -> Result<()> {
    let mut expected = before.to_vec();
    let line = work.console_line(work.apply(&mut expected));
    ensure!(console.contains(&line), "not {line:?} on the console:\n{console}");
    ensure!(content(disk)? == expected, "the disk is not as the guest left it");
    Ok(())
}

fn undisturbed(work: &DiskWork, settings: &str, engine: DiskEngine) -> Result<()> {
    let disk = image(work)?;
    let before = content(&disk)?;
    let mut process = start(work, settings, engine, &disk)?;
    let event = process.next_event(SOON)?;
    let console = process.end_now()?;
    ensure!(
        matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
        "{event:?}\n{console}"
    );
    check(work, &console, &disk, &before)
}

/// Gives back in how many processes the guest lived.
fn reborn_at_every(n: u64, work: &DiskWork, settings: &str) -> Result<u64> {
    let disk = image(work)?;
    let before = content(&disk)?;
    let disks = [("data", &disk)];
    let mut process = start(work, settings, DiskEngine::Auto, &disk)?;
    // Anywhere in its first steps: from there on exits are counted.
    process.must(Request::Pause)?;
    let mut console = String::new();
    let mut lives = 1;
    loop {
        let stopped = resume_for_exits(&mut process, 0, n).with_context(|| {
            format!("life {lives} at every {n}: {console}{}", process.console())
        })?;
        // Its last exit may have been the one that ended it.
        let saved = match stopped {
            Stopped::AtExit => process.must(Request::Save).ok(),
            Stopped::Ended => None,
        };
        let Some(saved) = saved else { break };
        console += &process.end_now()?;
        process = VmProcess::load_with_disks(saved, &disks)?;
        process.ask(Request::Info)?;
        lives += 1;
    }
    let event = process.next_event(SOON)?;
    console += &process.end_now()?;
    ensure!(
        matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
        "life {lives} at every {n}: {event:?}\n{console}"
    );
    check(work, &console, &disk, &before).with_context(|| format!("{lives} lives at every {n}"))?;
    Ok(lives)
}

#[test]
fn undisturbed_guest_works_on_its_disk() -> Result<()> {
    let work = DiskWork { rounds: 64, blocks: 64, sectors: 8, seed: 1 };
    for engine in [DiskEngine::Ring, DiskEngine::Pool] {
        undisturbed(&work, "ticks=100000", engine)?;
        undisturbed(&work, "ticks=100000 event_index=0", engine)?;
    }
    Ok(())
}

#[test]
fn guest_reborn_at_every_nth_exit_works_on_its_disk_as_if_undisturbed() -> Result<()> {
    for (n, rounds, settings) in [
        (1, 8, "ticks=100000 every=0"),
        (2, 16, "ticks=50000"),
        (3, 16, "ticks=200000 event_index=0"),
        (7, 32, "ticks=100000"),
        (31, 64, "ticks=30000 event_index=0"),
        (97, 128, "ticks=100000"),
    ] {
        let work = DiskWork { rounds, blocks: 32, sectors: 2, seed: n };
        let lives = reborn_at_every(n, &work, settings)?;
        ensure!(lives > 4, "only {lives} lives at every {n}");
        eprintln!("at every {n}: {lives} lives");
    }
    Ok(())
}
