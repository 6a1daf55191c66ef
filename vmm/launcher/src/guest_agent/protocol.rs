//! The agent's protocol: one command, one answer, each a line of JSON (QEMU, docs/interop/qemu-ga-ref).
//!
//! Nothing ties an answer to its command but their order. Who does not know where in it he is sends
//! `guest-sync-delimited` with a number: the agent answers with a byte that occurs in no JSON (0xFF) and the number.
//! All before that byte is old. The same byte before the command has the agent's own parser begin anew.

use serde_json::{Value, json};
use thiserror::Error;

use super::answers;
use corten_link::{
    AgentCommand, FileSystems, FreezeStatus, GuestInterface, GuestUser, OperatingSystem,
};

/// The longest answer. A host of containers has a virtual interface for each of a few hundred, at 500 bytes each.
pub const MAX_LINE: usize = 256 << 10;

/// The most that is skipped in search of a sync's answer: what a guest may have had to say before.
pub const MAX_SKIPPED: usize = 1 << 20;

/// The longest text of an error that is kept.
const MAX_DESCRIPTION: usize = 256;

const SENTINEL: u8 = 0xff;

/// What is asked of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Say this number, after the sentinel.
    Sync(u64),
    /// Answer.
    Ping,
    /// Which version and which commands.
    Info,
    /// Which operating system.
    OsInfo,
    /// Which host name.
    HostName,
    /// Which time zone.
    Timezone,
    /// Who is logged in.
    Users,
    /// What is mounted.
    FileSystems,
    /// Which network interfaces and addresses.
    Interfaces,
    /// Set the clock to this many nanoseconds since the epoch.
    SetTime(u64),
    /// Freeze all file systems.
    Freeze,
    /// Thaw them.
    Thaw,
    /// Say whether they are frozen.
    FreezeStatus,
}

impl Command {
    /// All that have no argument, for tests and the fuzz target.
    pub const PLAIN: [Self; 11] = [
        Self::Ping,
        Self::Info,
        Self::OsInfo,
        Self::HostName,
        Self::Timezone,
        Self::Users,
        Self::FileSystems,
        Self::Interfaces,
        Self::Freeze,
        Self::Thaw,
        Self::FreezeStatus,
    ];

    /// The agent's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync(_) => "guest-sync-delimited",
            Self::Ping => "guest-ping",
            Self::Info => "guest-info",
            Self::OsInfo => "guest-get-osinfo",
            Self::HostName => "guest-get-host-name",
            Self::Timezone => "guest-get-timezone",
            Self::Users => "guest-get-users",
            Self::FileSystems => "guest-get-fsinfo",
            Self::Interfaces => "guest-network-get-interfaces",
            Self::SetTime(_) => "guest-set-time",
            Self::Freeze => "guest-fsfreeze-freeze",
            Self::Thaw => "guest-fsfreeze-thaw",
            Self::FreezeStatus => "guest-fsfreeze-status",
        }
    }

    /// The bytes that ask for it.
    pub fn encode(self) -> Vec<u8> {
        let name = self.name();
        let line = match self {
            Self::Sync(id) => json!({ "execute": name, "arguments": { "id": id } }),
            Self::SetTime(time) => json!({ "execute": name, "arguments": { "time": time } }),
            _ => json!({ "execute": name }),
        };
        let mut bytes = Vec::new();
        if matches!(self, Self::Sync(_)) {
            bytes.push(SENTINEL);
        }
        bytes.extend(line.to_string().into_bytes());
        bytes.push(b'\n');
        bytes
    }

    /// What a line says in answer to it.
    pub fn decode(self, line: &[u8]) -> Result<Answer, ProtocolError> {
        let value = returned(line)?;
        let answer = match self {
            Self::Sync(_) => value.as_u64().map(Answer::Number),
            Self::Ping | Self::SetTime(_) => Some(Answer::Done),
            Self::Info => answers::info(&value),
            Self::OsInfo => answers::operating_system(&value).map(Answer::OperatingSystem),
            Self::HostName => answers::host_name(&value).map(Answer::HostName),
            Self::Timezone => answers::timezone(&value).map(Answer::Timezone),
            Self::Users => answers::users(&value).map(Answer::Users),
            Self::FileSystems => answers::file_systems(&value).map(Answer::FileSystems),
            Self::Interfaces => answers::interfaces(&value).map(Answer::Interfaces),
            Self::Freeze | Self::Thaw => value.as_u64().map(Answer::Number),
            Self::FreezeStatus => answers::freeze_status(&value).map(Answer::FreezeStatus),
        };
        answer.ok_or(ProtocolError::Unexpected { command: self.name() })
    }
}

/// What an agent answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It was done.
    Done,
    /// The number of a sync, or how many file systems were frozen or thawed.
    Number(u64),
    /// Version and commands.
    Info {
        /// By its own account.
        version: String,
        /// All it knows.
        commands: Vec<AgentCommand>,
    },
    /// The operating system.
    OperatingSystem(OperatingSystem),
    /// The host name.
    HostName(String),
    /// The time zone, as [`corten_link::GuestInformation::timezone`] has it.
    Timezone(String),
    /// Who is logged in.
    Users(Vec<GuestUser>),
    /// What is mounted.
    FileSystems(FileSystems),
    /// Network interfaces.
    Interfaces(Vec<GuestInterface>),
    /// Whether file systems are frozen.
    FreezeStatus(FreezeStatus),
}

/// What is wrong with an answer.
#[derive(Debug, Error)]
pub enum ProtocolError {
    /// A line without end.
    #[error("the answer is longer than {MAX_LINE} bytes")]
    TooLong,
    /// No answer in search of one.
    #[error("there was no sign of a sync within {MAX_SKIPPED} bytes")]
    NoSentinel,
    /// Not a line of the protocol.
    #[error("the answer is no JSON")]
    NotJson(#[source] serde_json::Error),
    /// JSON that neither returns something nor tells an error.
    #[error("the answer has neither a result nor an error")]
    NoAnswer,
    /// More than was asked for.
    #[error("there is more behind the answer")]
    Trailing,
    /// The agent does not want to, or cannot.
    #[error("the agent says: {description}")]
    Refused {
        /// Its class of the error, as `GenericError`.
        class: String,
        /// Its words.
        description: String,
    },
    /// An answer, but not of the kind that the command has.
    #[error("the answer to {command} has another form than it should")]
    Unexpected {
        /// What was asked.
        command: &'static str,
    },
}

impl ProtocolError {
    /// Whether it is not known any more where in the conversation one is.
    pub fn is_garbage(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Unexpected { .. })
    }
}

fn returned(line: &[u8]) -> Result<Value, ProtocolError> {
    let mut value: Value = serde_json::from_slice(line).map_err(ProtocolError::NotJson)?;
    if let Some(error) = value.get("error") {
        let text = |name| answers::text(error, name, MAX_DESCRIPTION).unwrap_or_default();
        let (class, description) = (text("class"), text("desc"));
        return Err(ProtocolError::Refused { class, description });
    }
    value.get_mut("return").map(Value::take).ok_or(ProtocolError::NoAnswer)
}

/// Bytes that came and are not a line yet.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// So far there is no end of a line.
    searched: usize,
    skipped: usize,
}

impl Inbox {
    /// Takes in bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Begins the search for a sync's answer. What came before the sync was sent is no part of it.
    pub fn begin_sync(&mut self) {
        *self = Self::default();
    }

    /// The number behind the next sentinel, if it came. What is no such thing is skipped.
    pub fn sync(&mut self) -> Result<Option<u64>, ProtocolError> {
        loop {
            let Some(at) = self.bytes.iter().position(|byte| *byte == SENTINEL) else {
                let all = self.bytes.len();
                self.skip(all)?;
                return Ok(None);
            };
            self.skip(at)?;
            // The answer ends the line; another sentinel before that means that this one was none.
            let Some(end) = self.bytes[1..].iter().position(|b| matches!(*b, b'\n' | SENTINEL))
            else {
                if self.bytes.len() > MAX_LINE {
                    return Err(ProtocolError::TooLong);
                }
                return Ok(None);
            };
            let decoded = Command::Sync(0).decode(&self.bytes[1..=end]);
            // The sentinel that ended it may begin the next.
            self.skip(1 + end)?;
            if let Ok(Answer::Number(id)) = decoded {
                self.skip(usize::from(self.bytes.first() == Some(&b'\n')))?;
                return Ok(Some(id));
            }
        }
    }

    fn skip(&mut self, count: usize) -> Result<(), ProtocolError> {
        self.bytes.drain(..count);
        self.searched = 0;
        self.skipped += count;
        if self.skipped > MAX_SKIPPED { Err(ProtocolError::NoSentinel) } else { Ok(()) }
    }

    /// The line that came, without its end. There must be nothing behind it, as nothing else was asked for.
    pub fn line(&mut self) -> Result<Option<Vec<u8>>, ProtocolError> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end else {
            self.searched = self.bytes.len();
            if self.bytes.len() > MAX_LINE {
                return Err(ProtocolError::TooLong);
            }
            return Ok(None);
        };
        let end = self.searched + end;
        self.searched = 0;
        if end > MAX_LINE {
            return Err(ProtocolError::TooLong);
        }
        if end + 1 < self.bytes.len() {
            return Err(ProtocolError::Trailing);
        }
        let mut line = std::mem::take(&mut self.bytes);
        line.truncate(end);
        Ok(Some(line))
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
