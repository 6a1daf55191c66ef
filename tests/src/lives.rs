//! A guest that lives in many VM processes, one after the other.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_link::{EndReason, Event, MachineDescription, Request, Role};

use crate::exit_stop::{Stopped, resume_for_exits};
use crate::process::VmProcess;
use crate::vmm::microguest;

/// Long, for a machine in an emulator under load.
const SOON: Duration = Duration::from_secs(60);
const POWER_OFF: &str = "doorbell port=0x600 size=1 value=0x34";

/// How a guest lived.
#[derive(Debug)]
pub struct Lives {
    /// In how many processes.
    pub count: u64,
    /// What it wrote to its serial port in all of them.
    pub console: String,
}

/// Has a microguest do `commands` and power off. Its process is stopped at every `n`-th exit of its CPU, and the guest saved
/// and gone on with in a new one.
pub fn reborn_at_every(
    n: u64,
    machine: &MachineDescription,
    commands: &str,
    devices: &[(Role, OwnedFd)],
) -> Result<Lives> {
    let grant = || -> Result<Vec<(Role, OwnedFd)>> {
        devices.iter().map(|(role, fd)| Ok((role.clone(), fd.try_clone()?))).collect()
    };
    let hosts = |machine: &MachineDescription| {
        machine.disks.iter().map(|disk| (disk.name.clone(), disk.host.clone())).collect()
    };
    let source = microguest(&format!("{commands} {POWER_OFF}"))?;
    let mut process = VmProcess::boot_granted(machine.clone(), source, grant()?)?;
    // Anywhere in its first steps: from there on exits are counted.
    process.must(Request::Pause)?;
    let mut lives = Lives { count: 1, console: String::new() };
    loop {
        let stopped = resume_for_exits(&mut process, 0, n)
            .with_context(|| format!("at every {n}: {lives:?}{}", process.console()))?;
        // Its last exit may have been the one that ended it.
        let saved = match stopped {
            Stopped::AtExit => process.must(Request::Save).ok(),
            Stopped::Ended => None,
        };
        let Some(saved) = saved else { break };
        lives.console += &process.end_now()?;
        process = VmProcess::load_granted(saved, grant()?, hosts(machine))?;
        process.ask(Request::Info)?;
        lives.count += 1;
    }
    let event = process.next_event(SOON)?;
    lives.console += &process.end_now()?;
    ensure!(
        matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
        "at every {n}: {event:?} {lives:?}"
    );
    Ok(lives)
}

/// The same without a stop.
pub fn undisturbed(
    machine: &MachineDescription,
    commands: &str,
    devices: &[(Role, OwnedFd)],
) -> Result<Lives> {
    reborn_at_every(u64::MAX, machine, commands, devices)
}
