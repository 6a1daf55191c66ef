//! Guests on Corten's own machine, driven by a test as its owner.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use corten_devices::{Effect, Range, Records, Registers, read_nothing};
use corten_microguest::protocol::RESULT_PORT;
use corten_microguest::{ELF, Event, ResultPort};
use corten_vmm::arch::x86_64::boot::BootSource;
use corten_vmm::arch::x86_64::layout;
use corten_vmm::arch::x86_64::topology::Topology;
use corten_vmm::kvm::Vm;
use corten_vmm::machine::{
    Blueprint, Devices, Identification, Input, Lent, Machine, MachineSpec, Notice, host_processor,
    plan,
};
use corten_vmm::ram::Ram;
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::host;

/// A machine with everything a test wants to hear from it.
pub struct TestMachine {
    /// The machine.
    pub machine: Machine,
    /// What its vCPUs tell.
    pub notices: Receiver<Input>,
    /// What a microguest in it reports.
    pub reports: Receiver<Event>,
    /// Half a report may be in it when the machine stops: it goes along to the next one.
    port: Arc<Reports>,
    /// What it wrote to its serial port.
    pub console: Console,
}

/// Text that a guest wrote.
#[derive(Clone, Debug, Default)]
pub struct Console(Arc<Mutex<Vec<u8>>>);

impl Console {
    /// All of it so far.
    pub fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The port on which a microguest reports.
struct Reports {
    port: Mutex<ResultPort>,
    listener: Mutex<Sender<Event>>,
}

impl Registers for Reports {
    fn read(&self, _offset: u64, data: &mut [u8]) {
        read_nothing(data);
    }

    fn write(&self, _offset: u64, data: &[u8]) -> Effect {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        port.take(data);
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = port.next_event() {
            // A test that has seen enough does not listen any more.
            let _ = listener.send(event);
        }
        Effect::None
    }
}

/// One processor and 32 MiB.
pub fn small() -> MachineSpec {
    MachineSpec {
        memory: 32 << 20,
        topology: Topology { sockets: 1, cores: 1, threads: 1 },
        identity: Identification::default(),
        devices: Vec::new(),
    }
}

/// The blueprint of `spec` on this host.
pub fn blueprint(spec: &MachineSpec) -> Result<Blueprint> {
    Ok(plan(spec, &host_processor(&vm()?)?)?)
}

/// A boot source that starts the microguest with these commands.
pub fn microguest(commands: &str) -> Result<BootSource> {
    let mut kernel = File::from(memfd_create("microguest", MFdFlags::MFD_CLOEXEC)?);
    kernel.write_all(ELF)?;
    Ok(BootSource { kernel, initrd: None, command_line: commands.into() })
}

impl TestMachine {
    /// An assembled machine over this memory.
    pub fn assemble(blueprint: Blueprint, ram: Ram) -> Result<Self> {
        let (listener, reports) = channel();
        let port = Arc::new(Reports { port: Mutex::default(), listener: Mutex::new(listener) });
        Self::assemble_with(blueprint, ram, (port, reports))
    }

    fn assemble_with(
        blueprint: Blueprint,
        ram: Ram,
        (port, reports): (Arc<Reports>, Receiver<Event>),
    ) -> Result<Self> {
        let (owner, notices) = channel();
        let console = Console::default();
        let lent = Lent {
            console_input: None,
            vm: vm()?,
            console: Box::new(console.clone()),
            owner,
            devices: Devices::new(),
            extra_ports: vec![(Range::new(u64::from(RESULT_PORT), 4), port.clone())],
        };
        let machine = Machine::assemble(blueprint, ram, lent)?;
        Ok(Self { machine, notices, reports, port, console })
    }

    /// A machine that runs what `source` boots.
    pub fn boot(spec: &MachineSpec, source: &mut BootSource) -> Result<Self> {
        let blueprint = blueprint(spec)?;
        let ram = Ram::new(&blueprint.slots)?;
        let mut machine = Self::assemble(blueprint, ram)?;
        let records = machine.machine.first_records(source)?;
        machine.machine.load(records)?;
        machine.machine.resume(false)?;
        Ok(machine)
    }

    /// Stops it, saves it, takes it down, and makes another one of the records over the same memory.
    pub fn reborn(mut self, limit: Duration) -> Result<(Self, Records)> {
        self.machine.stop(limit)?;
        let records = self.machine.save()?;
        let blueprint = self.machine.blueprint().clone();
        let (ram, _) = self.machine.take_down(limit)?;
        let mut next = Self::assemble_with(blueprint, ram, (self.port, self.reports))?;
        next.machine.load(records.clone())?;
        Ok((next, records))
    }

    /// The next report of the microguest.
    pub fn next_report(&self, limit: Duration) -> Result<Event> {
        if let Ok(event) = self.reports.recv_timeout(limit) {
            return Ok(event);
        }
        let notices: Vec<String> =
            self.notices.try_iter().map(|input| format!("{input:?}")).collect();
        bail!("no report; notices {notices:?}; console {:?}", self.console.text())
    }

    /// The next thing that a vCPU tells.
    pub fn next_notice(&self, limit: Duration) -> Result<Notice> {
        let console = || format!("no notice; console {:?}", self.console.text());
        match self.notices.recv_timeout(limit).with_context(console)? {
            Input::Vcpu { notice, .. } => Ok(notice),
            other => bail!("not expected in this test: {other:?}"),
        }
    }
}

fn vm() -> Result<Vm> {
    Ok(Vm::new(host::kvm_descriptor()?)?)
}

/// Where low memory ends, for tests that want a guest with a hole.
pub const LOW_RAM_END: u64 = layout::LOW_RAM_END.0;
