//! What node agent and launcher say to each other.
//!
//! The launcher listens, the agent connects, again after each restart of its own. Both begin with a hello. From then on
//! the agent asks, each time with a number that the answer repeats, and the launcher also tells things by itself:
//!
//! ```text
//!   agent                                   launcher
//!     hello {version, agent}           <->    hello {version, launcher, state, vmi}
//!     start {id, vmi, grace} + kvm      ->
//!                                      <-     reply {id, done}
//!                                      <-     state {preparing}, state {running}
//!     info, power-button, kill {id}     ->
//!                                      <-     reply {id, ...}
//!                                      <-     ended {reason, detail}, and the link closes
//! ```
//!
//! A launcher that must not be started is told `dismiss {reason}` in the place of `start`, and ends.
//!
//! A launcher outlives many agents, so the two are often of different releases. Each says the newest version it speaks
//! and both keep to the older one ([`agreed`]); a field that a peer does not know is passed over, not refused.

mod channel;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use channel::{AgentEnd, Channel, LauncherEnd, Wire};

use crate::{EndReason, Event, Info, MessageError, Role};

/// Newest version of these messages that this build speaks.
pub const VERSION: u16 = 1;

/// Name of the launcher's socket in its device directory.
pub const SOCKET: &str = "launcher.sock";

/// The version that both speak, for a peer whose newest is `theirs`.
pub fn agreed(theirs: u16) -> Result<u16, MessageError> {
    match theirs {
        0 => Err(MessageError::Version(0)),
        _ => Ok(theirs.min(VERSION)),
    }
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToLauncher {
    /// The first message.
    Hello {
        /// Newest version that the agent speaks.
        version: u16,
        /// Its name and release, for logs.
        agent: String,
    },
    /// Make this VMI's machine and run it. Comes with /dev/kvm and, where the node has it, /dev/userfaultfd.
    Start {
        /// Told again in the reply.
        id: u64,
        /// The object as the API server has it.
        vmi: Map<String, Value>,
        /// Seconds from a SIGTERM to the kill.
        #[serde(rename = "grace")]
        grace_seconds: u32,
        /// One role for each descriptor that comes with the message.
        roles: Vec<Role>,
    },
    /// This launcher will be given nothing: it ends as one that could not be started. Nothing to one that was started.
    Dismiss {
        /// Why.
        reason: String,
    },
    /// Press the guest's power button.
    PowerButton {
        /// Told again in the reply.
        id: u64,
    },
    /// Say how the VM is.
    Info {
        /// Told again in the reply.
        id: u64,
    },
    /// End the VM at once.
    Kill {
        /// Told again in the reply.
        id: u64,
    },
}

/// From the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToAgent {
    /// The first message.
    Hello {
        /// Newest version that the launcher speaks.
        version: u16,
        /// Its name and release, for logs.
        launcher: String,
        /// How far it is.
        state: State,
        /// Uid of the VMI that it was started with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vmi: Option<String>,
    },
    /// What came of a request.
    Reply {
        /// That of the request.
        id: u64,
        /// In particular.
        reply: Answer,
    },
    /// It came to another state.
    State {
        /// The new one.
        state: State,
    },
    /// The VM process told something.
    Event {
        /// What.
        event: Event,
    },
    /// It is over. The launcher ends next, with the reason's exit status.
    Ended {
        /// Why.
        reason: EndReason,
        /// More of it: registers, an error.
        detail: String,
    },
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Answer {
    /// It was done.
    Done,
    /// It was not done, and nothing has changed.
    Refused {
        /// Why.
        reason: String,
    },
    /// It was started with this VMI before.
    Started {
        /// How far it is.
        state: State,
    },
    /// How the VM is.
    Info {
        /// In particular.
        info: Info,
    },
}

/// How far a launcher is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// No agent has said yet what to run.
    Waiting,
    /// The VM process is being started.
    Preparing,
    /// Its vCPUs run, or are paused.
    Running,
    /// The VM process has ended.
    Ended,
}

impl Wire for ToLauncher {
    fn roles(&self) -> &[Role] {
        match self {
            Self::Start { roles, .. } => roles,
            _ => &[],
        }
    }
}

impl Wire for ToAgent {
    fn roles(&self) -> &[Role] {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same<M: Wire + std::fmt::Debug>(recorded: &str, descriptors: usize) {
        let message: M = channel::decode(recorded.as_bytes(), descriptors).unwrap();
        let encoded = channel::encode(&message).unwrap();
        assert_eq!(String::from_utf8(encoded).unwrap(), recorded, "{message:?}");
    }

    #[test]
    fn agents_messages_of_version_1_read_as_recorded() {
        same::<ToLauncher>(r#"{"kind":"hello","version":1,"agent":"corten-node-agent 0.1.0"}"#, 0);
        let start = r#"{"kind":"start","id":1,"vmi":{"metadata":{"uid":"u"}},"grace":180,"roles":["kvm","uffd"]}"#;
        same::<ToLauncher>(start, 2);
        same::<ToLauncher>(r#"{"kind":"dismiss","reason":"it was started before"}"#, 0);
        for kind in ["power-button", "info", "kill"] {
            same::<ToLauncher>(&format!(r#"{{"kind":"{kind}","id":7}}"#), 0);
        }
    }

    #[test]
    fn launchers_messages_of_version_1_read_as_recorded() {
        let launcher = r#""launcher":"corten-launcher 0.1.0""#;
        same::<ToAgent>(
            &format!(r#"{{"kind":"hello","version":1,{launcher},"state":"waiting"}}"#),
            0,
        );
        same::<ToAgent>(
            &format!(r#"{{"kind":"hello","version":1,{launcher},"state":"running","vmi":"u"}}"#),
            0,
        );
        same::<ToAgent>(r#"{"kind":"reply","id":1,"reply":{"what":"done"}}"#, 0);
        same::<ToAgent>(r#"{"kind":"reply","id":1,"reply":{"what":"refused","reason":"no"}}"#, 0);
        same::<ToAgent>(
            r#"{"kind":"reply","id":1,"reply":{"what":"started","state":"preparing"}}"#,
            0,
        );
        same::<ToAgent>(r#"{"kind":"state","state":"ended"}"#, 0);
        same::<ToAgent>(r#"{"kind":"event","event":{"what":"reset"}}"#, 0);
        same::<ToAgent>(r#"{"kind":"ended","reason":"powered-off","detail":""}"#, 0);
    }

    #[test]
    fn field_of_a_later_release_is_passed_over() {
        let newer = br#"{"kind":"hello","version":9,"agent":"later","cluster":"x"}"#;
        let hello: ToLauncher = channel::decode(newer, 0).unwrap();
        assert_eq!(hello, ToLauncher::Hello { version: 9, agent: "later".into() });
    }

    #[test]
    fn the_older_version_is_spoken_and_none_is_no_version() {
        assert_eq!(agreed(VERSION).unwrap(), VERSION);
        assert_eq!(agreed(VERSION + 8).unwrap(), VERSION);
        assert!(matches!(agreed(0), Err(MessageError::Version(0))));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = channel::decode::<ToLauncher>(&bytes, 0);
            let _ = channel::decode::<ToAgent>(&bytes, 0);
        }
    }
}
