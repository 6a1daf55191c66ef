//! Corten's VM process stopped, saved and loaded in a new process at every n-th exit of a guest that works on a disk, or on
//! another device.

mod balloon;
mod console;
mod entropy;
mod network;
mod streams;
mod talk;
mod vsock;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_link::{DiskDescription, DiskEngine, DiskHost, EndReason, Event, ImageFormat, Role};
use corten_microguest::DiskWork;
use corten_tests::lives::{self, Alone, Stops, reborn_in_company};
use corten_tests::process::{VmProcess, disk, grants_of, machine};
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

/// What the guest must have said. Gives back what must be on its disk.
fn check(work: &DiskWork, console: &str, before: &[u8]) -> Result<Vec<u8>> {
    let mut expected = before.to_vec();
    let line = work.console_line(work.apply(&mut expected));
    ensure!(console.contains(&line), "not {line:?} on the console:\n{console}");
    Ok(expected)
}

/// The same, with what is on its disk.
fn check_disk(work: &DiskWork, console: &str, disk: &File, before: &[u8]) -> Result<()> {
    let expected = check(work, console, before)?;
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
    check_disk(work, &console, &disk, &before)
}

/// Gives back in how many processes the guest lived.
fn reborn_at_every(n: u64, work: &DiskWork, settings: &str) -> Result<u64> {
    let disk_file = image(work)?;
    let before = content(&disk_file)?;
    let mut machine = machine(1, MEMORY);
    machine.disks = vec![disk("data")];
    let devices = grants_of(&[("data", &disk_file)])?;
    let lives = lives::reborn_at_every(n, &machine, &format!("{work} {settings}"), &devices)?;
    check_disk(work, &lives.console, &disk_file, &before)
        .with_context(|| format!("{} lives at every {n}", lives.count))?;
    Ok(lives.count)
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

/// Its image is only read; what the guest wrote is in the overlay, and where that is in the machine's state.
#[test]
fn guest_reborn_at_every_nth_exit_works_on_a_disk_of_images_as_if_undisturbed() -> Result<()> {
    for stops in [Stops::NONE, Stops::at_every(7), Stops::at_every(31)] {
        let work = DiskWork { rounds: 32, blocks: 32, sectors: 2, seed: 5 };
        let (base, overlay) = (image(&work)?, memfd_create("overlay", MFdFlags::MFD_CLOEXEC)?);
        let before = content(&base)?;
        let mut machine = machine(1, MEMORY);
        let host = DiskHost { images: vec![ImageFormat::Raw], ..DiskHost::default() };
        machine.disks = vec![DiskDescription { host, ..disk("data") }];
        let devices = [
            (Role::image("data", 0)?, base.try_clone()?.into()),
            (Role::overlay("data")?, overlay),
        ];
        let lives = reborn_in_company(stops, &machine, &work.to_string(), &devices, &mut Alone)?;
        check(&work, &lives.console, &before)?;
        ensure!(content(&base)? == before, "the image was written to");
        eprintln!("{stops:?}: {} lives", lives.count);
    }
    Ok(())
}
