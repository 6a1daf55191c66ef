//! The machine: assembled from a blueprint and descriptors, it is paused until it is resumed.
//!
//! Boot, restore and reset are one path: [`Machine::assemble`], [`Machine::load`], [`Machine::resume`]. A boot's
//! records are those of a machine that was just assembled, with the kernel's first instruction in place. The order of
//! things stands in [`order`].

mod blueprint;
mod booting;
mod clock;
mod devices;
mod functions;
mod keyboard;
pub mod order;
mod owner;
mod peer;
mod platform;
mod routes;
mod snapshots;
mod vcpus;
mod workers;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use corten_devices::block::DiskFailure;
use corten_devices::{BusError, Effect, RecordError, Records, Registers, State};
use corten_devices::{console, vsock};
use corten_link::{Counters, CpuCounters, Memory};
use kvm_bindings::{
    KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, kvm_cpuid_entry2,
    kvm_irqchip, kvm_regs, kvm_sregs,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};

use crate::arch::x86_64::boot::{self, BootError, BootSource, StartRegisters};
use crate::arch::x86_64::compatibility::{self, Incompatible};
use crate::arch::x86_64::vcpu_state::{StateShape, VcpuState, VcpuStateError, VcpuTime};
use crate::arch::x86_64::{cpuid, layout};
use crate::kvm::{Kick, KvmError, KvmPages, Vm, cpu_time};
use crate::ram::{GuestMemory, Ram, RamError};

pub use blueprint::{
    BalloonBlueprint, Blueprint, ConsoleBlueprint, CpuidLeaf, DeviceBlueprint, DiskBlueprint,
    Firmware, FunctionBlueprint, HostProcessor, Identification, MACHINE_VERSION, MachineSpec,
    NetworkBlueprint, PciBlueprint, PlanError, VcpuBlueprint, VsockBlueprint, plan,
};
use clock::ClockState;
pub use devices::{AnyDevice, DeviceSetupError, Devices, Hosts};
pub use functions::FunctionError;
use functions::Functions;
use keyboard::Keyboard;
pub use keyboard::KeyboardError;
pub use owner::{Asked, Descriptors, End, Owner, OwnerError, Saved, chain};
pub use platform::{Platform, PlatformError};
pub use snapshots::SnapshotError;
use vcpus::VcpuThread;
pub use vcpus::{Buses, EndCause, ExitCounters, Ticket, VcpuError};
pub use workers::WorkerError;

const CONTROLLERS: [u32; 3] = [KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_IRQCHIP_IOAPIC];

/// What reaches the owner of a machine.
#[derive(Debug)]
pub enum Input {
    /// From a vCPU.
    Vcpu {
        /// Which one.
        index: usize,
        /// What.
        notice: Notice,
        /// Counts it until it is dealt with.
        ticket: Ticket,
    },
    /// A disk holds a request that the host failed.
    DiskFailed {
        /// Name of the disk.
        disk: String,
        /// What failed.
        failure: DiskFailure,
    },
    /// The guest wants to connect to a port of the host's.
    Connecting {
        /// What the answer has to carry.
        ticket: u64,
        /// The port.
        port: u32,
    },
    /// The machine cannot go on.
    Broken(String),
    /// From the control peer.
    Request(Asked),
}

/// What a vCPU tells.
#[derive(Debug)]
pub enum Notice {
    /// The guest wants something of the machine.
    Effect(Effect),
    /// The guest cannot go on.
    Ended {
        /// Why.
        cause: EndCause,
        /// Where it was.
        registers: Option<Box<kvm_regs>>,
    },
}

impl Notice {
    /// Where the guest was, in words.
    pub fn describe(&self) -> String {
        match self {
            Self::Effect(effect) => format!("{effect:?}"),
            Self::Ended { cause, registers } => {
                let place = registers.as_deref().map(vcpus::describe_registers);
                format!("{cause:?}; {}", place.unwrap_or_default())
            }
        }
    }
}

/// What the host lends: descriptors and what else is no part of the guest's machine.
pub struct Lent {
    /// An empty VM.
    pub vm: Vm,
    /// Where the serial console goes. A write that cannot succeed at once must fail.
    pub console: Box<dyn Write + Send>,
    /// Where its input comes from: a socket, or nothing.
    pub console_input: Option<OwnedFd>,
    /// Where notices go.
    pub owner: Sender<Input>,
    /// What the functions on its PCI bus are made of.
    pub devices: Devices,
    /// Devices on ports that the machine knows nothing of.
    pub extra_ports: Vec<(corten_devices::Range, Arc<dyn Registers>)>,
}

/// Why a machine cannot be made, saved or resumed.
#[derive(Debug, Error)]
pub enum MachineError {
    /// A blueprint of another release.
    #[error("the machine is of version {0}, this build runs version {MACHINE_VERSION}")]
    Version(u16),
    /// The guest's processor is more than this host has.
    #[error(transparent)]
    Processor(#[from] Incompatible),
    /// Guest memory.
    #[error("cannot make guest memory")]
    Ram(#[from] RamError),
    /// KVM refused.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// A device.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// Input of the console.
    #[error(transparent)]
    Keyboard(#[from] KeyboardError),
    /// PCI functions.
    #[error(transparent)]
    Functions(#[from] FunctionError),
    /// Two devices at one place.
    #[error("cannot put a device on the bus")]
    Bus(#[from] BusError),
    /// A vCPU's thread.
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
    /// A vCPU's state.
    #[error("the state of vCPU {index} cannot be moved")]
    VcpuState {
        /// Which one.
        index: usize,
        /// Why.
        #[source]
        source: VcpuStateError,
    },
    /// Saved state.
    #[error("the saved state does not fit this machine")]
    Record(#[from] RecordError),
    /// Tables do not fit into guest memory.
    #[error("guest memory is too small for the tables that describe the machine")]
    Firmware(#[source] GuestMemoryError),
    /// Nothing to boot.
    #[error("cannot boot")]
    Boot(#[from] BootError),
}

/// State of the interrupt controllers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ControllerState {
    controllers: Vec<kvm_irqchip>,
}

impl State for ControllerState {
    const KIND: &'static str = "interrupt-controllers";
    const VERSION: u16 = 1;
}

/// What a resume still has to write into a vCPU.
#[derive(Clone)]
enum Pending {
    /// All of its MSRs and events: the vCPU was loaded.
    State(Arc<VcpuState>),
    /// Its timer: the vCPU was stopped.
    Time(VcpuTime),
}

/// A machine that exists in KVM. Its owner is the one thread that calls it.
pub struct Machine {
    // Threads go before the VM whose vCPUs they hold.
    vcpus: Vec<VcpuThread>,
    pending: Vec<Pending>,
    stopped_at: Option<ClockState>,
    running: bool,
    vm: Arc<Vm>,
    shape: StateShape,
    platform: Platform,
    keyboard: Keyboard,
    functions: Functions,
    /// What answers at a fixed place.
    fixed: Buses,
    /// That, and BARs where the guest has them.
    buses: Arc<Buses>,
    counters: Arc<ExitCounters>,
    blueprint: Blueprint,
    ram: Ram,
}

impl Machine {
    /// Makes the machine of `blueprint` over `ram`. It is stopped, and has nothing in it.
    pub fn assemble(blueprint: Blueprint, ram: Ram, lent: Lent) -> Result<Self, MachineError> {
        if blueprint.version != MACHINE_VERSION {
            return Err(MachineError::Version(blueprint.version));
        }
        Kick::prepare().map_err(|source| VcpuError::Thread { index: 0, source })?;
        let pages = KvmPages { identity_map: layout::KVM_IDENTITY_MAP, tss: layout::KVM_TSS };
        let vm = Arc::new(lent.vm);
        vm.set_memory(&ram)?;
        vm.create_controllers(pages, layout::LINES)?;
        let platform = Platform::new(&vm, &ram, lent.console)?;
        let keyboard = Keyboard::new(&platform.serial, lent.console_input)?;
        let processors = blueprint.vcpus.len();
        let functions =
            Functions::new(&blueprint.pci, processors, (&vm, &ram), lent.devices, &lent.owner)?;
        let mut fixed = Buses::default();
        platform.attach(&mut fixed)?;
        functions.attach(&mut fixed)?;
        for (range, device) in lent.extra_ports {
            fixed.ports.insert(range, device)?;
        }
        let counters = Arc::new(ExitCounters::default());
        let listed = vm.msr_indices()?;
        let mut shape = None;
        let mut vcpus = Vec::new();
        for (index, plan) in blueprint.vcpus.iter().enumerate() {
            let vcpu = vm.create_vcpu(plan.apic_id)?;
            let leaves: Vec<kvm_cpuid_entry2> = plan.cpuid.iter().map(Into::into).collect();
            vcpu.set_cpuid(&leaves)?;
            vcpu.set_tsc_khz(blueprint.tsc_khz)?;
            shape.get_or_insert_with(|| StateShape::of(&vcpu, listed.clone(), vm.xsave_size()));
            vcpus.push(VcpuThread::start(index, vcpu, lent.owner.clone(), Arc::clone(&counters))?);
        }
        Ok(Self {
            vcpus,
            pending: Vec::new(),
            stopped_at: None,
            running: false,
            vm,
            shape: shape.unwrap_or_default(),
            platform,
            keyboard,
            functions,
            fixed,
            buses: Arc::default(),
            counters,
            blueprint,
            ram,
        })
    }

    /// Puts a kernel into the machine that was just assembled, and gives the records of a machine about to start it.
    pub fn first_records(&self, source: &mut BootSource) -> Result<Records, MachineError> {
        let rsdp = self.blueprint.rsdp();
        self.records_at(|memory, sregs| boot::load(memory, source, rsdp, sregs))
    }

    /// Puts a text into the machine that was just assembled, and gives the records of one about to show it on its serial
    /// port and to wait for the power button.
    pub fn notice_records(&self, text: &str) -> Result<Records, MachineError> {
        self.records_at(|memory, sregs| boot::notice(memory, text, sregs))
    }

    fn records_at(
        &self,
        start: impl FnOnce(&GuestMemory, kvm_sregs) -> Result<StartRegisters, BootError>,
    ) -> Result<Records, MachineError> {
        let memory = self.ram.memory();
        for firmware in &self.blueprint.firmware {
            let address = GuestAddress(firmware.address);
            memory.write_slice(&firmware.bytes, address).map_err(MachineError::Firmware)?;
        }
        self.platform.renew_generation_id()?;
        let mut records = Records::default();
        self.save_devices(&mut records)?;
        records.put("", &self.controllers()?)?;
        let mut start = Some(start);
        for (index, vcpu) in self.vcpus.iter().enumerate() {
            let mut state = self.vcpu_state(index, vcpu)?;
            state.prepare();
            // The first one boots, the others wait for it.
            if let Some(start) = start.take() {
                state.start_at(&start(memory, *state.sregs())?);
            }
            records.put(&index.to_string(), &state)?;
        }
        records.put("", &self.clock_now()?)?;
        Ok(records)
    }

    /// Loads records into a machine that was just assembled.
    pub fn load(&mut self, mut records: Records) -> Result<(), MachineError> {
        for step in order::LOAD {
            match step.action {
                order::Load::VcpuRegisters => self.load_vcpus(&mut records)?,
                order::Load::InterruptControllers => {
                    let state: ControllerState = records.take("")?;
                    state
                        .controllers
                        .iter()
                        .try_for_each(|chip| self.vm.set_interrupt_controller(chip))?;
                }
                order::Load::Devices => {
                    self.platform.load(&mut records)?;
                    self.functions.load(&mut records)?;
                }
                order::Load::Clock => self.stopped_at = Some(records.take("")?),
            }
        }
        Ok(records.finish()?)
    }

    fn load_vcpus(&mut self, records: &mut Records) -> Result<(), MachineError> {
        self.pending.clear();
        for (index, vcpu) in self.vcpus.iter().enumerate() {
            let state: Arc<VcpuState> = Arc::new(records.take(&index.to_string())?);
            let shape = self.shape.clone();
            let (state, outcome) = vcpu.call(move |vcpu| {
                let outcome = state.load_registers(vcpu, &shape);
                (state, outcome)
            })?;
            outcome.map_err(|source| MachineError::VcpuState { index, source })?;
            self.pending.push(Pending::State(state));
        }
        Ok(())
    }

    /// Lets the guest run. `advance`: its time goes on as if it had never stopped; otherwise from where it stopped.
    pub fn resume(&mut self, advance: bool) -> Result<(), MachineError> {
        for step in order::RESUME {
            match step.action {
                order::Resume::LockDisks => self.functions.lock()?,
                order::Resume::SetClock => {
                    if let Some(saved) = &self.stopped_at {
                        self.vm.set_clock(&saved.clock, advance)?;
                    }
                }
                order::Resume::SetTscOffset => self.set_tsc_offsets()?,
                order::Resume::LoadMsrsAndEvents => self.load_msrs_and_events()?,
                order::Resume::StartDevices => {
                    self.place_bars()?;
                    self.functions.start()?;
                    self.keyboard.start();
                }
                order::Resume::AnnounceNetworks => {
                    if self.pending.iter().any(|pending| matches!(pending, Pending::State(_))) {
                        self.functions.announce();
                    }
                }
                order::Resume::AnnounceStop => self.announce_stop()?,
                order::Resume::FillMemory => self.ram.begin_filling()?,
                order::Resume::RunVcpus => {
                    self.running = true;
                    self.vcpus.iter().try_for_each(|vcpu| vcpu.run(&self.buses))?;
                }
            }
        }
        self.stopped_at = None;
        self.pending.clear();
        Ok(())
    }

    /// One offset for all, that of the first vCPU: counters that a guest made differ between its vCPUs are equal again.
    fn set_tsc_offsets(&self) -> Result<(), MachineError> {
        let (Some(saved), Some(first)) = (&self.stopped_at, self.pending.first()) else {
            return Ok(());
        };
        let old = match first {
            Pending::State(state) => state.tsc_offset(),
            Pending::Time(time) => time.tsc_offset,
        };
        let now = self.vm.clock()?;
        let Some(offset) = old.and_then(|old| clock::offset_after(old, saved, &now)) else {
            return Ok(());
        };
        for vcpu in &self.vcpus {
            vcpu.call(move |vcpu| vcpu.set_tsc_offset(offset))??;
        }
        Ok(())
    }

    fn load_msrs_and_events(&self) -> Result<(), MachineError> {
        // Kept until all went well: a resume that was refused can be tried again, and the machine saved.
        for (index, (vcpu, pending)) in self.vcpus.iter().zip(self.pending.clone()).enumerate() {
            let outcome = vcpu.call(move |vcpu| match pending {
                Pending::State(state) => state.load_msrs_and_events(vcpu),
                Pending::Time(time) => time.arm(vcpu),
            })?;
            outcome.map_err(|source| MachineError::VcpuState { index, source })?;
        }
        Ok(())
    }

    fn announce_stop(&self) -> Result<(), MachineError> {
        for vcpu in &self.vcpus {
            vcpu.call(|vcpu| vcpu.announce_stop())??;
        }
        Ok(())
    }

    /// Stops the guest. If a vCPU or a device does not stop in time, all go on and the error says which.
    pub fn stop(&mut self, limit: Duration) -> Result<(), MachineError> {
        let stopped = self.walk_stop(limit);
        if stopped.is_err() {
            self.go_on()?;
        }
        stopped
    }

    fn walk_stop(&mut self, limit: Duration) -> Result<(), MachineError> {
        for step in order::STOP {
            match step.action {
                order::Stop::ParkVcpus => {
                    self.park_vcpus(limit)?;
                    self.running = false;
                }
                order::Stop::ReadClock => {
                    self.stopped_at = Some(self.clock_now()?);
                    self.pending = self.read_times()?;
                }
                order::Stop::DrainDevices => {
                    self.keyboard.stop(limit)?;
                    self.functions.stop(limit)?;
                }
            }
        }
        Ok(())
    }

    /// After a stop that failed: nothing was changed yet.
    fn go_on(&mut self) -> Result<(), MachineError> {
        self.stopped_at = None;
        self.pending.clear();
        self.running = true;
        // One of them may have moved a BAR as its last access.
        self.place_bars()?;
        self.keyboard.start();
        Ok(self.vcpus.iter().try_for_each(|vcpu| vcpu.run(&self.buses))?)
    }

    /// Carries out what a guest's access asked of the machine's devices; does nothing for other effects.
    pub fn carry_out(&mut self, effect: Effect, limit: Duration) -> Result<(), MachineError> {
        match effect {
            // A machine that is stopped starts and places everything when it is resumed.
            _ if !self.running => {}
            Effect::Activate { slot } => self.functions.activate(slot),
            Effect::Deactivate { slot } => self.functions.deactivate(slot, limit)?,
            Effect::MoveBars { .. } => {
                // All of them: another one may be told by memory, and look before its next exit.
                self.park_vcpus(limit)?;
                self.place_bars()?;
                self.vcpus.iter().try_for_each(|vcpu| vcpu.run(&self.buses))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn place_bars(&mut self) -> Result<(), MachineError> {
        self.buses = Arc::new(self.functions.place_bars(&self.fixed, &self.vm)?);
        Ok(())
    }

    fn park_vcpus(&self, limit: Duration) -> Result<(), MachineError> {
        let deadline = Instant::now() + limit;
        let asked: Vec<_> =
            self.vcpus.iter().map(VcpuThread::ask_to_park).collect::<Result<_, _>>()?;
        for (vcpu, parked) in self.vcpus.iter().zip(&asked) {
            vcpu.wait_parked(parked, deadline, limit)?;
        }
        Ok(())
    }

    fn read_times(&self) -> Result<Vec<Pending>, MachineError> {
        let mut times = Vec::new();
        for (index, vcpu) in self.vcpus.iter().enumerate() {
            let time = vcpu.call(|vcpu| VcpuTime::read(vcpu))?;
            let time = time.map_err(|source| MachineError::VcpuState { index, source })?;
            times.push(Pending::Time(time));
        }
        Ok(times)
    }

    /// The records of the stopped machine.
    pub fn save(&self) -> Result<Records, MachineError> {
        let mut records = Records::default();
        for step in order::SAVE {
            match step.action {
                order::Save::Devices => self.save_devices(&mut records)?,
                order::Save::InterruptControllers => records.put("", &self.controllers()?)?,
                order::Save::Vcpus => {
                    for (index, vcpu) in self.vcpus.iter().enumerate() {
                        let instance = index.to_string();
                        match self.pending.get(index) {
                            // Loaded and not resumed: KVM has only a part of it yet.
                            Some(Pending::State(state)) => records.put(&instance, &**state)?,
                            _ => records.put(&instance, &self.vcpu_state(index, vcpu)?)?,
                        }
                    }
                }
                order::Save::Clock => {
                    let clock = self.stopped_at.map_or_else(|| self.clock_now(), Ok)?;
                    records.put("", &clock)?;
                }
            }
        }
        Ok(records)
    }

    fn save_devices(&self, records: &mut Records) -> Result<(), RecordError> {
        self.platform.save(records)?;
        self.functions.save(records)
    }

    fn vcpu_state(&self, index: usize, vcpu: &VcpuThread) -> Result<VcpuState, MachineError> {
        let shape = self.shape.clone();
        let state = vcpu.call(move |vcpu| VcpuState::save(vcpu, &shape))?;
        state.map_err(|source| MachineError::VcpuState { index, source })
    }

    fn controllers(&self) -> Result<ControllerState, MachineError> {
        let controllers = CONTROLLERS
            .iter()
            .map(|chip| self.vm.interrupt_controller(*chip))
            .collect::<Result<_, _>>()?;
        Ok(ControllerState { controllers })
    }

    fn clock_now(&self) -> Result<ClockState, MachineError> {
        Ok(ClockState { clock: self.vm.clock()?, tsc_khz: self.blueprint.tsc_khz })
    }

    /// Serial port, power button and the like.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// What the guest sees.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// Guest memory.
    pub fn ram(&self) -> &Ram {
        &self.ram
    }

    /// Exits so far.
    pub fn counters(&self) -> &ExitCounters {
        &self.counters
    }

    /// What processors were used for. vCPUs that have no thread are left out.
    pub fn cpu_counters(&self) -> Option<CpuCounters> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let vcpus = (0..).zip(&self.vcpus);
        Some(CpuCounters {
            process_nanoseconds: nanoseconds(cpu_time::of_process()?),
            vcpu_nanoseconds: vcpus
                .filter_map(|(number, vcpu)| Some((number, nanoseconds(vcpu.cpu_time()?))))
                .collect(),
        })
    }

    /// Whether vCPUs were told to run.
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Adds what devices counted.
    pub fn count_devices(&self, counters: &mut Counters) {
        self.functions.count(counters);
    }

    /// How its memory is used.
    pub fn memory(&self) -> Result<Memory, MachineError> {
        let known = self.functions.memory_use();
        Ok(Memory {
            allocated: self.ram.allocated()?,
            balloon_target: known.target,
            balloon_actual: known.actual,
            guest: known.guest,
        })
    }

    /// Has the guest give up this much memory. False if there is no balloon.
    pub fn set_balloon(&self, bytes: u64) -> bool {
        self.functions.set_balloon(bytes)
    }

    /// Asks the guest for the use of its memory at this interval. False if there is no balloon.
    pub fn poll_memory(&self, interval: Option<Duration>) -> bool {
        self.functions.poll_memory(interval)
    }

    /// Where sockets for ports of its console device are handed in, if there is one.
    pub fn ports(&self) -> Option<console::HostSide> {
        self.functions.ports()
    }

    /// Where connections with its guest are handed in, if there is a socket device.
    pub fn sockets(&self) -> Option<vsock::HostSide> {
        self.functions.sockets()
    }

    /// Takes every writable disk for this machine, ahead of the resume that does it.
    pub fn lock_disks(&self) -> Result<(), MachineError> {
        Ok(self.functions.lock()?)
    }

    /// Tells the guest that it is a copy of one that may go on elsewhere, too. It does not run yet.
    pub fn renew_generation(&self, limit: Duration) -> Result<(), MachineError> {
        // Brought in first: the owner must not wait for a page that cannot be had.
        self.ram.bring_in(layout::GENERATION_ID, limit)?;
        self.platform.renew_generation_id()?;
        self.platform.acpi.generation_changed();
        Ok(())
    }

    /// Takes the machine down and gives back its memory and its devices, for another one. Fails if a device does not
    /// finish in time: what it has begun would end in that memory.
    pub fn take_down(self, limit: Duration) -> Result<(Ram, Devices), MachineError> {
        let Self { ram, vcpus, functions, keyboard, fixed, buses, running, .. } = self;
        // What is typed from now on is the next machine's.
        drop((vcpus, keyboard));
        if running {
            functions.stop(limit)?;
        }
        drop((fixed, buses));
        Ok((ram, functions.into_devices()?))
    }
}

/// The host's processor as its KVM offers it to the vCPUs of `vm`.
pub fn host_processor(vm: &Vm) -> Result<HostProcessor, MachineError> {
    let (cpuid, tsc_khz) = (vm.supported_cpuid()?, vm.tsc_khz()?);
    Ok(HostProcessor { cpuid, name: cpuid::host_name(), tsc_khz })
}

/// Whether this host can go on with the processors of `blueprint`. KVM itself takes any leaves, and a guest that uses what is
/// not there fails later, somewhere.
pub fn check_processor(vm: &Vm, blueprint: &Blueprint) -> Result<(), MachineError> {
    let host = vm.supported_cpuid()?;
    for vcpu in &blueprint.vcpus {
        let leaves: Vec<kvm_cpuid_entry2> = vcpu.cpuid.iter().map(Into::into).collect();
        compatibility::check(&leaves, &host)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a record as it was written once, and writes it again.
    fn unchanged<S: State>(golden: &str, instance: &str) {
        let mut records: Records = serde_json::from_str(golden).unwrap();
        let state: S = records.take(instance).unwrap();
        records.finish().unwrap();
        let mut again = Records::default();
        again.put(instance, &state).unwrap();
        assert_eq!(again, serde_json::from_str(golden).unwrap());
    }

    #[test]
    fn records_of_version_1_read_as_they_did() {
        unchanged::<VcpuState>(include_str!("golden/vcpu-1.json"), "0");
        unchanged::<ControllerState>(include_str!("golden/interrupt-controllers-1.json"), "");
        unchanged::<ClockState>(include_str!("golden/clock-1.json"), "");
    }
}
