//! Corten's machine with a microguest in it.

use std::time::Duration;

use anyhow::{Result, ensure};
use corten_devices::{Effect, Records};
use corten_microguest::{Entry, Event, counter_checksum};
use corten_tests::vmm::{TestMachine, microguest, small};
use corten_vmm::arch::x86_64::topology::Topology;
use corten_vmm::machine::{EndCause, Notice};
use serde_json::Value;

/// For a guest that is to report; long, for a machine in an emulator under load.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn microguest_boots_and_is_done() -> Result<()> {
    let guest = TestMachine::boot(&small(), &mut microguest("hello fill check")?)?;
    ensure!(guest.next_report(SOON)? == Event::Hello(Entry::Pvh));
    let mut last = guest.next_report(SOON)?;
    while !last.is_last() {
        last = guest.next_report(SOON)?;
    }
    ensure!(matches!(last, Event::Done { commands: 3 }), "{last}");
    ensure!(guest.console.text().contains("PVH entry"), "{}", guest.console.text());
    Ok(())
}

#[test]
fn stopped_guest_reports_nothing_and_goes_on_when_resumed() -> Result<()> {
    let mut guest = TestMachine::boot(&small(), &mut microguest("count every=16")?)?;
    for _ in 0..5 {
        guest.next_report(SOON)?;
    }
    guest.machine.stop(SOON)?;
    guest.reports.try_iter().count();
    ensure!(guest.reports.recv_timeout(Duration::from_millis(100)).is_err(), "it runs on");
    guest.machine.resume(false)?;
    guest.next_report(SOON)?;
    Ok(())
}

#[test]
fn counting_guest_survives_many_rebirths() -> Result<()> {
    let mut guest = TestMachine::boot(&small(), &mut microguest("count every=16")?)?;
    let mut highest = 0;
    for hop in 0..20 {
        let counter = count_on(&guest, highest)?;
        ensure!(counter > highest, "hop {hop}: {counter} after {highest}");
        highest = counter;
        guest = guest.reborn(SOON)?.0;
        guest.machine.resume(hop % 2 == 0)?;
    }
    ensure!(count_on(&guest, highest)? > highest);
    Ok(())
}

/// Waits for two reports that go beyond `seen`, each with the right checksum.
fn count_on(guest: &TestMachine, seen: u64) -> Result<u64> {
    let mut highest = seen;
    let mut good = 0;
    while good < 2 {
        match guest.next_report(SOON)? {
            Event::Hello(_) => {}
            Event::Counter(counter) => highest = highest.max(counter),
            Event::CounterChecksum(checksum) => {
                ensure!(checksum == counter_checksum(highest), "wrong checksum at {highest}");
                good += 1;
            }
            other => anyhow::bail!("{other}"),
        }
    }
    Ok(highest)
}

#[test]
fn thirty_two_processors_start() -> Result<()> {
    let mut spec = small();
    spec.topology = Topology { sockets: 2, cores: 8, threads: 2 };
    let guest = TestMachine::boot(&spec, &mut microguest("processors count=31")?)?;
    ensure!(matches!(guest.next_report(SOON)?, Event::Hello(_)));
    let started = guest.next_report(SOON)?;
    ensure!(started == Event::Processors(31), "{started}");
    // All of them are stopped and go on in another machine.
    let (mut guest, records) = guest.reborn(SOON)?;
    let records: Vec<Value> = serde_json::from_value(serde_json::to_value(&records)?)?;
    ensure!(records.iter().filter(|record| record["kind"] == "vcpu").count() == 32);
    guest.machine.resume(false)?;
    ensure!(guest.next_report(SOON)?.is_last());
    Ok(())
}

#[test]
fn saved_state_saved_again_is_the_same() -> Result<()> {
    let guest = TestMachine::boot(&small(), &mut microguest("count every=16")?)?;
    guest.next_report(SOON)?;
    let (guest, records) = guest.reborn(SOON)?;
    let again = guest.machine.save()?;
    let value = |records: &Records| -> Result<Vec<Value>> {
        Ok(serde_json::from_value(serde_json::to_value(records)?)?)
    };
    let (first, second) = (value(&records)?, value(&again)?);
    ensure!(first.len() == 10, "{} records", first.len());
    ensure!(first == second, "{first:?}\nbecame\n{second:?}");
    Ok(())
}

#[test]
fn timer_armed_before_a_rebirth_fires_after_it() -> Result<()> {
    let mut guest = TestMachine::boot(&small(), &mut microguest("timer count=6 ticks=2000000")?)?;
    let mut fired = 0;
    loop {
        match guest.next_report(SOON)? {
            event if event.is_last() => break,
            Event::Interrupt { .. } => fired += 1,
            _ => {}
        }
        guest = guest.reborn(SOON)?.0;
        guest.machine.resume(true)?;
    }
    ensure!(fired == 6, "{fired} interrupts");
    Ok(())
}

#[test]
fn guest_that_asks_for_a_reset_or_power_off_is_heard() -> Result<()> {
    for (commands, expected) in [
        ("doorbell port=0x64 size=1 value=0xfe", Effect::Reset),
        ("doorbell port=0x602 size=1 value=1", Effect::Reset),
        ("doorbell port=0x600 size=1 value=0x34", Effect::PowerOff),
    ] {
        let guest = TestMachine::boot(&small(), &mut microguest(commands)?)?;
        let notice = guest.next_notice(SOON)?;
        ensure!(
            matches!(notice, Notice::Effect(effect) if effect == expected),
            "{commands}: {notice:?}"
        );
    }
    Ok(())
}

#[test]
fn triple_fault_is_told_from_everything_else() -> Result<()> {
    let guest = TestMachine::boot(&small(), &mut microguest("shutdown")?)?;
    let notice = guest.next_notice(SOON)?;
    let Notice::Ended { cause: EndCause::TripleFault, registers: Some(_) } = notice else {
        anyhow::bail!("{notice:?}");
    };
    Ok(())
}
