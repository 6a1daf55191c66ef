//! What clients want.

use std::os::fd::OwnedFd;
use std::time::Duration;

use corten_launcher::guest_agent::Order;
use corten_launcher::log::chain;
use corten_launcher::termination::End;
use corten_link::{Grant, Info, Request, Role};

use super::{Keeper, NO_CONSOLE};
use crate::protocol::{Answer, Question, State, Status, ToClient, ToSupervisor};
use crate::supervisor::clients::{Heard, OWNER};
use crate::supervisor::exit_stream::ExitStream;
use crate::supervisor::say;
use crate::supervisor::viewers::Types;
use crate::supervisor::vm::Asked;

impl Keeper {
    pub(super) fn on_client(&mut self, number: u64) -> Option<End> {
        match self.clients.receive(number) {
            Heard::Nothing => None,
            Heard::Watches => {
                for reached in self.phases.clone() {
                    self.clients.tell_one(number, &ToClient::Reached { reached });
                }
                None
            }
            Heard::Message(ToSupervisor::Ask { id, question, .. }, grant) => {
                self.on_question(number, id, question, grant)
            }
            Heard::Message(ToSupervisor::Leave, _) => {
                self.left |= number == OWNER;
                None
            }
            Heard::Message(ToSupervisor::Hello { .. }, _) => None,
            Heard::Gone { held } => self.on_gone(number, held),
        }
    }

    pub(super) fn on_gone(&mut self, number: u64, held: bool) -> Option<End> {
        if held {
            say("a client that had the VM paused is gone: it goes on");
            self.ask_own(Request::Resume, Asked::Resume { by: None });
        }
        if number != OWNER || self.left {
            return None;
        }
        say("the client that the VM lives with is gone");
        self.terminate(None)
    }

    pub(super) fn on_question(
        &mut self,
        client: u64,
        id: u64,
        question: Question,
        grant: Grant,
    ) -> Option<End> {
        match question {
            Question::Status => self.status(client, id, false),
            Question::Details => self.status(client, id, true),
            Question::Attach { keyboard } => {
                // Who has come with the VM is told when it starts.
                if !self.has_console() && self.vm.is_some() {
                    self.clients.tell_one(client, &ToClient::Note { text: NO_CONSOLE.into() });
                }
                let pid = self.clients.pid(client);
                match self.viewers.add(pid, keyboard, &self.history) {
                    Ok((stream, types)) => {
                        let typist = if let Types::Another(pid) = types { Some(pid) } else { None };
                        let answer = Answer::Attached { types: types == Types::Yes, typist };
                        let given = [(Role::connection(), stream.into())];
                        self.clients.answer_with(client, id, answer, &given);
                    }
                    Err(error) => self.refuse(client, id, format!("cannot make a stream: {error}")),
                }
            }
            Question::Stop { grace } => {
                self.clients.answer(client, id, Answer::Done);
                return self.terminate(grace);
            }
            Question::Kill => {
                self.clients.answer(client, id, Answer::Done);
                return self.kill();
            }
            Question::EndSaved => {
                self.saved = true;
                self.clients.answer(client, id, Answer::Done);
                return self.kill();
            }
            Question::Pause { hold } => {
                let asked = Asked::Pause { by: Some((client, id)), hold };
                self.ask((client, id), Request::Pause, &[], asked);
            }
            Question::Resume => {
                self.clients.set_holds(client, false);
                let asked = Asked::Resume { by: Some((client, id)) };
                self.ask((client, id), Request::Resume, &[], asked);
            }
            Question::Snapshot => {
                let given: Vec<_> = grant.into_iter().collect();
                let asked = Asked::Pass { client, id };
                self.ask((client, id), Request::Snapshot, &given, asked);
            }
            Question::GuestAgent => {
                let agent = self.vm.as_ref().and_then(|vm| vm.agent.as_ref());
                let report = agent.map(|agent| Box::new(agent.kept.report()));
                self.clients.answer(client, id, Answer::GuestAgent { report });
            }
            Question::Freeze { limit } => {
                let limit = limit.map(|limit| Duration::from_secs(limit.into()));
                self.order(client, id, Order::Freeze { limit });
            }
            Question::Thaw => self.order(client, id, Order::Thaw),
            Question::Belongings => match self.belongings() {
                Ok(given) => self.clients.answer_with(client, id, Answer::Done, &given),
                Err(reason) => self.refuse(client, id, reason),
            },
        }
        None
    }

    /// Orders something of the guest's agent for a client.
    fn order(&mut self, client: u64, id: u64, order: Order) {
        let Some(vm) = self.vm.as_mut().filter(|vm| vm.running) else {
            return self.refuse(client, id, "it is not running yet".into());
        };
        match &mut vm.agent {
            Some(agent) => agent.order((client, id), order),
            None => self.refuse(client, id, "it has no port for a guest agent".into()),
        }
    }

    /// The job, and files that nobody else has.
    fn belongings(&mut self) -> Result<Vec<(Role, OwnedFd)>, String> {
        let exit = self.vm.as_mut().and_then(|vm| vm.exit.as_mut());
        self.job.guest_status = exit.and_then(ExitStream::status);
        let job = self.job.to_file().map_err(|error| chain(&error))?;
        let mut given = vec![(Role::records(), OwnedFd::from(job))];
        for (role, fd) in self.vm.iter().flat_map(|vm| &vm.own) {
            let fd = fd.try_clone().map_err(|error| format!("cannot pass {role} on: {error}"))?;
            given.push((role.clone(), fd));
        }
        Ok(given)
    }

    fn refuse(&self, client: u64, id: u64, reason: String) {
        self.clients.answer(client, id, Answer::Refused { reason });
    }

    /// Asks the VM process on behalf of a client.
    pub(super) fn ask(
        &mut self,
        (client, id): (u64, u64),
        request: Request,
        given: &[(Role, OwnedFd)],
        asked: Asked,
    ) {
        let Some(vm) = &mut self.vm else {
            return self.refuse(client, id, "it is not running yet".into());
        };
        if let Err(error) = vm.ask(request, given, asked) {
            let reason = format!("the VM process does not take it: {}", chain(&error));
            self.refuse(client, id, reason);
        }
    }

    /// Asks the VM process on nobody's behalf.
    pub(super) fn ask_own(&mut self, request: Request, asked: Asked) {
        self.ask_own_with(request, &[], asked);
    }

    /// The same, with descriptors.
    pub(super) fn ask_own_with(
        &mut self,
        request: Request,
        given: &[(Role, OwnedFd)],
        asked: Asked,
    ) {
        let Some(vm) = &mut self.vm else { return };
        if let Err(error) = vm.ask(request, given, asked) {
            // It is ending, or the next step is force.
            say(&format!("the VM process does not take it: {}", chain(&error)));
        }
    }

    pub(super) fn status(&mut self, client: u64, id: u64, details: bool) {
        if self.vm.as_ref().is_some_and(|vm| vm.running) {
            let asked = Asked::Status { client, id, details };
            return self.ask((client, id), Request::Info, &[], asked);
        }
        let status = Box::new(self.status_with(None));
        self.clients.answer(client, id, Answer::Status { status });
    }

    pub(super) fn status_with(&self, info: Option<&Info>) -> Status {
        let vm = self.vm.as_ref();
        let told = info.map_or(State::Preparing, |info| State::from(info.state));
        Status {
            name: self.job.name.clone(),
            state: if self.stopping { State::Stopping } else { told },
            supervisor: nix::unistd::getpid().as_raw(),
            process: vm.map(|vm| vm.vmm.pid().as_raw()),
            uptime: self.started.elapsed().as_secs(),
            vcpus: info.map(|info| info.vcpus),
            memory: info.map(|info| info.memory),
            resets: info.map(|info| info.resets),
            boot: info.and_then(|info| info.boot.clone()),
            phases: self.phases.clone(),
            jail: vm.map(|vm| vm.jail.kept_by()).unwrap_or_default(),
            counters: None,
            memory_use: None,
            guest_agent: None,
        }
    }
}
