//! Corten's VM process with nothing to boot: the guest says so, and waits for its power button.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use corten_link::{BootOrigin, EndReason, Event, MachineDescription, Reply, Request, Restoration};
use corten_tests::process::{VmProcess, disk, grants_of, machine};

/// Long, for a machine in an emulator under load.
const SOON: Duration = Duration::from_secs(60);
/// The least that a machine is made of.
const TINY: u64 = 1 << 20;
const HEADLINE: &str = "Nothing to boot: no kernel was given to this machine";
const LAST_LINE: &str = "The machine waits for its power button.";

/// A machine whose guest has said what there is to say.
fn tiny() -> Result<VmProcess> {
    let mut process = VmProcess::boot_disks(machine(1, TINY), Vec::new())?;
    reasons(&mut process)?;
    process.wait_for(LAST_LINE, 1, SOON)?;
    Ok(process)
}

/// Why nothing was booted, as it was told.
fn reasons(process: &mut VmProcess) -> Result<Vec<String>> {
    match process.next_event(SOON)? {
        Event::Booting { from: BootOrigin::Nothing { reasons } } => Ok(reasons),
        other => bail!("{other:?}"),
    }
}

fn ends_by_its_power_button(mut process: VmProcess) -> Result<()> {
    process.must(Request::PowerButton)?;
    let event = process.next_event(SOON)?;
    let Event::Ended { reason: EndReason::PoweredOff, .. } = event else { bail!("{event:?}") };
    let (status, text) = process.end(SOON)?;
    ensure!(status == i32::from(EndReason::PoweredOff.exit_status()), "status {status}: {text}");
    Ok(())
}

#[test]
fn tiny_machine_says_that_there_is_nothing_and_ends_by_its_power_button() -> Result<()> {
    let mut process = tiny()?;
    let console = process.console();
    ensure!(console.contains(HEADLINE), "{console}");
    ensure!(console.contains("there is no disk to boot from"), "{console}");
    let (Reply::Info { info }, _) = process.ask(Request::Info)? else { bail!("no info") };
    ensure!(matches!(info.boot, Some(BootOrigin::Nothing { .. })), "{info:?}");
    ends_by_its_power_button(process)
}

#[test]
fn power_button_that_was_pressed_at_once_is_not_lost() -> Result<()> {
    let mut process = VmProcess::boot_disks(machine(2, TINY), Vec::new())?;
    reasons(&mut process)?;
    ends_by_its_power_button(process)
}

#[test]
fn notice_is_paused_saved_and_loaded() -> Result<()> {
    let mut process = tiny()?;
    for _ in 0..2 {
        process.must(Request::Pause)?;
        let saved = process.must(Request::Save)?;
        drop(process);
        process = VmProcess::load(saved)?;
        process.must(Request::Resume)?;
    }
    let (Reply::Info { info }, _) = process.ask(Request::Info)? else { bail!("no info") };
    ensure!(matches!(info.boot, Some(BootOrigin::Nothing { .. })), "{info:?}");
    ends_by_its_power_button(process)
}

#[test]
fn notice_goes_on_from_a_snapshot() -> Result<()> {
    let mut process = tiny()?;
    process.must(Request::Pause)?;
    let files = process.must_snapshot()?;
    drop(process);
    let mut process = VmProcess::restore_disks(&files, Vec::new(), Restoration::default())?;
    process.must(Request::Resume)?;
    ends_by_its_power_button(process)
}

#[test]
fn what_is_on_the_disks_instead_is_named() -> Result<()> {
    let (xfs, empty) = (tempfile::tempfile()?, tempfile::tempfile()?);
    std::os::unix::fs::FileExt::write_all_at(&xfs, b"XFSB", 0)?;
    xfs.set_len(1 << 20)?;
    empty.set_len(1 << 20)?;
    let machine = MachineDescription {
        disks: vec![disk("data"), disk("root")],
        boot_order: vec!["root".into(), "data".into()],
        ..machine(1, TINY)
    };
    let grants = grants_of(&[("root", &xfs), ("data", &empty)])?;
    let mut process = VmProcess::boot_disks(machine, grants)?;
    let reasons = reasons(&mut process)?;
    process.wait_for(LAST_LINE, 1, SOON)?;
    let console = process.console();
    for reason in &reasons {
        ensure!(console.contains(reason), "{reason}\n{console}");
    }
    ensure!(reasons[0] == "disk root: no partitions", "{reasons:?}");
    ensure!(
        reasons[1].contains("the whole disk: an xfs file system: not read here"),
        "{reasons:?}"
    );
    ensure!(reasons[3].contains("nothing (zeroes)"), "{reasons:?}");
    ends_by_its_power_button(process)
}

#[test]
fn disk_that_the_machine_does_not_have_is_refused() -> Result<()> {
    let machine = MachineDescription { boot_order: vec!["root".into()], ..machine(1, TINY) };
    let mut process = VmProcess::boot_disks(machine, Vec::new())?;
    let event = process.next_event(SOON)?;
    let Event::Ended { reason: EndReason::NotStarted, detail, .. } = event else {
        bail!("{event:?}")
    };
    ensure!(detail.contains("\"root\" of the boot order"), "{detail}");
    Ok(())
}
