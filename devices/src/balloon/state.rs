//! What is saved of a balloon. Not which pages are in it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::State;

/// A balloon as it was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalloonState {
    /// Pages that the owner wants in it.
    pub target_pages: u32,
    /// Pages that the driver says are in it.
    pub actual_pages: u32,
    /// How often statistics are asked for.
    pub statistics_interval: Option<Duration>,
    /// Head of the chain that is held to ask by.
    pub held: Option<u16>,
}

impl State for BalloonState {
    const KIND: &'static str = "balloon";
    const VERSION: u16 = 1;
}

impl BalloonState {
    /// What it says that cannot be, of a balloon with queues of this size.
    pub(super) fn check(&self, queue_size: u16) -> Result<(), String> {
        match self.held {
            Some(head) if head >= queue_size => {
                Err(format!("it holds descriptor {head} of a queue of {queue_size}"))
            }
            _ => Ok(()),
        }
    }
}
