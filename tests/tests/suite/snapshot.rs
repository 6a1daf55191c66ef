//! Corten's VM process with a microguest in it, written to files and gone on from there in a new process.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corten_link::{
    Counters, EndReason, Event, Grant, MachineDescription, Reply, Request, Restoration, Role,
};
use corten_microguest::DiskWork;
use corten_tests::exit_stop::{Stopped, resume_for_exits};
use corten_tests::process::{VmProcess, disk, machine};
use corten_tests::snapshot_files::SnapshotFiles;
use corten_tests::vmm::microguest;
use corten_vmm::snapshot::Snapshot;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde_json::Value;

/// Long, for a machine in an emulator under load.
const SOON: Duration = Duration::from_secs(60);
const MEMORY: u64 = 32 << 20;
const POWER_OFF: &str = "doorbell port=0x600 size=1 value=0x34";
const RESET: &str = "doorbell port=0x64 size=1 value=0xfe";
/// Says so on its console.
const SAY: &str = "doorbell port=0x3f8 size=1 value=0x21 count=3";
/// Memory of its own, with something in each page.
const FILL: &str = "fill first=0x400000 pages=300 step=0x200 seed=7";
/// Counts for ever, and looks at its memory meanwhile.
const ON: &str = "timer count=1000000 ticks=100000";

fn moved() -> Restoration {
    Restoration { moved: true, ..Restoration::default() }
}

/// A guest that has filled some of its memory, paused.
fn filled_guest(memory: u64, then: &str) -> Result<VmProcess> {
    let source = microguest(&format!("{FILL} {SAY} {then}"))?;
    let mut process = VmProcess::boot(1, memory, source)?;
    process.wait_for("!!!", 1, SOON)?;
    process.must(Request::Pause)?;
    Ok(process)
}

fn snapshot_of_filled_guest() -> Result<SnapshotFiles> {
    filled_guest(MEMORY, ON)?.must_snapshot()
}

/// Whatever boots is not what the guest goes on with.
fn restore(files: &SnapshotFiles, userfaultfd: bool, how: Restoration) -> Result<VmProcess> {
    VmProcess::restore(files, microguest("")?, &[], userfaultfd, how)
}

/// Why the snapshot is not gone on with.
fn refused(mut process: VmProcess) -> Result<String> {
    match process.next_event(SOON)? {
        Event::Ended { reason: EndReason::NotStarted, detail, .. } => Ok(detail),
        other => bail!("{other:?}"),
    }
}

fn bytes_of(file: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Memory and records of a paused machine.
fn saved(process: &mut VmProcess) -> Result<(Vec<u8>, Value)> {
    let mut saved: Grant = process.must(Request::Save)?;
    let mut take = |role: Role| saved.remove(&role).map(File::from).context("not saved");
    let memory = bytes_of(&take(Role::ram())?)?;
    Ok((memory, serde_json::from_slice(&bytes_of(&take(Role::records())?)?)?))
}

fn payload(saved: &Value, kind: &str) -> Result<Value> {
    let records = saved["records"].as_array().context("no records")?;
    let record = records.iter().find(|record| record["kind"] == kind);
    Ok(record.with_context(|| format!("no {kind}"))?["payload"].clone())
}

#[test]
fn restored_machine_is_the_same_to_the_last_byte() -> Result<()> {
    let mut process = filled_guest(MEMORY, ON)?;
    let (memory, _) = saved(&mut process)?;
    let files = process.must_snapshot()?;
    drop(process);
    let records = serde_json::to_value(Snapshot::read(&files.records()?)?.records)?;
    for userfaultfd in [true, false] {
        let mut process = restore(&files, userfaultfd, moved())?;
        let (again, saved) = saved(&mut process)?;
        ensure!(again == memory, "memory is not the same");
        ensure!(saved["records"] == records, "records are not the same");
        let fill = process.counters()?.fill;
        ensure!(!fill.filling && fill.all.pages >= 300, "{fill:?}");
    }
    Ok(())
}

#[test]
fn memory_file_has_the_holes_of_guest_memory() -> Result<()> {
    let mut process = filled_guest(1 << 30, ON)?;
    let files = process.must_snapshot()?;
    let metadata = files.memory()?.metadata()?;
    ensure!(metadata.len() > 1 << 30);
    ensure!(metadata.blocks() * 512 < 16 << 20, "{} blocks", metadata.blocks());
    // And the guest has not got more memory by it.
    let ram =
        process.must(Request::Save)?.remove(&Role::ram()).map(File::from).context("no RAM")?;
    ensure!(ram.metadata()?.blocks() * 512 < 16 << 20, "{} blocks", ram.metadata()?.blocks());
    Ok(())
}

#[test]
fn memory_in_use_becomes_huge_while_the_guest_uses_it() -> Result<()> {
    let fill = "fill first=0x400000 pages=1024 step=0x200 seed=7";
    let source = microguest(&format!("{fill} {SAY} {ON}"))?;
    let machine = MachineDescription { huge_pages: true, ..machine(1, MEMORY) };
    let mut process = VmProcess::boot_machine(machine, source, &[])?;
    process.wait_for("!!!", 1, SOON)?;
    let huge = |process: &mut VmProcess| -> Result<()> {
        let deadline = Instant::now() + SOON;
        while process.counters()?.huge_bytes < 4 << 20 {
            ensure!(Instant::now() < deadline, "{:?}", process.counters()?);
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    };
    huge(&mut process)?;
    process.must(Request::Pause)?;
    let (memory, _) = saved(&mut process)?;
    let files = process.must_snapshot()?;
    drop(process);
    // A restored machine has small pages at first.
    let mut process = restore(&files, true, Restoration { huge_pages: true, ..moved() })?;
    ensure!(saved(&mut process)?.0 == memory, "memory is not the same");
    process.must(Request::Resume)?;
    huge(&mut process)
}

fn image(work: &DiskWork) -> Result<File> {
    let file = File::from(memfd_create("disk", MFdFlags::MFD_CLOEXEC)?);
    let bytes: Vec<u8> = (0..work.size()).map(|at| (at * 31).to_le_bytes()[1]).collect();
    file.write_all_at(&bytes, 0)?;
    Ok(file)
}

fn start(work: &DiskWork, disk_file: &File) -> Result<VmProcess> {
    let mut machine = machine(1, MEMORY);
    machine.disks = vec![disk("data")];
    let source = microguest(&format!("{work} ticks=100000 {POWER_OFF}"))?;
    VmProcess::boot_machine(machine, source, &[("data", disk_file)])
}

/// Gives back in how many processes the guest lived.
fn reborn_at_every(n: u64, work: &DiskWork, userfaultfd: bool) -> Result<u64> {
    let disk = image(work)?;
    let mut expected = bytes_of(&disk)?;
    let disks = [("data", &disk)];
    let mut process = start(work, &disk)?;
    process.must(Request::Pause)?;
    let mut console = String::new();
    let mut lives = 1;
    loop {
        let stopped = resume_for_exits(&mut process, 0, n)?;
        let reply = match stopped {
            Stopped::AtExit => {
                let files = SnapshotFiles::new()?;
                process.snapshot(&files).ok().map(|reply| (reply, files))
            }
            Stopped::Ended => None,
        };
        // Its last exit may have been the one that ended it.
        let Some((reply, files)) = reply else { break };
        ensure!(reply == Reply::Done, "{reply:?}");
        console += &process.end_now()?;
        let how = Restoration::default();
        process = VmProcess::restore(&files, microguest("")?, &disks, userfaultfd, how)?;
        process.ask(Request::Info)?;
        lives += 1;
    }
    let event = process.next_event(SOON)?;
    console += &process.end_now()?;
    ensure!(
        matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
        "life {lives} at every {n}: {event:?}\n{console}"
    );
    let line = work.console_line(work.apply(&mut expected));
    ensure!(console.contains(&line), "not {line:?} on the console:\n{console}");
    ensure!(bytes_of(&disk)? == expected, "the disk is not as the guest left it");
    Ok(lives)
}

#[test]
fn guest_restored_at_every_nth_exit_works_on_its_disk_as_if_undisturbed() -> Result<()> {
    for (n, rounds, userfaultfd) in [(3, 8, true), (17, 32, true), (41, 64, true), (29, 32, false)]
    {
        let work = DiskWork { rounds, blocks: 32, sectors: 2, seed: n };
        let lives = reborn_at_every(n, &work, userfaultfd)?;
        ensure!(lives > 3, "only {lives} lives at every {n}");
        eprintln!("at every {n}: {lives} lives");
    }
    Ok(())
}

fn counters_after_resume(memory: u64) -> Result<Counters> {
    let mut process = filled_guest(memory, ON)?;
    let files = process.must_snapshot()?;
    drop(process);
    let mut process = restore(&files, true, Restoration::default())?;
    process.must(Request::Resume)?;
    process.must(Request::Pause)?;
    process.counters()
}

#[test]
fn work_before_the_first_step_does_not_grow_with_guest_memory() -> Result<()> {
    let small = counters_after_resume(MEMORY)?.fill;
    let large = counters_after_resume(1 << 30)?.fill;
    eprintln!("before the first step: {:?}, {:?}", small.before_run, large.before_run);
    ensure!(small.before_run.pages > 0, "{small:?}");
    ensure!(small.before_run == large.before_run, "{small:?}, {large:?}");
    // Of its more than 300 pages.
    ensure!(large.before_run.pages < 100, "{large:?}");
    Ok(())
}

#[test]
fn all_memory_is_there_in_the_end_without_anybody_asking() -> Result<()> {
    let files = snapshot_of_filled_guest()?;
    let mut process = restore(&files, true, Restoration::default())?;
    ensure!(process.counters()?.fill.filling);
    process.must(Request::Resume)?;
    let deadline = Instant::now() + SOON;
    while process.counters()?.fill.filling {
        ensure!(Instant::now() < deadline, "{:?}", process.counters()?);
        std::thread::sleep(Duration::from_millis(5));
    }
    let fill = process.counters()?.fill;
    ensure!(fill.all.pages >= 300 && fill.all.pages > fill.before_run.pages, "{fill:?}");
    Ok(())
}

#[test]
fn copy_gets_a_new_generation_id_and_is_told_and_a_moved_machine_is_not() -> Result<()> {
    let mut process = filled_guest(MEMORY, ON)?;
    let id = payload(&saved(&mut process)?.1, "generation-id")?;
    let files = process.must_snapshot()?;
    drop(process);
    let restored = |how: Restoration| -> Result<(Value, Value)> {
        let (memory, records) = saved(&mut restore(&files, true, how)?)?;
        let id = payload(&records, "generation-id")?;
        let bytes: Vec<u8> = serde_json::from_value(id["id"].clone())?;
        ensure!(memory.windows(16).any(|window| window == bytes), "the id is not in memory");
        Ok((id, payload(&records, "acpi")?["events"].clone()))
    };
    let (first, events) = restored(Restoration::default())?;
    ensure!(first != id && events == 4, "{first} {events}");
    let (second, _) = restored(Restoration::default())?;
    ensure!(second != first && second != id);
    ensure!(restored(moved())? == (id, 0.into()));
    Ok(())
}

#[test]
fn running_machine_is_not_snapshotted_and_says_what_to_do() -> Result<()> {
    let mut process = VmProcess::boot(1, MEMORY, microguest(ON)?)?;
    let reply = process.snapshot(&SnapshotFiles::new()?)?;
    ensure!(reply == Reply::Refused { reason: "pause it first".into() }, "{reply:?}");
    Ok(())
}

#[test]
fn files_for_others_and_files_with_something_in_them_are_refused() -> Result<()> {
    let mut process = filled_guest(MEMORY, ON)?;
    let files = SnapshotFiles::new()?;
    files.set_mode(0o644)?;
    let reply = process.snapshot(&files)?;
    ensure!(
        matches!(&reply, Reply::Refused { reason } if reason.contains("mode 0644")),
        "{reply:?}"
    );
    files.set_mode(0o600)?;
    ensure!(process.snapshot(&files)? == Reply::Done);
    let reply = process.snapshot(&files)?;
    ensure!(
        matches!(&reply, Reply::Refused { reason } if reason.contains("an empty one")),
        "{reply:?}"
    );
    drop(process);
    files.set_mode(0o640)?;
    let why = refused(restore(&files, true, moved())?)?;
    ensure!(why.contains("mode 0640"), "{why}");
    Ok(())
}

#[test]
fn foreign_truncated_and_damaged_files_are_refused_by_what_is_wrong() -> Result<()> {
    let (one, two) = (snapshot_of_filled_guest()?, snapshot_of_filled_guest()?);
    let (memory, records) = (bytes_of(&one.memory()?)?, bytes_of(&one.records()?)?);
    let put = |file: File, bytes: &[u8]| -> Result<()> {
        file.set_len(0)?;
        Ok(file.write_all_at(bytes, 0)?)
    };
    let why = || refused(restore(&one, true, moved())?);
    put(one.memory()?, &bytes_of(&two.memory()?)?)?;
    ensure!(why()?.contains("belongs to the snapshot"), "{}", why()?);
    put(one.memory()?, &memory[..memory.len() - 1])?;
    ensure!(why()?.contains("it must have"), "{}", why()?);
    put(one.memory()?, &records)?;
    ensure!(why()?.contains("no memory file of a snapshot"), "{}", why()?);
    put(one.memory()?, &memory)?;
    put(one.records()?, &records[..records.len() - 1])?;
    ensure!(why()?.contains("it must have"), "{}", why()?);
    let mut damaged = records.clone();
    let at = damaged.windows(9).position(|window| window == b"\"kind\":\"r").context("no RTC")?;
    damaged[at + 40] ^= 1;
    put(one.records()?, &damaged)?;
    ensure!(why()?.contains("in the records file is damaged"), "{}", why()?);
    put(one.records()?, &[])?;
    ensure!(why()?.contains("no records file of a snapshot"), "{}", why()?);
    put(one.records()?, &records)?;
    restore(&one, true, moved())?.must(Request::Resume)?;
    Ok(())
}

/// Where the guest's own memory is in the memory file.
const FILLED: u64 = (64 << 10) + 0x40_0000;

#[test]
fn damaged_memory_ends_the_machine_with_a_reason() -> Result<()> {
    let files = snapshot_of_filled_guest()?;
    files.memory()?.write_all_at(&[0x55], FILLED + 0x2_1000)?;
    let why = "guest memory from byte 0x420000 on is damaged";
    // All at once: before it starts.
    let detail = refused(restore(&files, false, moved())?)?;
    ensure!(detail.contains(why), "{detail}");
    // When it is wanted: at the latest when all is filled in.
    let mut process = restore(&files, true, moved())?;
    // Refused, if it is found so soon.
    process.ask(Request::Resume)?;
    let event = process.next_event(SOON)?;
    let Event::Ended { reason: EndReason::InternalError, detail, .. } = event else {
        bail!("{event:?}")
    };
    ensure!(detail.contains(why), "{detail}");
    let (status, text) = process.end(SOON)?;
    ensure!(status == i32::from(EndReason::InternalError.exit_status()), "{status}: {text}");
    // Nor is it written to another snapshot.
    let mut process = restore(&files, true, moved())?;
    let reply = process.snapshot(&SnapshotFiles::new()?)?;
    ensure!(matches!(&reply, Reply::Refused { reason } if reason.contains(why)), "{reply:?}");
    Ok(())
}

#[test]
fn damaged_page_that_the_guest_needs_at_once_ends_the_machine_with_a_reason() -> Result<()> {
    let files = snapshot_of_filled_guest()?;
    // Its code.
    files.memory()?.write_all_at(&[0x55; 4096], (64 << 10) + (1 << 20))?;
    let mut process = restore(&files, true, moved())?;
    // Refused, if it is found so soon.
    process.ask(Request::Resume)?;
    let event = process.next_event(SOON)?;
    let Event::Ended { reason: EndReason::InternalError, detail, .. } = event else {
        bail!("{event:?}")
    };
    ensure!(detail.contains("guest memory from byte 0x100000 on is damaged"), "{detail}");
    Ok(())
}

#[test]
fn damaged_pages_that_the_disk_needs_at_once_end_the_machine_with_a_reason() -> Result<()> {
    let work = DiskWork { rounds: 32, blocks: 32, sectors: 2, seed: 5 };
    let disk = image(&work)?;
    let mut process = start(&work, &disk)?;
    process.must(Request::Pause)?;
    resume_for_exits(&mut process, 0, 40)?;
    let files = process.must_snapshot()?;
    drop(process);
    // Its queues are somewhere in the guest's image.
    files.memory()?.write_all_at(&vec![0x55; 1 << 20], (64 << 10) + (1 << 20))?;
    let disks = [("data", &disk)];
    let mut process = VmProcess::restore(&files, microguest("")?, &disks, true, moved())?;
    // Refused, if it is found so soon.
    process.ask(Request::Resume)?;
    let event = process.next_event(SOON)?;
    let Event::Ended { reason: EndReason::InternalError, detail, .. } = event else {
        bail!("{event:?}")
    };
    ensure!(detail.contains("is damaged"), "{detail}");
    Ok(())
}

#[test]
fn snapshot_does_not_go_on_with_a_disk_that_was_written_since() -> Result<()> {
    let work = DiskWork { rounds: 32, blocks: 32, sectors: 2, seed: 5 };
    let disk = image(&work)?;
    let mut process = start(&work, &disk)?;
    process.must(Request::Pause)?;
    resume_for_exits(&mut process, 0, 20)?;
    let files = process.must_snapshot()?;
    // The machine goes on, and so does its disk.
    process.must(Request::Resume)?;
    let event = process.next_event(SOON)?;
    ensure!(matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }), "{event:?}");
    drop(process);
    let restore = |how| VmProcess::restore(&files, microguest("")?, &[("data", &disk)], true, how);
    let detail = refused(restore(Restoration::default())?)?;
    ensure!(detail.contains("disk/data was written since the snapshot"), "{detail}");
    let force_disks = BTreeSet::from(["data".to_owned()]);
    let mut process = restore(Restoration { force_disks, ..Restoration::default() })?;
    process.must(Request::Resume).map(drop)
}

#[test]
fn restored_guest_that_resets_itself_boots_anew() -> Result<()> {
    let mut process = filled_guest(256 << 20, &format!("timer count=1 ticks=1000 {RESET}"))?;
    let files = process.must_snapshot()?;
    drop(process);
    let source = microguest(&format!("{SAY} {POWER_OFF}"))?;
    // The command line is the snapshot's: it fills its memory, says so, and resets itself once more.
    let mut process = VmProcess::restore(&files, source, &[], true, moved())?;
    process.must(Request::Resume)?;
    for _ in 0..3 {
        let event = process.next_event(SOON)?;
        ensure!(event == Event::Reset, "{event:?}");
    }
    process.wait_for("!!!", 2, SOON)?;
    ensure!(!process.counters()?.fill.filling);
    Ok(())
}

#[test]
fn another_kernel_than_the_snapshots_is_refused() -> Result<()> {
    let files = snapshot_of_filled_guest()?;
    let source = microguest("")?;
    source.kernel.set_len(100)?;
    let detail = refused(VmProcess::restore(&files, source, &[], true, moved())?)?;
    ensure!(detail.contains("kernel has Some(100) bytes"), "{detail}");
    Ok(())
}
