//! What is saved of a socket device. Not its connections: their host's ends stay behind.

use serde::{Deserialize, Serialize};

use crate::State;

/// A socket device as it was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VsockState {
    /// The guest's address.
    pub guest_cid: u64,
    /// Whether a driver is there, which has to be told after the load that its connections are gone.
    pub owes_reset: bool,
}

impl State for VsockState {
    const KIND: &'static str = "vsock";
    const VERSION: u16 = 1;
}
