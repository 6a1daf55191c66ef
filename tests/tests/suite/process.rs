//! Corten's VM process with a microguest in it: lifecycle and control.

use std::io::{Seek, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_link::{BootFault, EndReason, Event, Grant, Reply, Request, Role, RunState};
use corten_tests::process::VmProcess;
use corten_tests::vmm::microguest;
use corten_vmm::machine::Hosts;

/// Long, for a machine in an emulator under load.
const SOON: Duration = Duration::from_secs(60);
const MEMORY: u64 = 32 << 20;

fn guest(commands: &str) -> Result<VmProcess> {
    VmProcess::boot(1, MEMORY, microguest(commands)?)
}

fn ends_with(commands: &str, expected: EndReason) -> Result<String> {
    let mut process = guest(commands)?;
    let event = process.next_event(SOON)?;
    ensure!(matches!(&event, Event::Ended { reason, .. } if *reason == expected), "{event:?}");
    let (status, text) = process.end(SOON)?;
    ensure!(status == i32::from(expected.exit_status()), "status {status}: {text}");
    ensure!(text.contains(expected.text()), "{text}");
    Ok(text)
}

#[test]
fn power_off_panic_and_triple_fault_are_told_apart() -> Result<()> {
    ends_with("doorbell port=0x600 size=1 value=0x34", EndReason::PoweredOff)?;
    for (commands, reason) in [
        ("doorbell port=0x505 size=1 value=1", EndReason::Panicked),
        ("shutdown", EndReason::TripleFault),
    ] {
        let text = ends_with(commands, reason)?;
        ensure!(text.contains("rip 0x"), "no registers: {text}");
    }
    Ok(())
}

#[test]
fn reset_starts_the_guest_anew_in_the_same_process() -> Result<()> {
    let mut process = guest("doorbell port=0x64 size=1 value=0xfe")?;
    for _ in 0..5 {
        ensure!(process.next_event(SOON)? == Event::Reset);
    }
    process.wait_for("microguest by PVH entry", 5, SOON)?;
    process.must(Request::Kill)?;
    let (status, _) = process.end(SOON)?;
    ensure!(status == i32::from(EndReason::Killed.exit_status()));
    Ok(())
}

#[test]
fn paused_machine_is_saved_and_goes_on_in_a_new_process() -> Result<()> {
    // Ends by itself once its timer has fired often enough, in whatever process that is.
    let commands = "timer count=40 ticks=3000000 doorbell port=0x600 size=1 value=0x34";
    let mut process = guest(commands)?;
    process.wait_for("microguest", 1, SOON)?;
    for _ in 0..4 {
        process.must(Request::Pause)?;
        let saved = process.must(Request::Save)?;
        drop(process);
        process = VmProcess::load(saved)?;
        process.must(Request::Resume)?;
    }
    let event = process.next_event(SOON)?;
    let Event::Ended { reason: EndReason::PoweredOff, .. } = event else {
        anyhow::bail!("{event:?}")
    };
    Ok(())
}

#[test]
fn guest_that_was_loaded_can_be_reset() -> Result<()> {
    let mut process = guest("timer count=8 ticks=3000000 doorbell port=0x64 size=1 value=0xfe")?;
    process.wait_for("microguest", 1, SOON)?;
    process.must(Request::Pause)?;
    let saved = process.must(Request::Save)?;
    drop(process);
    let mut process = VmProcess::load(saved)?;
    process.must(Request::Resume)?;
    ensure!(process.next_event(SOON)? == Event::Reset);
    process.wait_for("microguest by PVH entry", 1, SOON)
}

#[test]
fn loaded_machine_is_saved_as_it_was_loaded() -> Result<()> {
    let mut process = guest("timer count=4 ticks=4000000000")?;
    process.wait_for("microguest", 1, SOON)?;
    process.must(Request::Pause)?;
    let saved = process.must(Request::Save)?;
    let first = records(&saved)?;
    drop(process);
    let again = VmProcess::load(saved)?.must(Request::Save)?;
    ensure!(records(&again)? == first, "{first}\nbecame\n{}", records(&again)?);
    Ok(())
}

#[test]
fn refused_resume_is_refused_again_and_loses_nothing() -> Result<()> {
    let mut process = guest("timer count=400 ticks=3000000")?;
    process.wait_for("microguest", 1, SOON)?;
    process.must(Request::Pause)?;
    let mut saved = process.must(Request::Save)?;
    drop(process);
    let mut records = records(&saved)?;
    let list = records["records"].as_array_mut().context("records are a list")?;
    let vcpu = list.iter_mut().find(|record| record["kind"] == "vcpu").context("no vCPU")?;
    let msrs = vcpu["payload"]["msrs"].as_array_mut().context("MSRs are a list")?;
    msrs.insert(0, serde_json::json!([0xdead_beef_u32, 1]));
    let mut file = tempfile();
    serde_json::to_writer(&mut file, &records)?;
    saved.insert(Role::records(), file.into());
    let mut process = VmProcess::load(saved)?;
    for _ in 0..2 {
        let (reply, _) = process.ask(Request::Resume)?;
        let Reply::Refused { reason } = reply else { anyhow::bail!("{reply:?}") };
        ensure!(reason.contains("0xdeadbeef"), "{reason}");
    }
    Ok(())
}

/// What a save gave out, as it was written.
fn records(saved: &Grant) -> Result<serde_json::Value> {
    let records = saved.get(&Role::records()).context("no records")?;
    let mut file = std::fs::File::from(records.try_clone()?);
    file.rewind()?;
    Ok(serde_json::from_reader(file)?)
}

#[test]
fn request_of_another_release_is_refused_and_the_vm_goes_on() -> Result<()> {
    let mut process = guest("loop")?;
    process.wait_for("microguest", 1, SOON)?;
    process.send_text(r#"{"kind":"request","id":77,"request":{"what":"from-the-future"}}"#)?;
    let (reply, _) = process.reply_to(77)?;
    ensure!(matches!(reply, Reply::Refused { .. }), "{reply:?}");
    process.send_text("nonsense")?;
    process.must(Request::Pause)?;
    Ok(())
}

#[test]
fn control_peer_learns_how_the_vm_is() -> Result<()> {
    let mut process = guest("loop")?;
    process.wait_for("microguest", 1, SOON)?;
    let (Reply::Info { info }, _) = process.ask(Request::Info)? else { anyhow::bail!("no info") };
    ensure!((info.vcpus, info.memory, info.state) == (1, MEMORY, RunState::Running), "{info:?}");
    process.must(Request::Pause)?;
    process.must(Request::Pause)?;
    let (Reply::Info { info }, _) = process.ask(Request::Info)? else { anyhow::bail!("no info") };
    ensure!(info.state == RunState::Paused);
    let (Reply::Counters { counters }, _) = process.ask(Request::Counters)? else {
        anyhow::bail!("no counters")
    };
    ensure!(counters.port_exits > 10 && counters.kicks > 0, "{counters:?}");
    // Its thread has a filter by now, and so has the one that asks.
    let cpu = counters.cpu.context("no CPU times")?;
    let (_, vcpu) = cpu.vcpu_nanoseconds.first().context("no CPU time of the vCPU")?;
    ensure!(0 < *vcpu && *vcpu < cpu.process_nanoseconds, "{cpu:?}");
    process.must(Request::Resume)?;
    let (refused, _) = process.ask(Request::Save)?;
    ensure!(matches!(refused, Reply::Refused { .. }), "a running machine was saved");
    Ok(())
}

#[test]
fn vm_ends_when_its_control_peer_is_gone() -> Result<()> {
    let process = guest("loop")?;
    process.wait_for("microguest", 1, SOON)?;
    let (status, text) = process.abandon()?.end(SOON)?;
    ensure!(status == i32::from(EndReason::Killed.exit_status()), "{status}: {text}");
    Ok(())
}

#[test]
fn end_is_what_it_is_when_nobody_reads_what_the_process_says() -> Result<()> {
    let mut process = guest("loop")?;
    process.close_errors();
    process.must(Request::Kill)?;
    let (status, _) = process.end(SOON)?;
    ensure!(status == i32::from(EndReason::Killed.exit_status()), "{status}");
    Ok(())
}

#[test]
fn what_cannot_be_booted_is_said() -> Result<()> {
    let mut source = microguest("hello")?;
    source.kernel = tempfile();
    let mut process = VmProcess::boot(1, MEMORY, source)?;
    let event = process.next_event(SOON)?;
    let Event::Ended { reason: EndReason::NotStarted, detail, fault } = event else {
        anyhow::bail!("{event:?}")
    };
    ensure!(detail.contains("the file is empty"), "{detail}");
    ensure!(fault == Some(BootFault::Kernel), "{fault:?}");
    let mut process = VmProcess::boot(0, MEMORY, microguest("hello")?)?;
    let event = process.next_event(SOON)?;
    let Event::Ended { reason: EndReason::NotStarted, detail, .. } = event else {
        anyhow::bail!("{event:?}")
    };
    ensure!(detail.contains("are no processor"), "{detail}");
    Ok(())
}

/// An empty file, made without a place on a file system that may be read-only.
fn tempfile() -> std::fs::File {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    nix::sys::memfd::memfd_create("empty", flags).expect("a memfd can be made").into()
}

#[test]
fn what_is_typed_reaches_the_guest_also_across_a_pause_a_save_and_a_reset() -> Result<()> {
    let commands = "typed lines=2 doorbell port=0x64 size=1 value=0xfe";
    let (mut host, theirs) = UnixStream::pair()?;
    let input =
        || Ok::<_, anyhow::Error>(vec![(Role::console_input(), theirs.try_clone()?.into())]);
    let machine = corten_tests::process::machine(1, MEMORY);
    let mut process = VmProcess::boot_granted(machine, microguest(commands)?, input()?)?;
    host.write_all(b"first line\n")?;
    process.wait_for("\nfirst line\n", 1, SOON)?;
    process.must(Request::Pause)?;
    host.write_all(b"second, of which nothing is read before it goes on: ")?;
    let saved = process.must(Request::Save)?;
    drop(process);
    let mut process = VmProcess::load_granted(saved, input()?, Hosts::default())?;
    process.must(Request::Resume)?;
    // More than the port holds at once.
    let long = "x".repeat(1000);
    host.write_all(long.as_bytes())?;
    host.write_all(b"\n")?;
    process.wait_for(&format!("before it goes on: {long}\n"), 1, SOON)?;
    ensure!(process.next_event(SOON)? == Event::Reset);
    host.write_all(b"third line\n")?;
    process.wait_for("\nthird line\n", 1, SOON)
}
