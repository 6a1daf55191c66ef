//! What can be ordered of an agent, what comes of it, and what its owner is told.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use thiserror::Error;

use super::protocol::ProtocolError;

/// Orders that wait.
pub(super) const MAX_ORDERS: usize = 16;

/// What somebody wants of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A sign of life.
    Ping,
    /// All file systems frozen, at most for this long; 5 minutes if it is not said.
    Freeze {
        /// When they are thawed if nobody does it before.
        limit: Option<Duration>,
    },
    /// All file systems thawed, whoever froze them.
    Thaw,
    /// The clock set to the host's.
    SetTime,
}

/// What came of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is alive.
    Pong,
    /// File systems are frozen.
    Frozen {
        /// How many; 0 if they were before.
        file_systems: u64,
    },
    /// They are thawed.
    Thawed {
        /// How many.
        file_systems: u64,
    },
    /// The clock is set.
    TimeSet,
}

/// Why an order was not carried out.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Nobody to ask.
    #[error("the guest agent is not connected; is it installed and running in the guest?")]
    NotConnected,
    /// The guest is paused, and so is its agent.
    #[error("the guest is paused, so its agent cannot answer")]
    Paused,
    /// Too many wait.
    #[error("{MAX_ORDERS} orders already wait for the guest agent")]
    Busy,
    /// The agent does not know it, or may not do it.
    #[error("the guest agent does not offer {0}")]
    Unsupported(&'static str),
    /// It has to wait for a thaw.
    #[error("the guest's file systems are frozen; thaw them first")]
    Frozen,
    /// It answered, but not as hoped.
    #[error("{command} failed")]
    Failed {
        /// What was asked.
        command: &'static str,
        /// What was answered.
        #[source]
        source: ProtocolError,
    },
    /// The connection ended before the answer. Whether it was done is not known.
    #[error("the guest agent did not answer")]
    Lost(#[source] LostReason),
}

/// Why an agent is not connected any more.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LostReason {
    /// No program of the guest has the port open.
    #[error("it closed its port")]
    PortClosed,
    /// The VM process let the socket go.
    #[error("its port hung up")]
    HungUp,
    /// It did not answer in time.
    #[error("it did not answer {command} within {} s", .within.as_secs())]
    Silent {
        /// What it was asked.
        command: &'static str,
        /// How long was waited.
        within: Duration,
    },
    /// It does not speak the protocol.
    #[error("it sent something that is no answer: {0}")]
    Garbage(String),
    /// The guest starts anew.
    #[error("the guest was reset")]
    Reset,
    /// The guest goes on from a snapshot, in another VM process.
    #[error("the guest was restored")]
    Restored,
    /// The host has no socket for it.
    #[error("no socket could be made: {0}")]
    NoSocket(io::ErrorKind),
}

/// What the owner of a [`super::GuestAgent`] has to do or to know.
#[derive(Debug)]
pub enum Notice {
    /// Ask the VM process which ports are open, and say so by [`super::GuestAgent::port`].
    LookAtPort,
    /// Attach this socket to the agent's port. If that fails, closing it is enough.
    Attach(OwnedFd),
    /// The agent answers.
    Connected,
    /// It does not any more.
    Lost(LostReason),
    /// [`super::GuestAgent::information`] has changed.
    Learned,
    /// An order was carried out, or not.
    Done {
        /// By which it was given.
        ticket: u64,
        /// What came of it.
        outcome: Result<Outcome, AgentError>,
    },
    /// The clock was to be set after a resume or a restore.
    TimeSet(Result<(), AgentError>),
    /// File systems were to be thawed, by the limit of their freeze or for another reason of our own. If it failed, it is tried
    /// again.
    Thawed(Result<(), AgentError>),
}
