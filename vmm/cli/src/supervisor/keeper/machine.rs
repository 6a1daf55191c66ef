//! What the VM process and the preparation before it tell.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Instant;

use corten_launcher::log::chain;
use corten_launcher::termination::End;
use corten_link::{
    BootOrigin, Counters, EndReason, Event, LinkError, Message, Reply, Request, Role,
};
use corten_net::Traffic;
use nix::poll::PollFlags;

use super::Keeper;
use crate::phase::Phase;
use crate::protocol::Answer;
use crate::supervisor::agent::Wish;
use crate::supervisor::fields::Fields;
use crate::supervisor::keeper::NO_CONSOLE;
use crate::supervisor::prepare::Progress;
use crate::supervisor::say;
use crate::supervisor::vm::{Asked, Vm};

impl Keeper {
    pub(super) fn on_preparation(&mut self) -> Option<End> {
        let preparation = self.preparation.as_mut()?;
        // One byte for each message; more of them are found by the next wait.
        let _ = preparation.bell.read(&mut [0]);
        match preparation.progress.try_recv() {
            Ok(Progress::Reached(phase, detail)) => self.reach(phase, detail),
            Ok(Progress::Note(text)) => self.tell(self.fields().placed(text)),
            Ok(Progress::Done(prepared)) => {
                self.preparation = None;
                let lacking = |error| self.fields().lacking(&error);
                let started = prepared.map_err(lacking).and_then(|prepared| {
                    let typing = self.typing.as_ref().filter(|_| self.has_console());
                    let directory = self.place.path();
                    let vm = Vm::start(prepared, typing, directory, self.job.seccomp_log);
                    vm.map_err(|error| chain(&error))
                });
                match started {
                    Ok(vm) => self.on_started(vm),
                    Err(detail) => return Some(End { reason: EndReason::NotStarted, detail }),
                }
            }
            Err(_) => {
                let detail = "what it needs could not be prepared".into();
                return Some(End { reason: EndReason::Crashed, detail });
            }
        }
        None
    }

    fn fields(&self) -> Fields {
        Fields { in_template: self.job.in_template }
    }

    fn on_started(&mut self, vm: Vm) {
        say(&format!("the VM process is {}", vm.jail.pid));
        let missing = vm.jail.missing();
        if self.has_console() {
            self.typing = None;
        } else {
            self.tell(NO_CONSOLE.into());
        }
        self.vm = Some(vm);
        missing.into_iter().for_each(|missing| self.tell(format!("not enforced: {missing}")));
        self.reach(Phase::Process, "");
    }

    /// Reads one message of the VM process; whether there may be more.
    pub(super) fn on_vmm(&mut self) -> bool {
        let Some(vm) = self.vm.as_mut().filter(|vm| !vm.silent) else { return false };
        match vm.vmm.receive() {
            Ok(Some(Message::Reply { id, reply, .. })) => self.on_reply(id, reply),
            Ok(Some(Message::Event { event: Event::Ended { reason, detail, fault } })) => {
                let fields = Fields { in_template: self.job.in_template };
                let detail = fields.faulty(&self.job.vmi, fault, detail);
                vm.told = Some(End { reason, detail });
            }
            Ok(Some(Message::Event { event })) => self.on_event(event),
            Ok(Some(other)) => say(&format!("the VM process sent {other:?}, which is passed over")),
            Ok(None) => return false,
            Err(error) => {
                vm.silent = true;
                if !matches!(error, LinkError::Closed) {
                    say(&format!("the link to the VM process failed: {}", chain(&error)));
                }
                self.stop.link_closed(Instant::now());
                return false;
            }
        }
        true
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Reset => {
                if let Some(agent) = self.vm.as_mut().and_then(|vm| vm.agent.as_mut()) {
                    agent.kept.reset(Instant::now());
                }
                self.tell("the guest was reset".into());
            }
            Event::Booting { from } => self.on_booting(from),
            Event::CrashLoaded => self.tell("the guest's kernel panicked and writes a dump".into()),
            Event::DiskFailed { disk, operation, error, paused } => {
                if let Some(vm) = self.vm.as_mut().filter(|_| paused) {
                    vm.set_paused(true);
                }
                let then = if paused { "; the VM is paused until `corten resume`" } else { "" };
                self.tell(format!("disk {disk}: {operation} failed: {error}{then}"));
            }
            // Nothing of this machine serves guests by vsock.
            Event::Connecting { ticket, .. } => {
                self.ask_own(Request::RefuseConnection { ticket }, Asked::Own);
            }
            Event::Ended { .. } => {}
        }
    }

    fn on_booting(&mut self, from: BootOrigin) {
        match from {
            BootOrigin::Kernel => {}
            BootOrigin::Disk { disk, partition, kernel, passed_over, .. } => {
                passed_over.into_iter().for_each(|why| self.tell(why));
                let place =
                    if partition == 0 { disk } else { format!("{disk}, partition {partition}") };
                self.reach(Phase::Boot, format!("{kernel} of {place}"));
            }
            BootOrigin::Nothing { reasons } => {
                self.tell(
                    "no disk has anything to boot; the guest's console says what was looked for"
                        .into(),
                );
                reasons.into_iter().for_each(|why| self.tell(why));
            }
        }
    }

    fn on_reply(&mut self, number: u64, reply: Reply) {
        let Some(vm) = &mut self.vm else { return };
        if number == vm.first_info && matches!(reply, Reply::Info { .. }) {
            vm.running = true;
            vm.made.keep();
            let detail = if vm.begins_paused { "paused until `corten resume`" } else { "" };
            return self.reach(Phase::Running, detail);
        }
        let Some(asked) = vm.asked.remove(&number) else { return };
        let is_done = matches!(reply, Reply::Done);
        match (asked, reply) {
            (Asked::Pass { client, id }, reply) => self.answer_as(client, id, reply),
            (Asked::Pause { by, hold }, reply) => {
                if is_done {
                    vm.set_paused(true);
                }
                if let Some((client, id)) = by {
                    self.clients.set_holds(client, hold && is_done);
                    self.answer_as(client, id, reply);
                }
            }
            (Asked::Resume { by }, reply) => {
                if is_done {
                    vm.set_paused(false);
                }
                match (by, reply) {
                    (Some((client, id)), reply) => self.answer_as(client, id, reply),
                    (None, Reply::Refused { reason }) => {
                        self.tell(format!("it does not go on: {reason}"));
                    }
                    (None, _) => {}
                }
            }
            (Asked::Ports, Reply::Info { info }) => {
                if let Some(agent) = &mut vm.agent {
                    agent.kept.looked(&info.open_ports, Instant::now());
                }
            }
            (Asked::Status { client, id, details }, Reply::Info { info }) => {
                let status = Box::new(self.status_with(Some(&info)));
                if details {
                    let next = Asked::Details { client, id, status };
                    self.ask((client, id), Request::Counters, &[], next);
                } else {
                    self.clients.answer(client, id, Answer::Status { status });
                }
            }
            (Asked::Details { client, id, mut status }, Reply::Counters { mut counters }) => {
                fill_in(&mut counters, &vm.network.traffic());
                status.counters = Some(Box::new(counters));
                let next = Asked::Details { client, id, status };
                self.ask((client, id), Request::Memory, &[], next);
            }
            (Asked::Details { client, id, mut status }, Reply::Memory { memory }) => {
                status.memory_use = Some(Box::new(memory));
                self.clients.answer(client, id, Answer::Status { status });
            }
            (Asked::Status { client, id, .. } | Asked::Details { client, id, .. }, reply) => {
                self.answer_as(client, id, reply);
            }
            (Asked::Ports | Asked::Own, Reply::Refused { reason }) => {
                say(&format!("the VM process refused a request: {reason}"));
            }
            (Asked::Ports | Asked::Own, _) => {}
        }
    }

    fn answer_as(&self, client: u64, id: u64, reply: Reply) {
        let answer = match reply {
            Reply::Refused { reason } => Answer::Refused { reason },
            _ => Answer::Done,
        };
        self.clients.answer(client, id, answer);
    }

    /// Reads of the console; whether there may be more.
    pub(super) fn on_console(&mut self) -> bool {
        let Some(vm) = &mut self.vm else { return false };
        let mut bytes = [0; 16 << 10];
        let Ok(count @ 1..) = vm.console.read(&mut bytes) else { return false };
        if self.history.end() == 0 {
            self.reach(Phase::Output, "");
        }
        self.history.push(&bytes[..count]);
        let logged = self.log.write(&bytes[..count]);
        if let (Err(error), Some(path)) = (logged, &self.job.log) {
            let path = path.display();
            self.tell(format!(
                "--log: cannot write {path}: {error}; the console is not written there any more"
            ));
        }
        self.viewers.show(&self.history);
        true
    }

    /// Lets the guest's agent do what it can, and does what it wants.
    pub(super) fn on_agent(&mut self, ready: PollFlags) {
        let Some(vm) = self.vm.as_mut().filter(|vm| vm.running && !vm.silent) else { return };
        let Some(agent) = &mut vm.agent else { return };
        for wish in agent.turn(Instant::now(), ready) {
            match wish {
                Wish::Look => self.ask_own(Request::Info, Asked::Ports),
                Wish::Attach { port, socket } => {
                    let given = [(Role::connection(), socket)];
                    self.ask_own_with(Request::Attach { port }, &given, Asked::Own);
                }
                Wish::Connected => {
                    if !self.phases.iter().any(|reached| reached.phase == Phase::Agent) {
                        self.reach(Phase::Agent, "");
                    }
                }
                Wish::Say(text) => say(&text),
                Wish::Answer { client, id, answer } => self.clients.answer(client, id, answer),
            }
        }
    }
}

/// What the VM process does not see of networks whose packets the kernel moves. What a TAP receives is what its guest sends.
fn fill_in(counters: &mut Counters, taps: &BTreeMap<String, Traffic>) {
    let by_kernel = counters.networks.iter_mut().filter(|(_, network)| network.by_kernel);
    for (name, network) in by_kernel {
        let Some(tap) = taps.get(name) else { continue };
        // A driver that the kernel could not serve was served by the VM process.
        network.received += tap.sent;
        network.received_bytes += tap.sent_bytes;
        network.receive_dropped += tap.sent_dropped;
        network.transmitted += tap.received;
        network.transmitted_bytes += tap.received_bytes;
        network.transmit_dropped += tap.received_dropped;
    }
}

#[cfg(test)]
mod tests {
    use corten_link::NetworkCounters;

    use super::*;

    #[test]
    fn what_the_kernel_moves_is_counted_by_the_tap() {
        let network = |by_kernel| NetworkCounters { by_kernel, ..NetworkCounters::default() };
        let mut counters = Counters::default();
        counters.networks.insert("kernel".into(), network(true));
        counters.networks.insert("own".into(), network(false));
        let tap = Traffic { received_bytes: 10, sent_bytes: 20, ..Traffic::default() };
        let taps = BTreeMap::from(["kernel", "own"].map(|name| (name.to_owned(), tap)));
        fill_in(&mut counters, &taps);
        let kernel = counters.networks["kernel"];
        assert_eq!((kernel.transmitted_bytes, kernel.received_bytes), (10, 20));
        assert_eq!(counters.networks["own"], network(false));
    }
}
