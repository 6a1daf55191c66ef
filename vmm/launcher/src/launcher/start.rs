//! From the VMI that was handed over to a VM process.
//!
//! ```text
//!   start --> check --> may all claims be opened? --yes--> prepare, plan, start the VM process, lock in
//!                              |                              ^
//!                              no: shown to the agent --------+ opened up
//!                              +--> refused, or nobody answers for five minutes: not started
//! ```

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use corten_link::launcher::{Answer, ConnectedInterface, State, ToAgent};
use corten_link::{EndReason, Grant, Request, Resolver, Role, StartFault};
use corten_resources::served::Scope;
use corten_resources::types::VirtualMachineInstance;
use serde_json::{Map, Value};
use thiserror::Error;

use super::vm::{Asked, Metrics, Running};
use super::{Heeded, Launcher, NAME, network};
use crate::console::Console;
use crate::guest_agent::{KeptAgent, port_of};
use crate::log::{chain, say};
use crate::machine::{self, PlanError, Resolved};
use crate::prepare::{Closed, PodMounts, PrepareError, closed, prepare};
use crate::sandbox::{Filter, SandboxError};
use crate::stop::Stop;
use crate::termination::End;
use crate::vmm::{Vmm, VmmError};
use crate::volumes::disk_image::Scratch;
use crate::volumes::downward_metrics::{Collector, HostFacts, VmFacts};

/// The guest's address on its socket device. Each VM process has a device of its own, so that all guests may have the same.
const GUEST_CID: u32 = 3;

/// How often a guest is asked how it uses its memory, in seconds: as often as KubeVirt does.
const ASK_FOR_MEMORY_EACH: u32 = 10;

/// How long disks may wait for an agent: longer than one takes to be replaced.
const OPENED_WITHIN: Duration = Duration::from_secs(300);

/// Why a VMI that was handed over does not run.
#[derive(Debug, Error)]
enum StartError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Vmm(#[from] VmmError),
    #[error("cannot make the console")]
    Console(#[source] std::io::Error),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("{volumes} may not be opened, and the node agent refused to help: {reason}")]
    Refused { volumes: String, reason: String },
    #[error("{volumes} may not be opened, and no node agent helped within {} s", OPENED_WITHIN.as_secs())]
    Alone { volumes: String },
}

impl StartError {
    /// In one word, where a user can do something about it.
    fn fault(&self) -> Option<StartFault> {
        match self {
            Self::Plan(_) => Some(StartFault::InvalidSpec),
            Self::Prepare(error) => error.fault(),
            Self::Refused { .. } => Some(StartFault::VolumeUnusable),
            Self::Vmm(_) | Self::Console(_) | Self::Sandbox(_) | Self::Alone { .. } => None,
        }
    }
}

/// What comes with a start.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) vmi: Map<String, Value>,
    pub(super) grace_seconds: u32,
    pub(super) interfaces: BTreeMap<String, ConnectedInterface>,
    pub(super) capacities: BTreeMap<String, u64>,
    pub(super) node: Option<String>,
    pub(super) grant: Grant,
}

/// A VMI that is to be started.
#[derive(Debug)]
struct Wanted {
    vmi: VirtualMachineInstance,
    node: String,
    sources: PodMounts,
    interfaces: BTreeMap<String, ConnectedInterface>,
    grant: Grant,
}

/// One whose disks wait for an agent that opens them up.
#[derive(Debug)]
pub(super) struct Closing {
    wanted: Wanted,
    closed: Vec<Closed>,
    ticket: u64,
    until: Instant,
}

impl Closing {
    /// When nobody is waited for any longer.
    pub(super) fn deadline(&self) -> Instant {
        self.until
    }

    fn volumes(&self) -> String {
        let named =
            |closed: &Closed| format!("volume {} ({})", closed.volume, closed.path.display());
        self.closed.iter().map(named).collect::<Vec<_>>().join(", ")
    }
}

impl Launcher {
    pub(super) fn on_start(&mut self, id: u64, handed: Handed) -> Option<End> {
        let object = Value::Object(handed.vmi.clone());
        let vmi: VirtualMachineInstance = match serde_json::from_value(object) {
            Ok(vmi) => vmi,
            Err(error) => {
                self.refuse(id, format!("the object is no VirtualMachineInstance: {error}"));
                return None;
            }
        };
        match self.heeded.as_ref().map(|heeded| &heeded.uid) {
            Some(started) if *started == vmi.metadata.uid => {
                self.answer(id, Answer::Started { state: self.state });
                return None;
            }
            Some(started) => {
                let reason = format!("this launcher was started with the VMI of uid {started}");
                self.refuse(id, reason);
                return None;
            }
            None => {}
        }
        if !handed.grant.contains_key(&Role::kvm()) {
            self.refuse(id, "the descriptor kvm did not come with it".into());
            return None;
        }
        self.heeded = Some(Heeded::new(vmi.metadata.uid.clone(), &handed.vmi));
        self.stop = Stop::new(Duration::from_secs(handed.grace_seconds.into()));
        self.answer(id, Answer::Done);
        self.enter(State::Preparing);
        let sources = PodMounts {
            volumes: self.options.volumes.clone(),
            secrets: self.options.secrets.clone(),
            kernel_boot: self.options.kernel_boot.clone(),
            capacities: handed.capacities,
        };
        let (node, grant) = (handed.node.unwrap_or_default(), handed.grant);
        let interfaces = handed.interfaces;
        self.begin(Wanted { vmi, node, sources, interfaces, grant })
    }

    pub(super) fn on_dismiss(&mut self, reason: String) -> Option<End> {
        if self.heeded.is_some() {
            say(&format!(
                "the agent wants to give this launcher nothing, but it was started: {reason}"
            ));
            return None;
        }
        self.fault = Some(StartFault::Dismissed);
        Some(End { reason: EndReason::NotStarted, detail: reason })
    }

    /// Looks at the VMI, and whether its disks may be opened.
    fn begin(&mut self, wanted: Wanted) -> Option<End> {
        match machine::check(&wanted.vmi, Scope::Cluster) {
            Ok(warnings) => warnings.iter().for_each(|warning| say(&warning.to_string())),
            Err(error) => return Some(self.not_started(&wanted.vmi, &error.into())),
        }
        let closed = closed(&wanted.vmi, &wanted.sources);
        if closed.is_empty() {
            return self.launch(&wanted);
        }
        let until = Instant::now() + OPENED_WITHIN;
        let closing = Closing { wanted, closed, ticket: 0, until };
        say(&format!("{} may not be opened; the node agent is asked to help", closing.volumes()));
        self.closing = Some(closing);
        self.ask_for_disks();
        None
    }

    /// Shows the agent what it may open up. An answer to a question of before does not count.
    pub(super) fn ask_for_disks(&mut self) {
        if !self.has_agent() {
            return;
        }
        let Some(mut closing) = self.closing.take() else { return };
        closing.ticket += 1;
        let roles = closing.closed.iter().map(|closed| closed.role.clone()).collect();
        let places: Vec<BorrowedFd<'_>> =
            closing.closed.iter().map(|closed| closed.place.as_fd()).collect();
        let message = ToAgent::Unopenable { ticket: closing.ticket, roles };
        self.tell_with(&message, &places);
        self.closing = Some(closing);
    }

    pub(super) fn on_opened_up(&mut self, ticket: u64, refused: Option<String>) -> Option<End> {
        let closing = self.closing.take_if(|closing| closing.ticket == ticket)?;
        match refused {
            None => self.launch(&closing.wanted),
            Some(reason) => {
                let error = StartError::Refused { volumes: closing.volumes(), reason };
                Some(self.not_started(&closing.wanted.vmi, &error))
            }
        }
    }

    /// Ends a start that nobody has helped for too long.
    pub(super) fn give_up(&mut self, now: Instant) -> Option<End> {
        let closing = self.closing.take_if(|closing| closing.until <= now)?;
        let error = StartError::Alone { volumes: closing.volumes() };
        Some(self.not_started(&closing.wanted.vmi, &error))
    }

    fn not_started(&mut self, vmi: &VirtualMachineInstance, error: &StartError) -> End {
        self.fault = error.fault();
        let detail = format!("VMI {}: {}", name(vmi), chain(error));
        End { reason: EndReason::NotStarted, detail }
    }

    /// Starts the VM process, and locks the launcher in: it has opened all that it will ever need.
    fn launch(&mut self, wanted: &Wanted) -> Option<End> {
        match self.start(wanted) {
            Ok(running) => {
                let name = name(&wanted.vmi);
                say(&format!("VMI {name}: the VM process is {}", running.vmm.pid()));
                self.running = Some(running);
                None
            }
            Err(error) => Some(self.not_started(&wanted.vmi, &error)),
        }
    }

    /// Makes the machine: from here on everything is a descriptor.
    fn start(&self, wanted: &Wanted) -> Result<Running, StartError> {
        let Wanted { vmi, node, sources, interfaces, grant } = wanted;
        let scratch = Scratch::Nameless(self.options.scratch.clone());
        let mut prepared = prepare(vmi, sources, &scratch)?;
        // A Pod is tried once, and its claim is its own.
        prepared.made.keep();
        prepared.warnings.iter().for_each(|warning| say(warning));
        let resolved = Resolved {
            disks: prepared.disks.clone(),
            interfaces: network::places(vmi, interfaces.clone(), Resolver::of_host()),
            guest_cid: Some(GUEST_CID),
        };
        let plan = machine::plan(vmi, &resolved)?;
        // What is not to be logged goes nowhere: it is nobody's business then.
        let console = plan.log_serial_console.then(Console::new).transpose();
        let (console, output) = console.map_err(StartError::Console)?.unzip();
        let granted = grant.iter().map(|(role, fd)| (role.clone(), fd.as_fd()));
        let opened = prepared.descriptors.iter().map(|(role, fd)| (role.clone(), fd.as_fd()));
        let mut descriptors: Vec<(Role, BorrowedFd<'_>)> = granted.chain(opened).collect();
        descriptors.extend(output.as_ref().map(|output| (Role::console(), output.as_fd())));
        let memory = plan.machine.memory;
        let vcpus = u64::from(vmi.spec.topology().map_err(PlanError::from)?.vcpus());
        let has_balloon = plan.machine.balloon.is_some();
        let guest = port_of(&plan.machine).map(|port| KeptAgent::new(port, Instant::now()));
        // Whatever of it can fail does so before there is a VM process.
        let filter = Filter::new()?;
        let (program, paused) = (&self.options.vmm, plan.start_paused);
        let vmm = Vmm::start(program, &descriptors, plan.machine, paused)?;
        let process = u32::try_from(vmm.pid().as_raw()).unwrap_or(0);
        let metrics = prepared.metrics.map(|disk| {
            let vm = VmFacts { process, vcpus, memory, memory_limit: memory };
            let host = HostFacts { name: node.clone(), product: NAME.into() };
            Metrics { disk, collector: Collector::new(host, vm), due: Instant::now() }
        });
        let mut running = Running::new(vmm, guest, metrics, console);
        // A boot is answered when it is accepted; this is answered when the vCPUs run.
        let mut asked = running.ask(Request::Info, Asked::First);
        if has_balloon {
            // What comes of it is in the answers to the agent's questions about memory.
            let poll = Request::PollMemory { seconds: ASK_FOR_MEMORY_EACH };
            asked = asked.and_then(|_| running.ask(poll, Asked::Own));
        }
        let locked = filter.enter().map_err(StartError::from);
        if let Err(error) = asked.map_err(|error| VmmError::from(error).into()).and(locked) {
            running.vmm.force();
            return Err(error);
        }
        Ok(running)
    }
}

fn name(vmi: &VirtualMachineInstance) -> String {
    format!("{}/{}", vmi.metadata.namespace, vmi.metadata.name)
}
