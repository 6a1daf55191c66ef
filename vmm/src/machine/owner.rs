//! The owner: the one thread that decides what becomes of a machine.
//!
//! Requests of the control peer and notices of vCPUs come in one queue. The owner waits for nothing without a deadline but
//! for its queue, for calls on parked vCPUs, and never for a vCPU that could wait for it.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use corten_devices::block::DiskFailure;
use corten_devices::legacy::nonblocking;
use corten_devices::{Effect, Records};
use corten_link::{
    BootFault, BootOrigin, Counters, EndReason, Event, Grant, Info, MachineDescription, Reply,
    Request, Role, RunState,
};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::booting::check_boot_order;
use super::devices::{Parts, addressed};
use super::peer;
use super::snapshots::{DiskFiles, SnapshotError};
use super::{
    Blueprint, DeviceSetupError, Devices, EndCause, FunctionError, Hosts, Identification, Input,
    Lent, Machine, MachineError, MachineSpec, Notice, PlanError, Ticket, VcpuError,
    check_processor, host_processor, plan,
};
use crate::addresses::{Addresses, AddressesError};
use crate::arch::x86_64::boot::BootSource;
use crate::arch::x86_64::topology::Topology;
use crate::kvm::Vm;
use crate::ram::{Ram, RamError};
use crate::sandbox;
use crate::snapshot::MAX_LENGTH;

/// How long vCPUs may take to leave the guest, and disks to finish: they do at once, unless the host is overloaded.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How long the owner is busy at a time with what a guest asked of a device. Not done by then, it is tried again.
const EFFECT_LIMIT: Duration = Duration::from_secs(1);
/// How long disks may take to finish before a guest restarts: there is no going on without them.
const RESET_LIMIT: Duration = Duration::from_secs(60);
/// How long the memory of a restored machine may take to be all there before it can be saved; then it can be tried again.
pub(super) const FILL_LIMIT: Duration = Duration::from_secs(30);

/// Descriptors that a VM was granted, for as long as it lives: a reset needs them again.
#[derive(Debug)]
pub struct Descriptors {
    /// An open /dev/kvm.
    pub kvm: OwnedFd,
    /// What to boot; without it, something is looked for on disks.
    pub kernel: Option<File>,
    /// Its initial RAM disk.
    pub initrd: Option<File>,
    /// Where the serial console goes.
    pub console: Option<OwnedFd>,
    /// Where its input comes from.
    pub console_input: Option<OwnedFd>,
    /// Guest memory of a saved machine.
    pub ram: Option<File>,
    /// A saved machine.
    pub records: Option<File>,
    /// What devices are made of. They keep it.
    pub devices: Grant,
    /// Memory of a snapshot.
    pub snapshot_memory: Option<File>,
    /// All else of it.
    pub snapshot_records: Option<File>,
    /// An open /dev/userfaultfd, for it to be filled in while the guest runs.
    pub userfaultfd: Option<OwnedFd>,
}

/// A saved machine without its memory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    blueprint: Blueprint,
    /// For a reset later on.
    command_line: String,
    /// The same: where to look for something to boot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    boot_order: Vec<String>,
    /// What was found there; none if a kernel was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    found: Option<BootOrigin>,
    records: Records,
}

/// A request on its way to the owner, with the place for the reply.
#[derive(Debug)]
pub struct Asked {
    /// What is wanted.
    pub request: Request,
    /// The descriptors that came with it.
    pub granted: Grant,
    /// Where the reply goes, with descriptors by role.
    pub reply: Sender<(Reply, Vec<(Role, OwnedFd)>)>,
}

/// Why a VM cannot be started or changed.
#[derive(Debug, Error)]
pub enum OwnerError {
    /// A descriptor that it takes was not granted.
    #[error("the descriptor {0} was not granted")]
    NotGranted(Role),
    /// A descriptor cannot be used.
    #[error("cannot use the descriptor {role}")]
    Descriptor {
        /// Which one.
        role: Role,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is wanted cannot be.
    #[error("cannot plan the machine")]
    Plan(#[from] PlanError),
    /// The machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Guest memory.
    #[error(transparent)]
    Ram(#[from] RamError),
    /// A device.
    #[error(transparent)]
    Device(#[from] DeviceSetupError),
    /// What guests are told of their addresses.
    #[error(transparent)]
    Addresses(#[from] AddressesError),
    /// A saved machine that is none.
    #[error("the saved machine cannot be read")]
    Saved(#[source] serde_json::Error),
    /// A snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// No thread to read it by.
    #[error("cannot start the thread that reads a saved machine")]
    Parser(#[source] io::Error),
    /// A disk to boot from that the machine does not have.
    #[error("the disk {0:?} of the boot order is none of the machine's")]
    BootOrder(String),
}

impl OwnerError {
    /// What of the boot is at fault, if it is something that was given to be booted.
    pub fn fault(&self) -> Option<BootFault> {
        match self {
            Self::Machine(MachineError::Boot(error)) => Some(error.fault()),
            Self::Machine(MachineError::Firmware(_)) => Some(BootFault::Memory),
            _ => None,
        }
    }
}

/// What the owner works with.
pub struct Owner {
    pub(super) descriptors: Descriptors,
    pub(super) sender: Sender<Input>,
    inputs: Receiver<Input>,
    events: Box<dyn Fn(Event) -> bool + Send>,
    events_dropped: Cell<u64>,
    /// A guest says as often as it likes that its kernel panicked; it is told once.
    crash_told: Cell<bool>,
    pub(super) command_line: String,
    /// Disks to look for something to boot on, if no kernel was granted.
    pub(super) boot_order: Vec<String>,
    /// What was found there the last time; none if a kernel was granted.
    pub(super) found: Option<BootOrigin>,
    resets: u64,
    /// What its disks are on, for snapshots to say when that was written.
    pub(super) disk_files: DiskFiles,
    /// What the guest is told of its addresses. It is the host's: a reset leaves it alone, and nothing of it is saved.
    addresses: Addresses,
    /// The guest's clock goes on at the next resume as if it had never stopped: it was moved.
    pub(super) advance: Cell<bool>,
}

/// How a VM ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub reason: EndReason,
    /// More of it.
    pub detail: String,
}

enum Verdict {
    GoOn,
    Reset,
    End(End),
}

impl Owner {
    /// An owner without a machine. What the VM tells by itself goes to `events`, which says whether it was taken.
    pub fn new(
        descriptors: Descriptors,
        (sender, inputs): (Sender<Input>, Receiver<Input>),
        events: Box<dyn Fn(Event) -> bool + Send>,
    ) -> Self {
        Self {
            descriptors,
            sender,
            inputs,
            events,
            events_dropped: Cell::default(),
            crash_told: Cell::default(),
            command_line: String::new(),
            boot_order: Vec::new(),
            found: None,
            resets: 0,
            disk_files: DiskFiles::default(),
            addresses: Addresses::default(),
            advance: Cell::default(),
        }
    }

    /// False if it is lost: the peer has not read what came before.
    pub(super) fn tell(&self, event: Event) -> bool {
        let was_told = (self.events)(event);
        if !was_told {
            self.events_dropped.set(self.events_dropped.get() + 1);
        }
        was_told
    }

    /// Boots a machine and runs it to its end. One that is to be `paused` is made, and waits to be told to go.
    pub fn boot(
        mut self,
        description: &MachineDescription,
        paused: bool,
    ) -> Result<End, OwnerError> {
        self.command_line.clone_from(&description.command_line);
        self.boot_order.clone_from(&description.boot_order);
        check_boot_order(description)?;
        let vm = self.vm()?;
        let host = host_processor(&vm)?;
        let hosts = Hosts::of(description);
        self.disk_files = DiskFiles::of(&self.descriptors.devices)?;
        let parts = Parts::of_description(description, &mut self.descriptors.devices)?;
        let blueprint = plan(&spec_of(description, &parts), &host)?;
        let devices = parts.into_devices(&blueprint, &hosts, &self.sender)?;
        self.tell_addresses(&blueprint, &hosts)?;
        let ram = Ram::new(&blueprint.slots)?;
        if description.huge_pages {
            ram.collapse()?;
        }
        sandbox::lock_in();
        let machine = self.start(vm, blueprint, ram, devices, !paused)?;
        self.tell_found();
        self.run(machine)
    }

    /// Goes on with a saved machine, paused at first, to its end.
    pub fn load(mut self, hosts: &Hosts) -> Result<End, OwnerError> {
        let Saved { blueprint, command_line, boot_order, found, records } = self.read_saved()?;
        (self.command_line, self.boot_order, self.found) = (command_line, boot_order, found);
        // Its guest may restart at any time: what it then boots from has to be there now.
        if self.found.is_none() && self.boot_source()?.is_none() {
            return Err(OwnerError::NotGranted(Role::kernel()));
        }
        let vm = self.vm()?;
        check_processor(&vm, &blueprint)?;
        let ram = self.descriptors.ram.take().ok_or_else(|| OwnerError::NotGranted(Role::ram()))?;
        let ram = Ram::map(ram, &blueprint.slots)?;
        self.disk_files = DiskFiles::of(&self.descriptors.devices)?;
        let parts = Parts::of_blueprint(&blueprint, &mut self.descriptors.devices, hosts)?;
        let devices = parts.into_devices(&blueprint, hosts, &self.sender)?;
        self.tell_addresses(&blueprint, hosts)?;
        sandbox::lock_in();
        let mut machine = self.assemble(vm, blueprint, ram, devices)?;
        machine.load(records)?;
        self.run(machine)
    }

    /// Begins to answer what the guest will ask about its addresses, on sockets that were granted.
    pub(super) fn tell_addresses(
        &mut self,
        blueprint: &Blueprint,
        hosts: &Hosts,
    ) -> Result<(), OwnerError> {
        let interfaces = addressed(blueprint, hosts);
        self.addresses = Addresses::start(&interfaces, &mut self.descriptors.devices)?;
        Ok(())
    }

    fn read_saved(&mut self) -> Result<Saved, OwnerError> {
        let missing = || OwnerError::NotGranted(Role::records());
        let mut records = self.descriptors.records.take().ok_or_else(missing)?;
        records
            .rewind()
            .map_err(|source| OwnerError::Descriptor { role: Role::records(), source })?;
        // It ends early if there is more than any machine has.
        let records = io::BufReader::new(records.take(MAX_LENGTH));
        let saved = sandbox::parse(|| serde_json::from_reader(records));
        saved.map_err(OwnerError::Parser)?.map_err(OwnerError::Saved)
    }

    /// One path for the first start and for every reset.
    fn start(
        &mut self,
        vm: Vm,
        blueprint: Blueprint,
        ram: Ram,
        devices: Devices,
        run: bool,
    ) -> Result<Machine, OwnerError> {
        let disks = self.boot_disks(&devices);
        let mut machine = self.assemble(vm, blueprint, ram, devices)?;
        let records = self.first_records(&machine, &disks)?;
        machine.load(records)?;
        if run {
            machine.resume(false)?;
        }
        Ok(machine)
    }

    pub(super) fn assemble(
        &self,
        vm: Vm,
        blueprint: Blueprint,
        ram: Ram,
        devices: Devices,
    ) -> Result<Machine, OwnerError> {
        let console: Box<dyn Write + Send> = match &self.descriptors.console {
            Some(console) => {
                let console = console.try_clone().and_then(nonblocking);
                let role = Role::console();
                Box::new(console.map_err(|source| OwnerError::Descriptor { role, source })?)
            }
            None => Box::new(io::sink()),
        };
        let role = Role::console_input();
        let console_input = self.descriptors.console_input.as_ref().map(OwnedFd::try_clone);
        let console_input =
            console_input.transpose().map_err(|source| OwnerError::Descriptor { role, source })?;
        let (owner, extra_ports) = (self.sender.clone(), Vec::new());
        let lent = Lent { vm, console, console_input, owner, devices, extra_ports };
        Ok(Machine::assemble(blueprint, ram, lent)?)
    }

    /// What was granted to be booted, if anything was.
    pub(super) fn boot_source(&self) -> Result<Option<BootSource>, OwnerError> {
        let Some(kernel) = &self.descriptors.kernel else { return Ok(None) };
        let clone = |file: &File, role: Role| {
            file.try_clone().map_err(|source| OwnerError::Descriptor { role, source })
        };
        Ok(Some(BootSource {
            kernel: clone(kernel, Role::kernel())?,
            initrd: match &self.descriptors.initrd {
                Some(initrd) => Some(clone(initrd, Role::initrd())?),
                None => None,
            },
            command_line: self.command_line.clone(),
        }))
    }

    pub(super) fn vm(&self) -> Result<Vm, OwnerError> {
        let kvm = self.descriptors.kvm.try_clone();
        let kvm = kvm.map_err(|source| OwnerError::Descriptor { role: Role::kvm(), source })?;
        Ok(Vm::new(kvm).map_err(MachineError::Kvm)?)
    }

    pub(super) fn run(&mut self, mut machine: Machine) -> Result<End, OwnerError> {
        sandbox::trim_heap();
        loop {
            let Some(input) = self.next_input(&machine) else {
                return Ok(End {
                    reason: EndReason::Killed,
                    detail: "nobody is left to ask".into(),
                });
            };
            let verdict = match input {
                Input::Vcpu { index, notice: Notice::Effect(effect), .. } => {
                    self.effect(&mut machine, index, effect)
                }
                Input::Vcpu { index, notice, .. } => ended(index, &notice),
                Input::DiskFailed { disk, failure } => {
                    self.disk_failed(&mut machine, disk, &failure);
                    Verdict::GoOn
                }
                Input::Connecting { ticket, port } => {
                    self.connecting(&machine, ticket, port);
                    Verdict::GoOn
                }
                Input::Broken(detail) => broken(detail),
                Input::Request(asked) => self.request(&mut machine, asked),
            };
            match verdict {
                Verdict::GoOn => {}
                Verdict::End(end) => {
                    if machine.ram().is_broken() {
                        // Some of its threads wait for memory that never comes; they end with the process.
                        std::mem::forget(machine);
                    }
                    return Ok(end);
                }
                Verdict::Reset => match self.reset(machine) {
                    Ok(next) => {
                        machine = next;
                        sandbox::trim_heap();
                    }
                    Err(error) => {
                        let detail = format!("it cannot be reset: {}", chain(&error));
                        return Ok(End { reason: EndReason::InternalError, detail });
                    }
                },
            }
        }
    }

    /// Waits for the next input, if there can be one, and lets the platform tick meanwhile.
    ///
    /// The machine is looked at before each wait, so whatever changed with the last input (a machine that was loaded,
    /// resumed or reset, an alarm that was set) is taken into account. A machine that is stopped does not tick: what
    /// becomes due is found when it is resumed.
    fn next_input(&self, machine: &Machine) -> Option<Input> {
        self.addresses.follow(machine.is_running());
        loop {
            let wait = if machine.is_running() { machine.platform().tick() } else { None };
            let Some(wait) = wait else { return self.inputs.recv().ok() };
            match self.inputs.recv_timeout(wait) {
                Ok(input) => return Some(input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn effect(&self, machine: &mut Machine, index: usize, effect: Effect) -> Verdict {
        let end = |reason| Verdict::End(End { reason, detail: String::new() });
        match effect {
            Effect::Reset => Verdict::Reset,
            Effect::PowerOff => end(EndReason::PoweredOff),
            // Comes with registers, as an end.
            Effect::Panicked => end(EndReason::Panicked),
            Effect::CrashLoaded => {
                if !self.crash_told.replace(true) {
                    self.tell(Event::CrashLoaded);
                }
                Verdict::GoOn
            }
            // The next wait takes it into account.
            Effect::Rearm => Verdict::GoOn,
            // There is nothing yet that could be let go.
            Effect::None | Effect::Eject { .. } => Verdict::GoOn,
            Effect::Activate { .. } | Effect::Deactivate { .. } | Effect::MoveBars { .. } => {
                match machine.carry_out(effect, EFFECT_LIMIT) {
                    Ok(()) => Verdict::GoOn,
                    Err(
                        MachineError::Functions(FunctionError::Worker(_))
                        | MachineError::Vcpu(VcpuError::Deadline { .. }),
                    ) => {
                        // The disk is slow, and the driver waits; or a vCPU does not get to run, and those that have
                        // parked stay so: try again, after what else there is to do.
                        let notice = Notice::Effect(effect);
                        let ticket = Ticket::default();
                        let _ = self.sender.send(Input::Vcpu { index, notice, ticket });
                        Verdict::GoOn
                    }
                    Err(error) => broken(chain(&error)),
                }
            }
        }
    }

    /// The request is held, whatever comes of this: the guest waits for it.
    fn disk_failed(&self, machine: &mut Machine, disk: String, failure: &DiskFailure) {
        if machine.is_running() {
            // If it does not stop, the event says so.
            let _ = machine.stop(STOP_LIMIT);
        }
        let system = failure.number.map(io::Error::from_raw_os_error);
        self.tell(Event::DiskFailed {
            disk,
            operation: failure.operation.into(),
            error: system.map_or_else(|| "short transfer".into(), |error| error.to_string()),
            paused: !machine.is_running(),
        });
    }

    /// Asks the peer. One that does not listen has refused.
    fn connecting(&self, machine: &Machine, ticket: u64, port: u32) {
        let was_told = self.tell(Event::Connecting { ticket, port });
        if let Some(sockets) = machine.sockets().filter(|_| !was_told) {
            // Without an answer it is refused later.
            let _ = sockets.refuse(ticket);
        }
    }

    /// Nothing of the old machine survives but its blueprint and its emptied memory.
    fn reset(&mut self, machine: Machine) -> Result<Machine, OwnerError> {
        let blueprint = machine.blueprint().clone();
        // A pause may have come just behind the guest's wish; then the new machine is the one that is paused.
        let run = machine.is_running();
        let (ram, devices) = machine.take_down(RESET_LIMIT)?;
        // What the old machine still had to say is about one that is gone; requests are not.
        let kept: Vec<Input> =
            self.inputs.try_iter().filter(|input| matches!(input, Input::Request(_))).collect();
        kept.into_iter().for_each(|input| drop(self.sender.send(input)));
        ram.empty()?;
        self.resets += 1;
        let machine = self.start(self.vm()?, blueprint, ram, devices, run)?;
        self.crash_told.set(false);
        self.tell(Event::Reset);
        self.tell_found();
        Ok(machine)
    }

    fn request(&self, machine: &mut Machine, asked: Asked) -> Verdict {
        let Asked { request, granted, reply: answer } = asked;
        let mut given = Vec::new();
        let reply = match request {
            Request::Boot { .. } | Request::Load { .. } | Request::Restore { .. } => {
                refused("the machine is started already")
            }
            Request::Info => Reply::Info { info: self.info(machine) },
            Request::Counters => {
                let mut counters = counters(machine, self.events_dropped.get());
                self.addresses.count(&mut counters);
                Reply::Counters { counters }
            }
            Request::Pause if !machine.is_running() => Reply::Done,
            Request::Pause => done(machine.stop(STOP_LIMIT)),
            Request::Resume if machine.is_running() => Reply::Done,
            Request::Resume => {
                let advance = self.advance.take();
                let resumed = machine.resume(advance);
                // Refused, it can be tried again.
                self.advance.set(advance && resumed.is_err());
                done(resumed)
            }
            Request::PowerButton => {
                machine.platform().acpi.press_power_button();
                Reply::Done
            }
            Request::Save | Request::Snapshot if machine.is_running() => refused("pause it first"),
            Request::Snapshot => done(self.snapshot(machine, &granted)),
            Request::Save => match self.save(machine) {
                Ok(descriptors) => {
                    given = descriptors;
                    Reply::Done
                }
                Err(error) => refused(&chain(&error)),
            },
            Request::SetBalloon { bytes } => done(peer::set_balloon(machine, bytes)),
            Request::PollMemory { seconds } => done(peer::poll_memory(machine, seconds)),
            Request::Memory => match machine.memory() {
                Ok(memory) => Reply::Memory { memory },
                Err(error) => refused(&chain(&error)),
            },
            Request::Attach { port } => done(peer::attach(machine, port, granted)),
            Request::Connect { port } => done(peer::connect(machine, port, granted)),
            Request::GrantConnection { ticket } => done(peer::grant(machine, ticket, granted)),
            Request::RefuseConnection { ticket } => done(peer::refuse(machine, ticket)),
            Request::Kill => {
                let _ = answer.send((Reply::Done, given));
                return Verdict::End(End { reason: EndReason::Killed, detail: String::new() });
            }
        };
        // A peer that is gone does not wait for it.
        let _ = answer.send((reply, given));
        Verdict::GoOn
    }

    fn save(&self, machine: &Machine) -> Result<Vec<(Role, OwnedFd)>, OwnerError> {
        machine.ram().finish_filling(FILL_LIMIT)?;
        let (blueprint, records) = (machine.blueprint().clone(), machine.save()?);
        let saved = Saved {
            blueprint,
            command_line: self.command_line.clone(),
            boot_order: self.boot_order.clone(),
            found: self.found.clone(),
            records,
        };
        let unusable = |source| OwnerError::Descriptor { role: Role::records(), source };
        let file = memfd_create("records", MFdFlags::MFD_CLOEXEC);
        let mut file = File::from(file.map_err(|error| unusable(error.into()))?);
        serde_json::to_writer(io::BufWriter::new(&mut file), &saved).map_err(OwnerError::Saved)?;
        let ram = machine.ram().file().try_clone();
        let ram = ram.map_err(|source| OwnerError::Descriptor { role: Role::ram(), source })?;
        let mut given = vec![(Role::records(), file.into()), (Role::ram(), ram.into())];
        if let Some(BootSource { kernel, initrd, .. }) = self.boot_source()? {
            given.push((Role::kernel(), kernel.into()));
            given.extend(initrd.map(|initrd| (Role::initrd(), initrd.into())));
        }
        Ok(given)
    }

    fn info(&self, machine: &Machine) -> Info {
        let blueprint = machine.blueprint();
        Info {
            machine_version: blueprint.version,
            state: if machine.is_running() { RunState::Running } else { RunState::Paused },
            vcpus: u32::try_from(blueprint.vcpus.len()).unwrap_or(u32::MAX),
            memory: blueprint.slots.iter().map(|slot| slot.size).sum(),
            resets: self.resets,
            open_ports: peer::open_ports(machine),
            button_waits: machine.platform().acpi.power_button_waits(),
            boot: Some(self.found.clone().unwrap_or(BootOrigin::Kernel)),
        }
    }
}

fn ended(index: usize, notice: &Notice) -> Verdict {
    let reason = match notice {
        Notice::Ended { cause: EndCause::TripleFault, .. } => EndReason::TripleFault,
        Notice::Ended { cause: EndCause::Panicked, .. } => EndReason::Panicked,
        _ => EndReason::InternalError,
    };
    Verdict::End(End { reason, detail: format!("vCPU {index}: {}", notice.describe()) })
}

fn broken(detail: String) -> Verdict {
    Verdict::End(End { reason: EndReason::InternalError, detail })
}

fn spec_of(description: &MachineDescription, parts: &Parts) -> MachineSpec {
    let MachineDescription { memory, sockets, cores, threads, uuid, serial, .. } = description;
    MachineSpec {
        memory: *memory,
        topology: Topology { sockets: *sockets, cores: *cores, threads: *threads },
        identity: Identification { uuid: *uuid, serial: serial.clone() },
        devices: parts.blueprints(description),
    }
}

fn counters(machine: &Machine, events_dropped: u64) -> Counters {
    let counted = machine.counters();
    let mut counters = Counters {
        port_exits: counted.port.load(Ordering::Relaxed),
        memory_exits: counted.memory.load(Ordering::Relaxed),
        kicks: counted.kicked.load(Ordering::Relaxed),
        console_bytes_dropped: machine.platform().serial.dropped(),
        events_dropped,
        cpu: machine.cpu_counters(),
        fill: machine.ram().fill_counters(),
        huge_bytes: machine.ram().huge_bytes(),
        ..Counters::default()
    };
    machine.count_devices(&mut counters);
    counters
}

fn done<E: std::error::Error>(outcome: Result<(), E>) -> Reply {
    match outcome {
        Ok(()) => Reply::Done,
        Err(error) => refused(&chain(&error)),
    }
}

fn refused(reason: &str) -> Reply {
    Reply::Refused { reason: reason.into() }
}

/// An error with all its causes, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}
