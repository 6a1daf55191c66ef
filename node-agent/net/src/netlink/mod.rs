//! Netlink, as far as wiring needs it: requests that are acknowledged, dumps, and transactions of nf_tables.
//!
//! It is our own, and small, for three reasons. What is asked of the kernel is a dozen messages, each written down where
//! it is used. It has to work on a thread that is in another network namespace and ends soon: a library that wants a
//! runtime there would be in the way. And the socket that owns a table of nf_tables has to be kept: the table goes with it.
//!
//! The kernel is trusted, but what comes from it is still read with every length checked.

mod message;
mod socket;

pub(crate) use message::{Message, attributes, first, text, word};
pub(crate) use socket::{Protocol, Socket};

use nix::errno::Errno;
use thiserror::Error;

/// Why a request did not succeed.
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// There is no socket.
    #[error("cannot open a netlink socket")]
    Open(#[source] Errno),
    /// The kernel was not reached, or did not answer in time.
    #[error("the kernel does not answer over netlink")]
    Io(#[source] Errno),
    /// What came is no answer.
    #[error("the kernel's answer over netlink is malformed")]
    Malformed,
    /// The kernel's no.
    #[error("{message}")]
    Refused {
        /// Its number.
        errno: Errno,
        /// Its own words where it has some, and those of the number.
        message: String,
    },
}

impl NetlinkError {
    /// Whether the kernel said no, and with this number.
    pub(crate) fn is(&self, wanted: Errno) -> bool {
        matches!(self, Self::Refused { errno, .. } if *errno == wanted)
    }
}
