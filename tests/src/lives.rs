//! A guest that lives in many VM processes, one after the other.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_link::{EndReason, Event, MachineDescription, Request, Role};
use corten_vmm::machine::Hosts;

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

/// At which exits of its CPU a guest's process is stopped.
#[derive(Clone, Copy, Debug)]
pub struct Stops {
    /// At this one, counted from 1.
    pub first: u64,
    /// Then whenever as many have followed.
    pub every: u64,
}

impl Stops {
    /// At none that any guest comes to.
    pub const NONE: Self = Self { first: u64::MAX, every: u64::MAX };

    /// At every `n`-th.
    pub fn at_every(n: u64) -> Self {
        Self { first: n, every: n }
    }
}

/// Somebody outside of the guest, with whom it deals in all of its lives.
pub trait Companion {
    /// A process has the guest now. It is paused.
    fn born(&mut self, process: &mut VmProcess) -> Result<()>;

    /// The process was stopped and saved, and will end.
    fn stopped(&mut self, _process: &mut VmProcess) -> Result<()> {
        Ok(())
    }
}

/// Nobody.
pub struct Alone;

impl Companion for Alone {
    fn born(&mut self, _process: &mut VmProcess) -> Result<()> {
        Ok(())
    }
}

/// Has a microguest do `commands` and power off. Its process is stopped at every `n`-th exit of its CPU, and the guest saved
/// and gone on with in a new one.
pub fn reborn_at_every(
    n: u64,
    machine: &MachineDescription,
    commands: &str,
    devices: &[(Role, OwnedFd)],
) -> Result<Lives> {
    reborn_in_company(Stops::at_every(n), machine, commands, devices, &mut Alone)
}

/// The same without a stop.
pub fn undisturbed(
    machine: &MachineDescription,
    commands: &str,
    devices: &[(Role, OwnedFd)],
) -> Result<Lives> {
    reborn_in_company(Stops::NONE, machine, commands, devices, &mut Alone)
}

/// The same, stopped there, with somebody who deals with the guest.
pub fn reborn_in_company(
    stops: Stops,
    machine: &MachineDescription,
    commands: &str,
    devices: &[(Role, OwnedFd)],
    companion: &mut dyn Companion,
) -> Result<Lives> {
    let grant = || -> Result<Vec<(Role, OwnedFd)>> {
        devices.iter().map(|(role, fd)| Ok((role.clone(), fd.try_clone()?))).collect()
    };
    let source = microguest(&format!("quiet {commands} {POWER_OFF}"))?;
    let mut process = VmProcess::boot_granted(machine.clone(), source, grant()?)?;
    // Anywhere in its first steps: from there on exits are counted.
    process.must(Request::Pause)?;
    companion.born(&mut process)?;
    let mut exits = stops.first;
    let mut lives = Lives { count: 1, console: String::new() };
    loop {
        let stopped = resume_for_exits(&mut process, 0, exits)
            .with_context(|| format!("{stops:?}: {lives:?}{}", process.console()))?;
        exits = stops.every;
        // Its last exit may have been the one that ended it.
        let saved = match stopped {
            Stopped::AtExit => process.must(Request::Save).ok(),
            Stopped::Ended => None,
        };
        let Some(saved) = saved else { break };
        companion.stopped(&mut process)?;
        lives.console += &process.end_now()?;
        process = VmProcess::load_granted(saved, grant()?, Hosts::of(machine))?;
        process.ask(Request::Info)?;
        companion.born(&mut process)?;
        lives.count += 1;
    }
    let event = process.next_event(SOON)?;
    lives.console += &process.end_now()?;
    ensure!(
        matches!(event, Event::Ended { reason: EndReason::PoweredOff, .. }),
        "{stops:?}: {event:?} {lives:?}"
    );
    Ok(lives)
}
