//! Stock Linux on Corten's machine. These run in a node, in the cage, where `guests` starts them with the assets they
//! boot; see [`Asset`].

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use corten_devices::Effect;
use corten_link::{DiskDescription, EndReason, Event, Request, Restoration};
use corten_tests::guest::{self, script_disk};
use corten_tests::process::{VmProcess, asset, disk, machine};
use corten_tests::snapshot_files::SnapshotFiles;
use corten_tests::vmm::TestMachine;
use corten_vmm::arch::x86_64::boot::BootSource;
use corten_vmm::arch::x86_64::topology::Topology;
use corten_vmm::machine::{Identification, MachineSpec, Notice};

/// A boot takes 5 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);

/// Environment variables that `--asset` sets.
struct Asset {
    kernel: &'static str,
    initrd: &'static str,
}

const NEW: Asset =
    Asset { kernel: "CORTEN_ASSET_KERNEL_6_12", initrd: "CORTEN_ASSET_GUEST_INITRD_6_12" };
const OLD: Asset = Asset {
    kernel: "CORTEN_ASSET_KERNEL_6_1_CLOUD",
    initrd: "CORTEN_ASSET_GUEST_INITRD_6_1_CLOUD",
};

impl Asset {
    fn source(&self, form: &str, command_line: &str) -> Result<BootSource> {
        Ok(BootSource {
            kernel: asset(self.kernel, form)?,
            initrd: Some(asset(self.initrd, "initrd")?),
            command_line: format!("console=ttyS0 mitigations=off {command_line}"),
        })
    }
}

fn spec(cpus: u16, mebibytes: u64) -> MachineSpec {
    MachineSpec {
        memory: mebibytes << 20,
        topology: Topology { sockets: 1, cores: cpus, threads: 1 },
        identity: Identification::default(),
        devices: Vec::new(),
    }
}

fn wait_for(guest: &TestMachine, text: &str) -> Result<()> {
    let deadline = Instant::now() + BOOT;
    while !guest.console.text().contains(text) {
        let said = || format!("no {text:?} on the console:\n{}", guest.console.text());
        ensure!(Instant::now() < deadline, said());
        if let Ok(notice) = guest.next_notice(Duration::from_millis(20)) {
            ensure!(guest.console.text().contains(text), "{}\n{}", notice.describe(), said());
            return Ok(());
        }
    }
    Ok(())
}

fn boots_and_powers_off(mut source: BootSource, spec: &MachineSpec) -> Result<String> {
    let guest = TestMachine::boot(spec, &mut source)?;
    wait_for(&guest, "CORTEN-GUEST-UP")?;
    let notice = guest.next_notice(BOOT)?;
    let console = guest.console.text();
    ensure!(matches!(notice, Notice::Effect(Effect::PowerOff)), "{}\n{console}", notice.describe());
    Ok(console)
}

#[test]
fn vmlinux_6_12_boots_and_powers_off() -> Result<()> {
    let console = boots_and_powers_off(NEW.source("vmlinux", "")?, &spec(1, 256))?;
    for complaint in ["ACPI Error", "ACPI BIOS Error", "not reserved", "unstable", "Spurious"] {
        ensure!(!console.contains(complaint), "{complaint}\n{console}");
    }
    Ok(())
}

#[test]
fn long_bzimage_6_12_boots_and_powers_off() -> Result<()> {
    boots_and_powers_off(NEW.source("vmlinuz", "quiet")?, &spec(1, 256)).map(drop)
}

#[test]
fn long_vmlinux_6_1_boots_and_powers_off() -> Result<()> {
    boots_and_powers_off(OLD.source("vmlinux", "quiet")?, &spec(1, 256)).map(drop)
}

#[test]
fn bzimage_6_1_boots_and_powers_off() -> Result<()> {
    boots_and_powers_off(OLD.source("vmlinuz", "quiet")?, &spec(1, 256)).map(drop)
}

#[test]
fn four_processors_come_up() -> Result<()> {
    let console = boots_and_powers_off(NEW.source("vmlinux", "")?, &spec(4, 256))?;
    ensure!(console.contains("smp: Brought up 1 node, 4 CPUs"), "{console}");
    Ok(())
}

#[test]
fn guest_goes_on_in_a_new_process_with_its_time() -> Result<()> {
    let source = NEW.source("vmlinux", "quiet corten.end=tick")?;
    let mut process = VmProcess::boot(2, 256 << 20, source)?;
    process.wait_for("CORTEN-TICK", 2, BOOT)?;
    let mut last = last_tick(&process)?;
    for _ in 0..2 {
        process.must(Request::Pause)?;
        last = last.max(last_tick(&process)?);
        let saved = process.must(Request::Save)?;
        drop(process);
        process = VmProcess::load(saved)?;
        process.must(Request::Resume)?;
        process.wait_for("CORTEN-TICK", 3, BOOT)?;
        let now = last_tick(&process)?;
        ensure!(now > last, "time went back from {last} to {now}");
        last = now;
    }
    Ok(())
}

#[test]
fn guest_goes_on_from_files_with_its_time_and_knows_that_it_is_a_copy() -> Result<()> {
    let source = || NEW.source("vmlinux", "loglevel=6 corten.end=tick");
    let mut process = VmProcess::boot(2, 256 << 20, source()?)?;
    process.wait_for("CORTEN-TICK", 2, BOOT)?;
    let mut last = last_tick(&process)?;
    for _ in 0..2 {
        process.must(Request::Pause)?;
        last = last.max(last_tick(&process)?);
        let files = process.must_snapshot_in(SnapshotFiles::in_memory()?)?;
        drop(process);
        process = VmProcess::restore(&files, source()?, &[], true, Restoration::default())?;
        process.must(Request::Resume)?;
        process.wait_for("crng reseeded due to virtual machine fork", 1, BOOT)?;
        process.wait_for("CORTEN-TICK", 3, BOOT)?;
        let now = last_tick(&process)?;
        ensure!(now > last, "time went back from {last} to {now}");
        last = now;
        let fill = process.counters()?.fill;
        ensure!(fill.before_run.pages < fill.all.pages / 10, "{fill:?}");
    }
    Ok(())
}

#[test]
fn long_guest_that_was_moved_by_files_has_the_time_of_its_host() -> Result<()> {
    let source = || NEW.source("vmlinux", "quiet corten.end=tick");
    let mut process = VmProcess::boot(1, 256 << 20, source()?)?;
    process.wait_for("CORTEN-TICK", 2, BOOT)?;
    process.must(Request::Pause)?;
    let last = last_tick(&process)?;
    let files = process.must_snapshot_in(SnapshotFiles::in_memory()?)?;
    drop(process);
    // What is waited for is the host's clock, by which the guest's goes on.
    std::thread::sleep(Duration::from_secs(10));
    let how = Restoration { moved: true, ..Restoration::default() };
    let mut process = VmProcess::restore(&files, source()?, &[], true, how)?;
    process.must(Request::Resume)?;
    process.wait_for("CORTEN-TICK", 2, BOOT)?;
    let now = last_tick(&process)?;
    ensure!(now >= last + 10.0, "from {last} to {now}");
    Ok(())
}

/// Uptime in seconds, as the guest said it last.
fn last_tick(process: &VmProcess) -> Result<f64> {
    let console = process.console();
    let complete = console.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let tick =
        complete.lines().filter_map(|line| line.trim().strip_prefix("CORTEN-TICK ")).next_back();
    Ok(tick.context("no tick")?.trim().parse()?)
}

#[test]
fn long_power_button_reaches_the_guest() -> Result<()> {
    let mut process =
        VmProcess::boot(1, 256 << 20, NEW.source("vmlinux", "quiet corten.end=button")?)?;
    process.wait_for("CORTEN-GUEST-UP", 1, BOOT)?;
    // The driver of the button is loaded after that line.
    let end = loop {
        process.must(Request::PowerButton)?;
        if let Ok(event) = process.next_event(Duration::from_secs(2)) {
            break event;
        }
    };
    ensure!(matches!(end, Event::Ended { reason: EndReason::PoweredOff, .. }), "{end:?}");
    Ok(())
}

#[test]
fn long_reboot_starts_the_guest_anew() -> Result<()> {
    let source = NEW.source("vmlinux", "quiet corten.end=reboot")?;
    let mut process = VmProcess::boot(1, 256 << 20, source)?;
    ensure!(process.next_event(BOOT)? == Event::Reset);
    process.wait_for("CORTEN-GUEST-UP", 2, BOOT)?;
    Ok(())
}

#[test]
fn long_triple_fault_is_told_from_everything_else() -> Result<()> {
    let source = NEW.source("vmlinux", "quiet reboot=triple corten.end=reboot")?;
    let mut process = VmProcess::boot(1, 256 << 20, source)?;
    let end = process.next_event(BOOT)?;
    ensure!(
        matches!(&end, Event::Ended { reason: EndReason::TripleFault, detail, .. } if detail.contains("rip")),
        "{end:?}\n{}",
        process.console()
    );
    Ok(())
}

#[test]
fn long_panic_is_told_from_everything_else() -> Result<()> {
    let source = NEW.source("vmlinux", "quiet corten.modules=pvpanic-mmio corten.end=panic")?;
    let mut process = VmProcess::boot(1, 256 << 20, source)?;
    let end = process.next_event(BOOT)?;
    ensure!(
        matches!(end, Event::Ended { reason: EndReason::Panicked, .. }),
        "{end:?}\n{}",
        process.console()
    );
    Ok(())
}

#[test]
fn long_memory_over_3_gib_is_all_there() -> Result<()> {
    let console = boots_and_powers_off(NEW.source("vmlinux", "")?, &spec(1, 4096))?;
    let line = console.lines().find(|line| line.contains("Memory: ")).context("no memory line")?;
    let total =
        line.split('/').nth(1).and_then(|rest| rest.split('K').next()).context("no total")?;
    ensure!(total.parse::<u64>()? > 4000 << 10, "{line}");
    Ok(())
}

#[test]
fn long_alarm_that_passes_while_the_machine_is_paused_rings_afterwards() -> Result<()> {
    let script = r#"
        alarm=/sys/class/rtc/rtc0/wakealarm
        count() { awk '/rtc0/ { print $2 }' /proc/interrupts; }
        for seconds in 1 4; do
            before=$(count)
            echo +$seconds >$alarm
            echo "ARMED $seconds"
            while [ -n "$(cat $alarm)" ]; do sleep 0.1; done
            echo "RANG $(($(count) - before))"
        done
    "#;
    let script = script_disk(script)?;
    let mut machine = machine(1, 256 << 20);
    machine.disks = vec![DiskDescription { read_only: true, ..disk("script") }];
    let source = guest::source("quiet corten.script=/dev/vda")?;
    let mut process = VmProcess::boot_machine(machine, source, &[("script", &script)])?;
    process.wait_for("ARMED 4", 1, BOOT)?;
    process.must(Request::Pause)?;
    // What is waited for is the host's clock, by which the alarm was set.
    std::thread::sleep(Duration::from_secs(5));
    process.must(Request::Resume)?;
    process.wait_for("RANG 1", 2, BOOT)
}
