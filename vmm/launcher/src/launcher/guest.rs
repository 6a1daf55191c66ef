//! The agent in the guest: polled as long as the VM runs, so that what it told is there to be reported.

use std::os::fd::AsFd;
use std::time::Instant;

use corten_link::launcher::State;
use corten_link::{Event, LinkError, Reply, Request, Role};
use nix::poll::PollFlags;

use super::{Launcher, Running};
use crate::guest_agent::Notice;
use crate::log::{chain, say};

impl Launcher {
    /// The VM, if its guest can have an agent that answers.
    fn with_guest(&mut self) -> Option<&mut Running> {
        let runs = self.state == State::Running;
        self.running.as_mut().filter(|running| runs && !running.silent)
    }

    pub(super) fn guest_deadline(&self) -> Option<Instant> {
        let running = self.running.as_ref().filter(|running| !running.silent)?;
        running.guest.as_ref().filter(|_| self.state == State::Running)?.deadline()
    }

    /// Lets the guest's agent do what it can, and does what it wants.
    pub(super) fn on_guest(&mut self, ready: PollFlags) {
        let Some(running) = self.with_guest() else { return };
        let Some(guest) = &mut running.guest else { return };
        let port = guest.port();
        for notice in guest.turn(Instant::now(), ready) {
            match notice {
                Notice::LookAtPort => match running.vmm.ask(Request::Info) {
                    Ok(number) => {
                        running.looks.insert(number);
                    }
                    Err(error) => not_taken(&error),
                },
                Notice::Attach(socket) => {
                    let given = [(Role::connection(), socket.as_fd())];
                    // If it is refused, the socket hangs up, and another one is tried later.
                    if let Err(error) = running.vmm.ask_with(Request::Attach { port }, &given) {
                        not_taken(&error);
                    }
                }
                Notice::Connected => say("the guest's agent answers"),
                Notice::Lost(reason) => say(&format!("the guest's agent is gone: {reason}")),
                Notice::TimeSet(Err(error)) => {
                    say(&format!("the guest's clock was not set: {}", chain(&error)));
                }
                Notice::Thawed(Err(error)) => {
                    say(&format!("file systems were not thawed: {}", chain(&error)));
                }
                Notice::TimeSet(Ok(())) | Notice::Thawed(Ok(())) => {}
                Notice::Learned | Notice::Done { .. } => {}
            }
        }
    }

    /// The answer to a look at the agent's port.
    pub(super) fn on_look(&mut self, reply: &Reply) {
        let guest = self.running.as_mut().and_then(|running| running.guest.as_mut());
        if let (Some(guest), Reply::Info { info }) = (guest, reply) {
            guest.looked(&info.open_ports, Instant::now());
        }
    }

    /// What of the VM concerns the agent.
    pub(super) fn tell_guest(&mut self, event: &Event) {
        let guest = self.running.as_mut().and_then(|running| running.guest.as_mut());
        match (guest, event) {
            (Some(guest), Event::Reset) => guest.reset(Instant::now()),
            (Some(guest), Event::DiskFailed { paused: true, .. }) => {
                guest.set_paused(true, Instant::now());
            }
            _ => {}
        }
    }

    /// A guest with frozen file systems could not heed its power button.
    pub(super) fn thaw_guest(&mut self) {
        if let Some(guest) = self.running.as_mut().and_then(|running| running.guest.as_mut()) {
            guest.stopping(Instant::now());
        }
    }
}

fn not_taken(error: &LinkError) {
    say(&format!("the VM process does not take it: {}", chain(error)));
}
