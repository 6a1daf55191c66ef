//! The node agent that came last: what it asks, and what it is told.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use corten_link::launcher::{Answer, LauncherEnd, State, ToAgent, ToLauncher, VERSION, agreed};
use corten_link::{LinkError, Request};

use super::{Launcher, NAME};
use crate::launcher::start::Handed;
use crate::launcher::vm::Asked;
use crate::log::{chain, say};
use crate::termination::End;

/// An agent, and whether it has said hello.
#[derive(Debug)]
pub(super) struct Agent {
    link: LauncherEnd,
    greeted: bool,
}

impl Agent {
    pub(super) fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl Launcher {
    pub(super) fn on_door(&mut self) {
        match self.door.accept() {
            Ok(Ok(link)) => {
                if self.agent.is_some() {
                    say("another agent has connected; the one before is let go");
                }
                self.forget_agent();
                self.agent = Some(Agent { link, greeted: false });
                self.greet();
            }
            Ok(Err(error)) => say(&format!("an agent was refused: {}", chain(&error))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => say(&format!("cannot accept an agent: {error}")),
        }
    }

    fn greet(&mut self) {
        let heeded = self.heeded.as_ref();
        let (roles, descriptors) = self.namespace.shown();
        let hello = ToAgent::Hello {
            version: VERSION,
            launcher: NAME.into(),
            state: self.state,
            vmi: heeded.map(|heeded| heeded.uid.clone()),
            applied: heeded.map(|heeded| heeded.hash.clone()),
            roles,
        };
        let sent = self.agent.as_ref().map(|agent| agent.link.send(&hello, &descriptors));
        if let Some(Err(error)) = sent {
            self.lose_agent(&error);
        }
    }

    /// Tells a new agent what is not in the hello.
    fn brief(&mut self) {
        self.ask_for_disks();
        self.tell_vm();
        self.repeat_report(Instant::now());
        self.repeat_signs();
    }

    pub(super) fn on_agent(&mut self) -> Option<End> {
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
                    self.brief();
                }
                Err(error) => self.lose_agent(&error.into()),
            },
            (message, true) if !matches!(message, ToLauncher::Hello { .. }) => match message {
                ToLauncher::Start {
                    id, vmi, grace_seconds, interfaces, capacities, node, ..
                } => {
                    let handed = Handed { vmi, grace_seconds, interfaces, capacities, node, grant };
                    return self.on_start(id, handed);
                }
                ToLauncher::Dismiss { reason } => return self.on_dismiss(reason),
                ToLauncher::OpenedUp { ticket, refused } => {
                    return self.on_opened_up(ticket, refused);
                }
                other => self.on_request(other),
            },
            (_, greeted) => {
                let what = if greeted { "said hello twice" } else { "did not say hello first" };
                say(&format!("the agent {what} and is let go"));
                self.agent = None;
            }
        }
        None
    }

    fn on_request(&mut self, message: ToLauncher) {
        match message {
            ToLauncher::Apply { id, vmi, grace_seconds } => self.on_apply(id, vmi, grace_seconds),
            ToLauncher::PowerButton { id } => {
                self.thaw_guest();
                self.pass(Request::PowerButton, Asked::Agent(id));
            }
            ToLauncher::Pause { id } => self.pass(Request::Pause, Asked::Pause(Some(id))),
            ToLauncher::Resume { id } => self.pass(Request::Resume, Asked::Resume(Some(id))),
            ToLauncher::Info { id } => self.pass(Request::Info, Asked::Agent(id)),
            ToLauncher::Counters { id } => self.pass(Request::Counters, Asked::Agent(id)),
            ToLauncher::Memory { id } => self.pass(Request::Memory, Asked::Agent(id)),
            ToLauncher::Kill { id } => {
                self.pass(Request::Kill, Asked::Agent(id));
                if self.running.is_some() {
                    let _ = self.stop.kill(Instant::now());
                }
            }
            // Served by the caller.
            ToLauncher::Hello { .. }
            | ToLauncher::Start { .. }
            | ToLauncher::Dismiss { .. }
            | ToLauncher::OpenedUp { .. } => {}
        }
    }

    /// Passes a request of the agent on.
    fn pass(&mut self, request: Request, asked: Asked) {
        let Some(id) = asked.agents_number() else { return };
        let Some(running) = &mut self.running else {
            return self.refuse(id, "no VM was started yet".into());
        };
        if let Err(error) = running.ask(request, asked) {
            let reason = format!("the VM process does not take it: {}", chain(&error));
            self.refuse(id, reason);
        }
    }

    pub(super) fn enter(&mut self, state: State) {
        self.state = state;
        self.tell(&ToAgent::State { state });
    }

    pub(super) fn answer(&mut self, id: u64, reply: Answer) {
        self.tell(&ToAgent::Reply { id, reply });
    }

    pub(super) fn refuse(&mut self, id: u64, reason: String) {
        say(&format!("a request of the agent was refused: {reason}"));
        self.answer(id, Answer::Refused { reason });
    }

    pub(super) fn tell(&mut self, message: &ToAgent) {
        let _ = self.tell_with(message, &[]);
    }

    /// Tells the agent, if there is one; whether it was told. One that does not keep up is let go; it will connect again.
    pub(super) fn tell_with(&mut self, message: &ToAgent, given: &[BorrowedFd<'_>]) -> bool {
        match self.agent.as_ref().map(|agent| agent.link.send(message, given)) {
            Some(Ok(())) => return true,
            // What cannot be said is not the agent's fault.
            Some(Err(LinkError::Message(error))) => {
                say(&format!("something cannot be told to the agent: {}", chain(&error)));
            }
            Some(Err(error)) => self.lose_agent(&error),
            None => {}
        }
        false
    }

    /// Whether there is an agent in conversation.
    pub(super) fn has_agent(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.greeted)
    }

    fn lose_agent(&mut self, error: &LinkError) {
        let uid = self.heeded.as_ref().map_or("none", |heeded| heeded.uid.as_str());
        say(&format!("the agent is gone ({}); VMI uid: {uid}", chain(error)));
        self.agent = None;
        self.forget_agent();
    }

    /// Answers to its requests are nobody's now.
    fn forget_agent(&mut self) {
        if let Some(running) = &mut self.running {
            running.forget_agent();
        }
    }
}
