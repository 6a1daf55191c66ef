//! What clients and a supervisor say to each other.
//!
//! The supervisor listens in the run directory; `corten run` is connected to it from the start. Both begin with a hello.
//! From then on the client asks, each time with a number that the answer repeats, and the supervisor tells phases and the
//! end by itself. Messages are those of every link: JSON of at most 64 KiB, descriptors beside it. Only the user that the
//! supervisor runs as, and root, can reach the socket.

use corten_launcher::log::chain;
use corten_link::AgentReport;
use corten_link::launcher::{Channel, Wire};
use corten_link::{BootOrigin, Counters, EndReason, LinkError, Memory, Role, RunState};
use serde::{Deserialize, Serialize};

use crate::phase::Reached;

/// Version of these messages. Client and supervisor are the same program, but perhaps not of the same release.
pub const VERSION: u16 = 1;
/// Name of the socket in the run directory.
pub const SOCKET: &str = "control.sock";

/// The supervisor's end.
pub type SupervisorEnd = Channel<ToClient, ToSupervisor>;
/// A client's end.
pub type ClientEnd = Channel<ToSupervisor, ToClient>;

/// From a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToSupervisor {
    /// The first message.
    Hello {
        /// Version that the client speaks.
        version: u16,
        /// Whether it is to be told of phases.
        watch: bool,
    },
    /// It wants something.
    Ask {
        /// Told again in the answer.
        id: u64,
        /// What.
        question: Question,
        /// One role for each descriptor that comes with the message.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        roles: Vec<Role>,
    },
    /// It goes, and the VM is to go on.
    Leave,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Question {
    /// How the VM is.
    Status,
    /// How the VM is, in numbers too.
    Details,
    /// A stream of the console: the answer comes with one as `connection`.
    Attach {
        /// Whether to type as well.
        keyboard: Keyboard,
    },
    /// Press the power button, and kill it after so many seconds.
    Stop {
        /// None for what the manifest says.
        grace: Option<u32>,
    },
    /// End it at once.
    Kill,
    /// Stop its processors.
    Pause {
        /// Until the client goes, if that is before it asks to go on.
        hold: bool,
    },
    /// Let them go on.
    Resume,
    /// What is known by the guest's agent. Its answer can be as long as a message may be, so it is no part of the details.
    GuestAgent,
    /// Freeze the guest's file systems, at most for so many seconds.
    Freeze {
        /// None for the agent's usual limit.
        limit: Option<u32>,
    },
    /// Thaw the guest's file systems.
    Thaw,
    /// Write a paused machine to the files that come with the question.
    Snapshot,
    /// End it: all of it was saved, and it goes on from there.
    EndSaved,
    /// What is needed to go on with it: the answer comes with the job as `records` and files that nobody else has.
    Belongings,
}

/// What a client does with the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keyboard {
    /// Nothing.
    No,
    /// Types, if nobody else does.
    IfFree,
    /// Types, and whoever did it before does not any more.
    Take,
}

/// From the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToClient {
    /// The first message.
    Hello {
        /// Version that the supervisor speaks.
        version: u16,
        /// The VM's name.
        name: String,
    },
    /// What came of a question.
    Reply {
        /// That of the question.
        id: u64,
        /// In particular.
        answer: Answer,
        /// One role for each descriptor that comes with the message.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        roles: Vec<Role>,
    },
    /// A phase is over.
    Reached {
        /// Which one.
        reached: Reached,
    },
    /// Something that whoever watches should know.
    Note {
        /// In words.
        text: String,
    },
    /// It is over. The supervisor cleans up and ends next.
    Ended {
        /// How.
        end: Ended,
    },
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Answer {
    /// It was done.
    Done,
    /// It was not done, and nothing has changed.
    Refused {
        /// Why.
        reason: String,
    },
    /// How the VM is.
    Status {
        /// In particular.
        status: Box<Status>,
    },
    /// What is known by the guest's agent.
    GuestAgent {
        /// None if the machine has no port for one, or does not run yet.
        report: Option<Box<AgentReport>>,
    },
    /// File systems were frozen or thawed.
    FileSystems {
        /// How many; 0 if they were before.
        count: u64,
    },
    /// The stream that came with it is the console's.
    Attached {
        /// Whether what is written to it is typed.
        types: bool,
        /// Who types instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        typist: Option<i32>,
    },
}

/// How a VM is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Whether it runs.
    pub state: State,
    /// Process that keeps it.
    pub supervisor: i32,
    /// Process that is it, once there is one.
    pub process: Option<i32>,
    /// Seconds since it was started.
    pub uptime: u64,
    /// Number of processors.
    pub vcpus: Option<u32>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// How often the guest was reset.
    pub resets: Option<u64>,
    /// What the guest was booted from, or why from nothing; none before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootOrigin>,
    /// Phases that are over.
    pub phases: Vec<Reached>,
    /// What keeps the VM process in, and what does not because the user may not.
    pub jail: Vec<String>,
    /// What was counted, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Box<Counters>>,
    /// How memory is used, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_use: Option<Box<Memory>>,
    /// What is known by the guest's agent, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_agent: Option<Box<AgentReport>>,
}

/// Whether a VM runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Not yet.
    Preparing,
    /// It does.
    Running,
    /// It is paused.
    Paused,
    /// It is about to end.
    Stopping,
}

impl State {
    /// In a word.
    pub fn text(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
        }
    }
}

impl From<RunState> for State {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Running => Self::Running,
            RunState::Paused => Self::Paused,
        }
    }
}

/// How a VM ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Ended {
    /// Why.
    pub reason: EndReason,
    /// More of it.
    #[serde(default)]
    pub detail: String,
    /// Its time was over.
    #[serde(default)]
    pub timed_out: bool,
    /// It was saved, and ended for that.
    #[serde(default, skip_serializing_if = "is_false")]
    pub saved: bool,
    /// What the guest told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_status: Option<u8>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Ended {
    /// In words.
    pub fn text(&self) -> String {
        if self.saved {
            return "the VM was saved; `corten restore` goes on with it".into();
        }
        let detail =
            if self.detail.is_empty() { String::new() } else { format!(": {}", self.detail) };
        format!("{}{detail}", self.reason.text())
    }
}

impl Wire for ToSupervisor {
    fn roles(&self) -> &[Role] {
        match self {
            Self::Ask { roles, .. } => roles,
            Self::Hello { .. } | Self::Leave => &[],
        }
    }
}

impl Wire for ToClient {
    fn roles(&self) -> &[Role] {
        match self {
            Self::Reply { roles, .. } => roles,
            Self::Hello { .. } | Self::Reached { .. } | Self::Note { .. } | Self::Ended { .. } => {
                &[]
            }
        }
    }
}

/// A link's error, for people.
pub fn link_failed(error: &LinkError) -> String {
    match error {
        LinkError::Closed => "it has closed the link".into(),
        other => chain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_version_1_are_golden() {
        let ask = ToSupervisor::Ask {
            id: 7,
            question: Question::Attach { keyboard: Keyboard::IfFree },
            roles: Vec::new(),
        };
        let text = r#"{"kind":"ask","id":7,"question":{"what":"attach","keyboard":"if-free"}}"#;
        assert_eq!(serde_json::to_string(&ask).unwrap(), text);
        let ended = ToClient::Ended {
            end: Ended {
                reason: EndReason::PoweredOff,
                detail: String::new(),
                timed_out: false,
                saved: false,
                guest_status: Some(3),
            },
        };
        let text = r#"{"kind":"ended","end":{"reason":"powered-off","detail":"","timed-out":false,"guest-status":3}}"#;
        assert_eq!(serde_json::to_string(&ended).unwrap(), text);
        assert_eq!(serde_json::from_str::<ToClient>(text).unwrap(), ended);
    }
}
