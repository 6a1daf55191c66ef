//! What comes of the command `vsock`.

use std::fmt;

use crate::draw::{drawn_bytes, draws};
use crate::protocol::VSOCK_LARGEST;

/// Settings of the command `vsock`, which its text gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VsockWork {
    /// How often it opens a stream and has one opened.
    pub rounds: u32,
    /// Another one, other bytes. Not 0.
    pub seed: u64,
    /// How often it exits to the host in a round at most, however often it does that again.
    pub exits: u64,
}

impl fmt::Display for VsockWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, seed, exits } = self;
        write!(f, "vsock rounds={rounds} seed={seed:#x} exits={exits}")
    }
}

impl VsockWork {
    /// What each round is about: the guest sends it and gets the [answer](Self::answer), then the host does.
    pub fn messages(&self) -> Vec<Vec<u8>> {
        let rounds = draws(self.seed).zip(0..self.rounds);
        rounds.map(|(draw, _)| drawn_bytes(draw, VSOCK_LARGEST)).collect()
    }

    /// What is sent back for a message.
    pub fn answer(message: &[u8]) -> Vec<u8> {
        message.iter().map(|byte| !byte).collect()
    }
}

/// What the guest sends first in each stream that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The number of the round.
    pub round: u32,
    /// Where it wants to be called afterwards.
    pub port: u32,
    /// How many bytes follow.
    pub length: u32,
}

impl Introduction {
    /// Bytes of it.
    pub const SIZE: usize = 12;

    /// Reads one.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Self {
            round: u32::from_le_bytes([a, b, c, d]),
            port: u32::from_le_bytes([e, f, g, h]),
            length: u32::from_le_bytes([i, j, k, l]),
        }
    }
}
