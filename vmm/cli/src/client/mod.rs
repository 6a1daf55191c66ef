//! Links to supervisors.

pub mod attach;
pub mod progress;
pub mod terminal;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use corten_link::{Grant, LinkError, Role};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use thiserror::Error;

use crate::place::{PlaceError, Runtime};
use crate::protocol::{
    Answer, ClientEnd, Ended, Question, SOCKET, Status, ToClient, ToSupervisor, VERSION,
    link_failed,
};

/// How long a supervisor may take to answer. It answers at once, unless the machine is overloaded or a snapshot is written.
const PATIENCE: Duration = Duration::from_secs(20);
/// A guest's agent may have to write back all that is dirty, after what it is doing now.
const AGENT_PATIENCE: Duration = Duration::from_secs(120);

/// Why a supervisor cannot be asked.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Its run directory.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// It cannot be reached.
    #[error("cannot connect to {path}")]
    Connect {
        /// Its socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// The link broke.
    #[error("the supervisor of {name} is gone: {}", link_failed(.source))]
    Gone {
        /// Of which VM.
        name: String,
        /// How.
        source: LinkError,
    },
    /// It does not answer.
    #[error("the supervisor of {0} does not answer")]
    Silent(String),
    /// It is of another release.
    #[error(
        "the supervisor of {name} speaks version {version}, this corten version {VERSION}: use the corten that started it"
    )]
    Version {
        /// Of which VM.
        name: String,
        /// What it speaks.
        version: u16,
    },
    /// It said no.
    #[error("{name}: {reason}")]
    Refused {
        /// Which VM.
        name: String,
        /// Why.
        reason: String,
    },
    /// It said something else than an answer.
    #[error("the supervisor of {0} answers something else")]
    Unexpected(String),
    /// It ended meanwhile.
    #[error("{name} has ended: {}", .end.text())]
    Ended {
        /// Which VM.
        name: String,
        /// How.
        end: Box<Ended>,
    },
}

/// A link to a supervisor.
#[derive(Debug)]
pub struct Client {
    link: ClientEnd,
    name: String,
    last_id: u64,
}

impl Client {
    /// Connects to the supervisor of a VM.
    pub fn connect(runtime: &Runtime, name: &str) -> Result<Self, ClientError> {
        let path = runtime.of(name)?.join(SOCKET);
        let not_running = || ClientError::Place(PlaceError::NotRunning(name.into()));
        if !runtime.is_running(name) {
            return Err(not_running());
        }
        let deadline = Instant::now() + PATIENCE;
        let failed = |source| ClientError::Connect { path: path.clone(), source };
        let address = UnixAddr::new(&path).map_err(failed)?;
        let link = loop {
            let kind = SockType::SeqPacket;
            let link = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None);
            let link = link.map_err(failed)?;
            match connect(link.as_raw_fd(), &address) {
                Ok(()) => break link,
                // It has the directory but does not listen yet, or is about to go.
                Err(Errno::ENOENT | Errno::ECONNREFUSED) if Instant::now() < deadline => {
                    if !runtime.is_running(name) {
                        return Err(not_running());
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(source) => return Err(failed(source)),
            }
        };
        let gone = |source| ClientError::Gone { name: name.into(), source };
        Self::over(ClientEnd::from_fd(link).map_err(gone)?, name, false)
    }

    /// Takes a link to a supervisor that begins.
    pub fn over(link: ClientEnd, name: &str, watch: bool) -> Result<Self, ClientError> {
        let client = Self { link, name: name.into(), last_id: 0 };
        client.send(&ToSupervisor::Hello { version: VERSION, watch }, &[])?;
        Ok(client)
    }

    /// Name of the VM.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn send(&self, message: &ToSupervisor, given: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        self.link.send(message, given).map_err(|source| self.last_word(source))
    }

    /// Why it cannot be written to: it may have said so before it went.
    fn last_word(&self, source: LinkError) -> ClientError {
        loop {
            match self.link.receive() {
                Ok(Some((ToClient::Ended { end }, _))) => {
                    return ClientError::Ended { name: self.name.clone(), end: Box::new(end) };
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return self.gone(source),
            }
        }
    }

    fn gone(&self, source: LinkError) -> ClientError {
        ClientError::Gone { name: self.name.clone(), source }
    }

    /// Asks for something; the number that the answer will have.
    pub fn ask(
        &mut self,
        question: Question,
        given: &[(Role, BorrowedFd<'_>)],
    ) -> Result<u64, ClientError> {
        self.last_id += 1;
        let roles = given.iter().map(|(role, _)| role.clone()).collect();
        let fds: Vec<BorrowedFd<'_>> = given.iter().map(|(_, fd)| *fd).collect();
        self.send(&ToSupervisor::Ask { id: self.last_id, question, roles }, &fds)?;
        Ok(self.last_id)
    }

    /// Asks for something and waits for the answer. Whatever else comes before it is passed over.
    pub fn answer(&mut self, question: Question) -> Result<(Answer, Grant), ClientError> {
        self.answer_with(question, &[], PATIENCE)
    }

    /// Asks with descriptors, and waits so long.
    pub fn answer_with(
        &mut self,
        question: Question,
        given: &[(Role, BorrowedFd<'_>)],
        patience: Duration,
    ) -> Result<(Answer, Grant), ClientError> {
        let asked = self.ask(question, given)?;
        let deadline = Instant::now() + patience;
        loop {
            match self.receive_until(Some(deadline))? {
                Some((ToClient::Reply { id, answer, .. }, grant)) if id == asked => {
                    if let Answer::Refused { reason } = answer {
                        return Err(ClientError::Refused { name: self.name.clone(), reason });
                    }
                    return Ok((answer, grant));
                }
                Some((ToClient::Ended { end }, _)) => {
                    return Err(ClientError::Ended { name: self.name.clone(), end: Box::new(end) });
                }
                Some(_) => {}
                None => return Err(ClientError::Silent(self.name.clone())),
            }
        }
    }

    /// Asks for something that is only done or not.
    pub fn must(&mut self, question: Question) -> Result<(), ClientError> {
        self.answer(question).map(drop)
    }

    /// Asks how the VM is.
    pub fn status(&mut self, details: bool) -> Result<Status, ClientError> {
        let question = if details { Question::Details } else { Question::Status };
        let mut status = match self.answer(question)? {
            (Answer::Status { status }, _) => *status,
            _ => return Err(ClientError::Unexpected(self.name.clone())),
        };
        if details && let (Answer::GuestAgent { report }, _) = self.answer(Question::GuestAgent)? {
            status.guest_agent = report;
        }
        Ok(status)
    }

    /// Orders something of the guest's agent; how many file systems it did it with.
    pub fn order(&mut self, question: Question) -> Result<u64, ClientError> {
        match self.answer_with(question, &[], AGENT_PATIENCE)? {
            (Answer::FileSystems { count }, _) => Ok(count),
            _ => Err(ClientError::Unexpected(self.name.clone())),
        }
    }

    /// Takes leave: the VM goes on.
    pub fn leave(&self) -> Result<(), ClientError> {
        self.send(&ToSupervisor::Leave, &[])
    }

    /// Waits until the VM has ended.
    pub fn wait(&mut self) -> Result<Ended, ClientError> {
        loop {
            if let Some((ToClient::Ended { end }, _)) = self.receive_until(None)? {
                return Ok(end);
            }
        }
    }

    /// The next message, if one is there.
    pub fn receive(&self) -> Result<Option<(ToClient, Grant)>, ClientError> {
        let received = self.link.receive().map_err(|source| self.gone(source))?;
        match &received {
            Some((ToClient::Hello { version, .. }, _)) if *version != VERSION => {
                Err(ClientError::Version { name: self.name.clone(), version: *version })
            }
            _ => Ok(received),
        }
    }

    fn receive_until(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<(ToClient, Grant)>, ClientError> {
        loop {
            if let Some(received) = self.receive()? {
                return Ok(Some(received));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let limit = left.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            });
            // Interrupted or not, what is there is looked at again.
            let _ = poll(&mut [PollFd::new(self.link.as_fd(), PollFlags::POLLIN)], limit);
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}
