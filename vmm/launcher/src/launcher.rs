//! The launcher's loop.
//!
//! It waits on five things: signals, the door, the node agent that came last, the VM process, the guest's own agent. What each
//! says is handled at once; nothing that is done then can block.

mod guest;
mod network;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use corten_link::launcher::{
    Answer, ConnectedInterface, LauncherEnd, State, ToAgent, ToLauncher, VERSION, agreed,
};
use corten_link::{EndReason, Event, Grant, LinkError, Message, Reply, Request, Resolver, Role};
use corten_resources::served::Scope;
use corten_resources::types::VirtualMachineInstance;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::door::{Door, DoorError};
use crate::guest_agent::{KeptAgent, port_of};
use crate::log::{chain, say};
use crate::machine::{self, PlanError, Resolved};
use crate::options::Options;
use crate::prepare::{PodMounts, PrepareError, prepare};
use crate::stop::{Step, Stop};
use crate::termination::End;
use crate::vmm::{Vmm, VmmError};
use crate::volumes::disk_image::Scratch;
use crate::volumes::downward_metrics::{self, HostFacts, MetricsDisk, VmFacts};

const NAME: &str = concat!("corten-launcher ", env!("CARGO_PKG_VERSION"));
/// How often a guest is asked how it uses its memory, in seconds: as often as KubeVirt does.
const ASK_FOR_MEMORY_EACH: u32 = 10;

/// Why a launcher cannot even wait for an agent.
#[derive(Debug, Error)]
pub enum LauncherError {
    /// Its socket.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// Its signals.
    #[error("cannot receive signals")]
    Signals(#[source] Errno),
}

impl LauncherError {
    /// Whether another launcher is there, whose VM goes on.
    pub fn is_second(&self) -> bool {
        matches!(self, Self::Door(DoorError::Taken(_)))
    }
}

/// Why a VMI that was handed over does not run.
#[derive(Debug, Error)]
enum StartError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Vmm(#[from] VmmError),
}

/// An agent, and whether it has said hello.
#[derive(Debug)]
struct Agent {
    link: LauncherEnd,
    greeted: bool,
}

/// A VM process with what it is for.
#[derive(Debug)]
struct Running {
    vmm: Vmm,
    /// Its first sign of life has this number.
    first_info: u64,
    /// Numbers of requests that the present agent waits for, by those that the VM process knows.
    asked: BTreeMap<u64, u64>,
    /// How it said that it ended.
    told: Option<End>,
    /// Nothing more will come over its link.
    silent: bool,
    /// What the guest reads of its host.
    metrics: Option<Metrics>,
    /// The agent in the guest.
    guest: Option<KeptAgent>,
    /// Numbers of requests that ask for its port.
    looks: BTreeSet<u64>,
}

/// A disk with metrics that is written from time to time.
#[derive(Debug)]
struct Metrics {
    disk: MetricsDisk,
    host: HostFacts,
    vm: VmFacts,
    due: Instant,
}

/// The launcher.
#[derive(Debug)]
pub struct Launcher {
    options: Options,
    signals: SignalFd,
    door: Door,
    namespace: network::Namespace,
    agent: Option<Agent>,
    running: Option<Running>,
    state: State,
    uid: Option<String>,
    stop: Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Door,
    Agent,
    Vmm,
    Guest,
}

impl Launcher {
    /// Blocks signals, so that none is lost, and opens the door.
    pub fn new(options: Options) -> Result<Self, LauncherError> {
        let mask: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD].into_iter().collect();
        mask.thread_block().map_err(LauncherError::Signals)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&mask, flags).map_err(LauncherError::Signals)?;
        let door = Door::open(&options.door)?;
        say(&format!("{NAME} waits for the node agent in {}", options.door.display()));
        let stop = Stop::new(Duration::ZERO);
        Ok(Self {
            options,
            signals,
            door,
            namespace: network::Namespace::own(),
            agent: None,
            running: None,
            state: State::Waiting,
            uid: None,
            stop,
        })
    }

    /// Serves until the VM has ended, or nothing can be served.
    pub fn run(mut self) -> End {
        loop {
            let step = self.stop.due(Instant::now());
            self.take(step);
            self.write_metrics(Instant::now());
            // What is due of it is done in its turn, also when nothing was to be read.
            self.on_guest(PollFlags::empty());
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(error) => {
                    let detail = format!("cannot wait for descriptors: {error}");
                    return self.ended(End { reason: EndReason::InternalError, detail });
                }
            };
            for (source, flags) in ready {
                let end = match source {
                    Source::Signals => self.on_signals(),
                    Source::Door => self.on_door(),
                    Source::Agent => self.on_agent(),
                    Source::Vmm => {
                        self.on_vmm();
                        None
                    }
                    Source::Guest => {
                        self.on_guest(flags);
                        None
                    }
                };
                if let Some(end) = end {
                    return self.ended(end);
                }
            }
        }
    }

    fn sources(&self) -> Vec<(Source, BorrowedFd<'_>, PollFlags)> {
        let read = PollFlags::POLLIN;
        let mut sources = vec![
            (Source::Signals, self.signals.as_fd(), read),
            (Source::Door, self.door.as_fd(), read),
        ];
        sources.extend(self.agent.as_ref().map(|agent| (Source::Agent, agent.link.as_fd(), read)));
        // A closed link would be ready for ever; SIGCHLD says the rest.
        if let Some(running) = self.running.as_ref().filter(|running| !running.silent) {
            sources.push((Source::Vmm, running.vmm.link(), read));
            let guest = running.guest.as_ref();
            let socket = guest.and_then(|guest| Some((guest.fd()?, guest.interest())));
            sources.extend(socket.map(|(fd, interest)| (Source::Guest, fd, interest)));
        }
        sources
    }

    /// Waits until something is ready or due.
    fn wait(&self) -> Result<Vec<(Source, PollFlags)>, Errno> {
        let sources = self.sources();
        let mut list: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd, flags)| PollFd::new(*fd, *flags)).collect();
        match poll(&mut list, self.timeout()) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        // Flags that nix does not know are of a descriptor that is in trouble, as an error is.
        let flags = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::POLLERR);
        let ready = sources.iter().zip(&list).map(|((source, ..), fd)| (*source, flags(fd)));
        Ok(ready.filter(|(_, flags)| !flags.is_empty()).collect())
    }

    fn timeout(&self) -> PollTimeout {
        let metrics = self.running.as_ref().and_then(|running| running.metrics.as_ref());
        let deadlines =
            [self.stop.deadline(), metrics.map(|metrics| metrics.due), self.guest_deadline()];
        let Some(deadline) = deadlines.into_iter().flatten().min() else {
            return PollTimeout::NONE;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        // One more, so that it is due when the wait is over.
        PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
    }

    fn on_signals(&mut self) -> Option<End> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            if Signal::try_from(number) == Ok(Signal::SIGCHLD) {
                continue;
            }
            if self.running.is_none() {
                let detail = "it was terminated before a VM was started".into();
                return Some(End { reason: EndReason::Killed, detail });
            }
            let step = self.stop.terminate(Instant::now());
            self.take(step);
        }
        // Signals of one kind merge, so each time all children are looked at.
        self.reap()
    }

    /// Waits for all children that have ended, also those that others left to the first process.
    fn reap(&mut self) -> Option<End> {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return None,
                Ok(status) => status,
            };
            let vmm = self.running.as_ref().map(|running| running.vmm.pid());
            if status.pid() == vmm {
                return Some(self.end_of(status));
            }
        }
    }

    /// How the VM ended, by what it told and else by how its process ended.
    fn end_of(&mut self, status: WaitStatus) -> End {
        // Its last words may not have been read yet.
        while self.on_vmm() {}
        let told = self.running.as_mut().and_then(|running| running.told.take());
        let mut end = told.unwrap_or_else(|| End::by_status(status, self.stop.is_killing()));
        if end.reason == EndReason::Killed && end.detail.is_empty() {
            end.detail = self.stop.detail();
        }
        end
    }

    fn on_door(&mut self) -> Option<End> {
        match self.door.accept() {
            Ok(Ok(link)) => {
                if self.agent.is_some() {
                    say("another agent has connected; the one before is let go");
                }
                // Answers to the old one's requests are nobody's now.
                if let Some(running) = &mut self.running {
                    running.asked.clear();
                }
                self.agent = Some(Agent { link, greeted: false });
                self.say_hello();
            }
            Ok(Err(error)) => say(&format!("an agent was refused: {}", chain(&error))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => say(&format!("cannot accept an agent: {error}")),
        }
        None
    }

    fn say_hello(&mut self) {
        let (roles, descriptors) = self.namespace.shown();
        let hello = ToAgent::Hello {
            version: VERSION,
            launcher: NAME.into(),
            state: self.state,
            vmi: self.uid.clone(),
            applied: None,
            roles,
        };
        let sent = self.agent.as_ref().map(|agent| agent.link.send(&hello, &descriptors));
        if let Some(Err(error)) = sent {
            self.lose_agent(&error);
        }
    }

    fn on_agent(&mut self) -> Option<End> {
        let agent = self.agent.as_mut()?;
        let (message, grant) = match agent.link.receive() {
            Ok(Some(received)) => received,
            Ok(None) => return None,
            Err(error) => {
                self.lose_agent(&error);
                return None;
            }
        };
        match (message, agent.greeted) {
            (ToLauncher::Hello { version, agent: name }, false) => match agreed(version) {
                Ok(version) => {
                    agent.greeted = true;
                    say(&format!("{name} has connected, version {version} is spoken"));
                }
                Err(error) => self.lose_agent(&error.into()),
            },
            (ToLauncher::Start { id, vmi, grace_seconds, interfaces, .. }, true) => {
                return self.on_start(id, vmi, grace_seconds, interfaces, &grant);
            }
            (ToLauncher::Dismiss { reason }, true) => return self.on_dismiss(reason),
            (ToLauncher::PowerButton { id }, true) => {
                self.thaw_guest();
                self.pass(id, Request::PowerButton);
            }
            (ToLauncher::Pause { id }, true) => self.pass(id, Request::Pause),
            (ToLauncher::Resume { id }, true) => self.pass(id, Request::Resume),
            (ToLauncher::Info { id }, true) => self.pass(id, Request::Info),
            (ToLauncher::Counters { id }, true) => self.pass(id, Request::Counters),
            (ToLauncher::Memory { id }, true) => self.pass(id, Request::Memory),
            (ToLauncher::Apply { id, .. }, true) => {
                self.refuse(id, "nothing of a VMI that runs can be changed".into());
            }
            (ToLauncher::OpenedUp { .. }, true) => {}
            (ToLauncher::Kill { id }, true) => {
                self.pass(id, Request::Kill);
                if self.running.is_some() {
                    let _ = self.stop.kill(Instant::now());
                }
            }
            (_, greeted) => {
                let what = if greeted { "said hello twice" } else { "did not say hello first" };
                say(&format!("the agent {what} and is let go"));
                self.agent = None;
            }
        }
        None
    }

    fn on_start(
        &mut self,
        id: u64,
        vmi: Map<String, Value>,
        grace_seconds: u32,
        interfaces: BTreeMap<String, ConnectedInterface>,
        grant: &Grant,
    ) -> Option<End> {
        let vmi: VirtualMachineInstance = match serde_json::from_value(Value::Object(vmi)) {
            Ok(vmi) => vmi,
            Err(error) => {
                self.refuse(id, format!("the object is no VirtualMachineInstance: {error}"));
                return None;
            }
        };
        let uid = &vmi.metadata.uid;
        match &self.uid {
            Some(started) if started == uid => {
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
        if !grant.contains_key(&Role::kvm()) {
            self.refuse(id, "the descriptor kvm did not come with it".into());
            return None;
        }
        self.uid = Some(uid.clone());
        self.stop = Stop::new(Duration::from_secs(grace_seconds.into()));
        self.answer(id, Answer::Done);
        self.enter(State::Preparing);
        let name = format!("{}/{}", vmi.metadata.namespace, vmi.metadata.name);
        match self.start(&vmi, interfaces, grant) {
            Ok(running) => {
                say(&format!("VMI {name}: the VM process is {}", running.vmm.pid()));
                self.running = Some(running);
                None
            }
            Err(error) => {
                let detail = format!("VMI {name}: {}", chain(&error));
                Some(End { reason: EndReason::NotStarted, detail })
            }
        }
    }

    fn on_dismiss(&self, reason: String) -> Option<End> {
        if self.uid.is_some() {
            say(&format!(
                "the agent wants to give this launcher nothing, but it was started: {reason}"
            ));
            return None;
        }
        Some(End { reason: EndReason::NotStarted, detail: reason })
    }

    /// Makes the machine of `vmi`: from here on everything is a descriptor.
    fn start(
        &self,
        vmi: &VirtualMachineInstance,
        interfaces: BTreeMap<String, ConnectedInterface>,
        grant: &Grant,
    ) -> Result<Running, StartError> {
        for warning in machine::check(vmi, Scope::Cluster)? {
            say(&warning.to_string());
        }
        let sources = PodMounts {
            volumes: self.options.volumes.clone(),
            secrets: self.options.secrets.clone(),
            kernel_boot: self.options.kernel_boot.clone(),
            capacities: PodMounts::capacities(vmi),
        };
        let scratch = Scratch::Nameless(self.options.scratch.clone());
        let mut prepared = prepare(vmi, &sources, &scratch)?;
        // A Pod is tried once, and its claim is its own.
        prepared.made.keep();
        prepared.warnings.iter().for_each(|warning| say(warning));
        let resolved = Resolved {
            disks: prepared.disks.clone(),
            interfaces: network::places(vmi, interfaces, Resolver::of_host()),
            guest_cid: vmi.status.vsock_cid.and_then(|cid| u32::try_from(cid).ok()),
        };
        let plan = machine::plan(vmi, &resolved)?;
        let console = io::stdout();
        let granted = grant.iter().map(|(role, fd)| (role.clone(), fd.as_fd()));
        let opened = prepared.descriptors.iter().map(|(role, fd)| (role.clone(), fd.as_fd()));
        let mut descriptors: Vec<(Role, BorrowedFd<'_>)> = granted.chain(opened).collect();
        descriptors.push((Role::console(), console.as_fd()));
        let (memory, node) = (plan.machine.memory, vmi.status.node_name.as_deref());
        let vcpus = u64::from(vmi.spec.topology().map_err(PlanError::from)?.vcpus());
        let guest = port_of(&plan.machine).map(|port| KeptAgent::new(port, Instant::now()));
        let has_balloon = plan.machine.balloon.is_some();
        let mut vmm = Vmm::start(&self.options.vmm, &descriptors, plan.machine)?;
        // A boot is answered when it is accepted; this is answered when the vCPUs run.
        let first_info = vmm.ask(Request::Info).map_err(VmmError::from)?;
        if has_balloon {
            // What comes of it is in the answers to the agent's questions about memory.
            let poll = Request::PollMemory { seconds: ASK_FOR_MEMORY_EACH };
            vmm.ask(poll).map_err(VmmError::from)?;
        }
        let process = u32::try_from(vmm.pid().as_raw()).unwrap_or(0);
        let vm = VmFacts { process, vcpus, memory, memory_limit: memory };
        let host = HostFacts { name: node.unwrap_or_default().into(), product: NAME.into() };
        let metrics = prepared.metrics.map(|disk| Metrics { disk, host, vm, due: Instant::now() });
        Ok(Running {
            vmm,
            first_info,
            asked: BTreeMap::new(),
            told: None,
            silent: false,
            metrics,
            guest,
            looks: BTreeSet::new(),
        })
    }

    /// Reads one message of the VM process; whether there may be more.
    fn on_vmm(&mut self) -> bool {
        let Some(running) = self.running.as_mut().filter(|running| !running.silent) else {
            return false;
        };
        match running.vmm.receive() {
            Ok(Some(Message::Reply { id, reply, .. })) => self.on_reply(id, reply),
            Ok(Some(Message::Event { event: Event::Ended { reason, detail, .. } })) => {
                running.told = Some(End { reason, detail });
            }
            Ok(Some(Message::Event { event })) => {
                say(&format!("the VM process tells: {event:?}"));
                self.tell_guest(&event);
                self.tell(&ToAgent::Event { event });
            }
            Ok(Some(other)) => say(&format!("the VM process sent {other:?}, which is passed over")),
            Ok(None) => return false,
            Err(error) => {
                running.silent = true;
                if !matches!(error, LinkError::Closed) {
                    say(&format!("the link to the VM process failed: {}", chain(&error)));
                }
                self.stop.link_closed(Instant::now());
                return false;
            }
        }
        true
    }

    fn on_reply(&mut self, id: u64, reply: Reply) {
        let Some(running) = &mut self.running else { return };
        let agents = running.asked.remove(&id);
        if running.looks.remove(&id) {
            return self.on_look(&reply);
        }
        if id == running.first_info && matches!(reply, Reply::Info { .. }) {
            self.enter(State::Running);
        }
        let Some(id) = agents else { return };
        let answer = match reply {
            Reply::Done => Answer::Done,
            Reply::Refused { reason } => Answer::Refused { reason },
            Reply::Info { info } => Answer::Info { info },
            Reply::Counters { counters } => Answer::Counters { counters: Box::new(counters) },
            Reply::Memory { memory } => Answer::Memory { memory },
        };
        self.answer(id, answer);
    }

    /// Passes a request of the agent on.
    fn pass(&mut self, id: u64, request: Request) {
        let Some(running) = &mut self.running else {
            return self.refuse(id, "no VM was started yet".into());
        };
        match running.vmm.ask(request) {
            Ok(asked) => {
                running.asked.insert(asked, id);
            }
            Err(error) => {
                let reason = format!("the VM process does not take it: {}", chain(&error));
                self.refuse(id, reason);
            }
        }
    }

    /// Tells the guest of its host, if it wants to know and the time has come.
    fn write_metrics(&mut self, now: Instant) {
        let metrics = self.running.as_mut().and_then(|running| running.metrics.as_mut());
        let Some(metrics) = metrics.filter(|metrics| metrics.due <= now) else { return };
        metrics.due = now + downward_metrics::PERIOD;
        if let Err(error) =
            metrics.disk.write(&downward_metrics::collect(&metrics.host, &metrics.vm))
        {
            say(&format!("cannot write the downward metrics: {error}"));
        }
    }

    /// Does what is due on the way to the end.
    fn take(&mut self, step: Step) {
        if step == Step::PowerButton {
            self.thaw_guest();
        }
        let Some(running) = &mut self.running else { return };
        let asked = match step {
            Step::Nothing => return,
            Step::PowerButton => {
                say("terminating: the guest's power button is pressed");
                running.vmm.ask(Request::PowerButton)
            }
            Step::Kill => {
                say("the VM is killed");
                running.vmm.ask(Request::Kill)
            }
            Step::Force => {
                say("the VM process does not end and is killed by signal");
                running.vmm.force();
                return;
            }
        };
        // If it cannot be asked any more, it is ending, or the next step is force.
        if let Err(error) = asked {
            say(&format!("the VM process does not take it: {}", chain(&error)));
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.tell(&ToAgent::State { state });
    }

    fn answer(&mut self, id: u64, reply: Answer) {
        self.tell(&ToAgent::Reply { id, reply });
    }

    fn refuse(&mut self, id: u64, reason: String) {
        say(&format!("a request of the agent was refused: {reason}"));
        self.answer(id, Answer::Refused { reason });
    }

    /// Tells the agent, if there is one. One that does not keep up is let go; it will connect again.
    fn tell(&mut self, message: &ToAgent) {
        let sent = self.agent.as_ref().map(|agent| agent.link.send(message, &[]));
        if let Some(Err(error)) = sent {
            self.lose_agent(&error);
        }
    }

    fn lose_agent(&mut self, error: &LinkError) {
        let name = self.uid.as_deref().unwrap_or("none");
        say(&format!("the agent is gone ({}); VMI uid: {name}", chain(error)));
        self.agent = None;
        if let Some(running) = &mut self.running {
            running.asked.clear();
        }
    }

    fn ended(mut self, end: End) -> End {
        self.state = State::Ended;
        let (reason, detail) = (end.reason, end.detail.clone());
        self.tell(&ToAgent::Ended { reason, detail, console: String::new() });
        end
    }
}
