//! Links to clients.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use corten_link::{Grant, LinkError, Role};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use super::say;
use crate::protocol::{Answer, SupervisorEnd, ToClient, ToSupervisor, VERSION, link_failed};

/// More than anybody needs; a client that connects without end must not use up all descriptors.
const MAX_CLIENTS: usize = 64;

/// The client that started the VM.
pub(super) const OWNER: u64 = 0;

#[derive(Debug)]
struct Client {
    link: SupervisorEnd,
    pid: i32,
    greeted: bool,
    watches: bool,
    /// The machine is paused for it.
    holds: bool,
}

/// All of them, by number.
#[derive(Debug)]
pub(super) struct Clients {
    all: BTreeMap<u64, Client>,
    last: u64,
    name: String,
}

/// What came of a client.
#[derive(Debug)]
pub(super) enum Heard {
    /// It has said hello, and watches from now on: what it has missed is to be told.
    Watches,
    /// It said something.
    Message(ToSupervisor, Grant),
    /// Nothing now.
    Nothing,
    /// It is gone. Whether the machine was paused for it.
    Gone { held: bool },
}

impl Clients {
    /// The one that started the VM.
    pub(super) fn new(name: &str, owner: SupervisorEnd) -> Self {
        let mut clients = Self { all: BTreeMap::new(), last: OWNER, name: name.into() };
        clients.insert(OWNER, owner);
        clients
    }

    fn insert(&mut self, number: u64, link: SupervisorEnd) {
        let pid = getsockopt(&link, PeerCredentials).map(|peer| peer.pid()).unwrap_or_default();
        let client = Client { link, pid, greeted: false, watches: false, holds: false };
        self.all.insert(number, client);
        let hello = ToClient::Hello { version: VERSION, name: self.name.clone() };
        self.send(number, &hello, &[]);
    }

    /// One more.
    pub(super) fn add(&mut self, link: SupervisorEnd) {
        if self.all.len() >= MAX_CLIENTS {
            return say("a client was turned away: there are too many");
        }
        self.last += 1;
        self.insert(self.last, link);
    }

    /// What to wait for.
    pub(super) fn sources(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.all.iter().map(|(number, client)| (*number, client.link.as_fd()))
    }

    /// Whether the one that started the VM is still there.
    pub(super) fn has_owner(&self) -> bool {
        self.all.contains_key(&OWNER)
    }

    /// Process behind a client.
    pub(super) fn pid(&self, number: u64) -> i32 {
        self.all.get(&number).map_or(0, |client| client.pid)
    }

    /// The next message of a client. Hellos are dealt with here.
    pub(super) fn receive(&mut self, number: u64) -> Heard {
        let Some(client) = self.all.get_mut(&number) else { return Heard::Nothing };
        match client.link.receive() {
            Ok(Some((ToSupervisor::Hello { version, watch }, _))) if !client.greeted => {
                if version != VERSION {
                    let text = format!("this VM is kept by a corten that speaks version {VERSION}");
                    self.send(number, &ToClient::Note { text }, &[]);
                    return self.remove(number);
                }
                client.greeted = true;
                client.watches = watch;
                if watch { Heard::Watches } else { Heard::Nothing }
            }
            Ok(Some((message, grant))) if client.greeted => Heard::Message(message, grant),
            Ok(Some(_)) => {
                say("a client did not say hello first, or twice, and is let go");
                self.remove(number)
            }
            Ok(None) => Heard::Nothing,
            Err(error) => {
                if !matches!(error, LinkError::Closed) {
                    say(&format!("a client is let go: {}", link_failed(&error)));
                }
                self.remove(number)
            }
        }
    }

    /// Lets one go.
    pub(super) fn remove(&mut self, number: u64) -> Heard {
        let client = self.all.remove(&number);
        Heard::Gone { held: client.is_some_and(|client| client.holds) }
    }

    /// Notes whether the machine is paused for a client.
    pub(super) fn set_holds(&mut self, number: u64, holds: bool) {
        if let Some(client) = self.all.get_mut(&number) {
            client.holds = holds;
        }
    }

    /// Answers a client, if it is still there.
    pub(super) fn answer(&self, number: u64, id: u64, answer: Answer) {
        self.answer_with(number, id, answer, &[]);
    }

    /// Answers with descriptors.
    pub(super) fn answer_with(
        &self,
        number: u64,
        id: u64,
        answer: Answer,
        given: &[(Role, OwnedFd)],
    ) {
        let roles = given.iter().map(|(role, _)| role.clone()).collect();
        let fds: Vec<BorrowedFd<'_>> = given.iter().map(|(_, fd)| fd.as_fd()).collect();
        self.send(number, &ToClient::Reply { id, answer, roles }, &fds);
    }

    /// Tells one of them.
    pub(super) fn tell_one(&self, number: u64, message: &ToClient) {
        self.send(number, message, &[]);
    }

    /// Tells those who watch.
    pub(super) fn tell(&self, message: &ToClient) {
        for (number, client) in &self.all {
            if client.watches {
                self.send(*number, message, &[]);
            }
        }
    }

    /// Tells everybody.
    pub(super) fn tell_all(&self, message: &ToClient) {
        self.all.keys().for_each(|number| self.send(*number, message, &[]));
    }

    /// What a client does not take is lost for it: it is noticed when it is read from, or it waits in vain.
    fn send(&self, number: u64, message: &ToClient, descriptors: &[BorrowedFd<'_>]) {
        let sent = self.all.get(&number).map(|client| client.link.send(message, descriptors));
        if let Some(Err(error)) = sent.filter(|sent| !matches!(sent, Err(LinkError::Closed))) {
            say(&format!("client {} was not told: {}", self.pid(number), link_failed(&error)));
        }
    }
}
