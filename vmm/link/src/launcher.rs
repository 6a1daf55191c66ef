//! What node agent and launcher say to each other.
//!
//! The launcher listens, the agent connects, again after each restart of its own. Both begin with a hello. From then on
//! the agent asks, each time with a number that the answer repeats, and the launcher also tells things by itself:
//!
//! ```text
//!   agent                                   launcher
//!     hello {version, agent}           <->    hello {version, launcher, state, vmi, applied} + netns
//!     start {id, vmi, grace, interfaces} + kvm, tap/..., dhcp4/...   ->
//!                                      <-     reply {id, done}
//!                                      <-     state {preparing}
//!                                      <-     unopenable {ticket} + disk/...
//!     opened-up {ticket, refused}       ->
//!                                      <-     state {running}, vm {running}, applied {hash}
//!                                      <-     guest {report}, each time that there is news
//!                                      <-     sign {console-silent, power-button, ...}
//!     apply {id, vmi, grace}            ->
//!                                      <-     reply {id, done}, applied {hash}
//!     info, counters, memory, pause, resume, power-button, kill {id}   ->
//!                                      <-     reply {id, ...}
//!                                      <-     ended {reason, detail, console}, and the link closes
//! ```
//!
//! The launcher's hello brings its network namespace (`netns`): the agent connects the guest's interfaces there. What the
//! launcher may not open although it is its own (a claim's block device, a file of root's) it shows as an O_PATH descriptor;
//! the agent makes it the launcher's, and the launcher opens it itself.
//!
//! A launcher that must not be started is told `dismiss {reason}` in the place of `start`, and ends.
//!
//! A launcher outlives many agents, so the two are often of different releases. Each says the newest version it speaks
//! and both keep to the older one ([`agreed`]); a field that a peer does not know is passed over, not refused.

mod channel;
mod sign;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use channel::{AgentEnd, Channel, LauncherEnd, Wire};
pub use sign::Sign;

use crate::{
    Addressing, AgentReport, Counters, EndReason, Event, Info, Memory, MessageError, Role, RunState,
};

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
    /// Make this VMI's machine and run it. Comes with /dev/kvm, where the node has it /dev/userfaultfd, and what its interfaces
    /// are connected to.
    Start {
        /// Told again in the reply.
        id: u64,
        /// The object as the API server has it.
        vmi: Map<String, Value>,
        /// Seconds from a SIGTERM to the kill.
        #[serde(rename = "grace")]
        grace_seconds: u32,
        /// What the agent has connected, by the names that the object has for its interfaces.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        interfaces: BTreeMap<String, ConnectedInterface>,
        /// Bytes that claims have for their disks, by the names of their volumes.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        capacities: BTreeMap<String, u64>,
        /// Name of the node, for guests that are told of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// One role for each descriptor that comes with the message.
        roles: Vec<Role>,
    },
    /// The object has changed: heed what can be heeded while the guest runs.
    Apply {
        /// Told again in the reply.
        id: u64,
        /// The object as the API server has it.
        vmi: Map<String, Value>,
        /// Seconds from a SIGTERM to the kill.
        #[serde(rename = "grace")]
        grace_seconds: u32,
    },
    /// What was shown by [`ToAgent::Unopenable`] is the launcher's now, or stays what it was.
    OpenedUp {
        /// That of the launcher's message.
        ticket: u64,
        /// Why not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
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
    /// Stop the guest until [`ToLauncher::Resume`].
    Pause {
        /// Told again in the reply.
        id: u64,
    },
    /// Let the guest go on.
    Resume {
        /// Told again in the reply.
        id: u64,
    },
    /// Say how the VM is.
    Info {
        /// Told again in the reply.
        id: u64,
    },
    /// Say what was counted.
    Counters {
        /// Told again in the reply.
        id: u64,
    },
    /// Say how memory is used.
    Memory {
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        /// Hash of the spec that it heeds ([`ToAgent::Applied`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        applied: Option<String>,
        /// `netns`, for the network namespace that it is in.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        roles: Vec<Role>,
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
    /// It cannot open what is its own. Each comes as an O_PATH descriptor, under the role of the disk that it is to be.
    Unopenable {
        /// Told again in [`ToLauncher::OpenedUp`], which it waits for.
        ticket: u64,
        /// One role for each descriptor that comes with the message.
        roles: Vec<Role>,
    },
    /// The guest runs, or stands still.
    Vm {
        /// Which of them.
        state: RunState,
        /// Why it stands still, where nobody asked for that.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        cause: String,
    },
    /// It heeds the spec of this hash from now on.
    Applied {
        /// Of the spec as JSON with sorted names.
        hash: String,
    },
    /// What the agent in the guest told, all of it anew.
    Guest {
        /// In particular.
        report: Box<AgentReport>,
    },
    /// It has seen something of its guest.
    Sign {
        /// What.
        sign: Sign,
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
        /// The last lines of the guest's serial console.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        console: String,
    },
}

/// An interface that the agent has connected. Its TAP's queues and sockets come as `tap/NAME/...`, `vhost/NAME/...`, `dhcp4/NAME` and
/// the like, where NAME is the segment of the interface's name ([`Role::segment`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ConnectedInterface {
    /// The guest's Ethernet address.
    pub mac: [u8; 6],
    /// Pairs of queues that its TAP has.
    pub pairs: u16,
    /// The largest packet that gets through.
    pub mtu: u16,
    /// What the guest is told of its addresses; none for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressing: Option<Addressing>,
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
    /// What was counted.
    Counters {
        /// The numbers.
        counters: Box<Counters>,
    },
    /// How memory is used.
    Memory {
        /// The numbers.
        memory: Memory,
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
        match self {
            Self::Hello { roles, .. } | Self::Unopenable { roles, .. } => roles,
            _ => &[],
        }
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
        let interface = r#""net1":{"mac":[2,0,0,0,0,7],"pairs":1,"mtu":1500}"#;
        let connected = format!(
            r#"{{"kind":"start","id":1,"vmi":{{}},"grace":30,"interfaces":{{{interface}}},"roles":["kvm","tap/net1/0"]}}"#
        );
        same::<ToLauncher>(&connected, 2);
        let placed = r#"{"kind":"start","id":1,"vmi":{},"grace":30,"capacities":{"data":1024},"node":"n1","roles":["kvm"]}"#;
        same::<ToLauncher>(placed, 1);
        same::<ToLauncher>(r#"{"kind":"apply","id":2,"vmi":{},"grace":30}"#, 0);
        same::<ToLauncher>(r#"{"kind":"opened-up","ticket":1}"#, 0);
        same::<ToLauncher>(r#"{"kind":"opened-up","ticket":1,"refused":"no device"}"#, 0);
        same::<ToLauncher>(r#"{"kind":"dismiss","reason":"it was started before"}"#, 0);
        for kind in ["power-button", "pause", "resume", "info", "counters", "memory", "kill"] {
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
        let applied = r#""state":"running","vmi":"u","applied":"0f","roles":["netns"]"#;
        same::<ToAgent>(&format!(r#"{{"kind":"hello","version":1,{launcher},{applied}}}"#), 1);
        same::<ToAgent>(r#"{"kind":"unopenable","ticket":1,"roles":["disk/data"]}"#, 1);
        same::<ToAgent>(r#"{"kind":"vm","state":"running"}"#, 0);
        same::<ToAgent>(r#"{"kind":"vm","state":"paused","cause":"disk data failed"}"#, 0);
        same::<ToAgent>(r#"{"kind":"applied","hash":"0f"}"#, 0);
        same::<ToAgent>(r#"{"kind":"guest","report":{"connected":false,"guest":{}}}"#, 0);
        same::<ToAgent>(r#"{"kind":"reply","id":1,"reply":{"what":"done"}}"#, 0);
        same::<ToAgent>(r#"{"kind":"reply","id":1,"reply":{"what":"refused","reason":"no"}}"#, 0);
        same::<ToAgent>(
            r#"{"kind":"reply","id":1,"reply":{"what":"started","state":"preparing"}}"#,
            0,
        );
        same::<ToAgent>(r#"{"kind":"state","state":"ended"}"#, 0);
        same::<ToAgent>(r#"{"kind":"event","event":{"what":"reset"}}"#, 0);
        same::<ToAgent>(r#"{"kind":"ended","reason":"powered-off","detail":""}"#, 0);
        same::<ToAgent>(r#"{"kind":"ended","reason":"panicked","detail":"","console":"Oops"}"#, 0);
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
