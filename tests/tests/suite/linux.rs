//! Stock Linux on Corten's machine. These run in a node, in the cage, where `guests` starts them with the assets they
//! boot; see [`Asset`].

use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use corten_devices::Effect;
use corten_tests::vmm::TestMachine;
use corten_vmm::arch::x86_64::boot::BootSource;
use corten_vmm::arch::x86_64::topology::Topology;
use corten_vmm::machine::{MachineSpec, Notice};

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
        let open = |variable: &str, file: &str| -> Result<File> {
            let directory = std::env::var(variable).with_context(|| format!("no {variable}"))?;
            Ok(File::open(format!("{directory}/{file}"))?)
        };
        Ok(BootSource {
            kernel: open(self.kernel, form)?,
            initrd: Some(open(self.initrd, "initrd")?),
            command_line: format!("console=ttyS0 mitigations=off {command_line}"),
        })
    }
}

fn spec(cpus: u16, mebibytes: u64) -> MachineSpec {
    MachineSpec {
        memory: mebibytes << 20,
        topology: Topology { sockets: 1, cores: cpus, threads: 1 },
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
fn bzimage_6_12_boots_and_powers_off() -> Result<()> {
    boots_and_powers_off(NEW.source("vmlinuz", "quiet")?, &spec(1, 256)).map(drop)
}

#[test]
fn vmlinux_6_1_boots_and_powers_off() -> Result<()> {
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
