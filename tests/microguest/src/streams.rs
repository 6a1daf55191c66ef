//! What comes of the command `streams`.

use std::fmt;

use crate::draw::{drawn_bytes, draws};
use crate::protocol::{STREAMS_CELL, STREAMS_LARGEST};

/// Settings of the command `streams`, which its text gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamsWork {
    /// How often it sends a message and has it answered.
    pub rounds: u32,
    /// Another one, other bytes. Not 0.
    pub seed: u64,
    /// How often it exits to the host in a round at most, however often it does that again.
    pub exits: u64,
}

impl fmt::Display for StreamsWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, seed, exits } = self;
        write!(f, "streams rounds={rounds} seed={seed:#x} exits={exits}")
    }
}

impl StreamsWork {
    /// What each round is about.
    pub fn messages(&self) -> Vec<Vec<u8>> {
        let rounds = draws(self.seed).zip(0..self.rounds);
        rounds.map(|(draw, _)| drawn_bytes(draw, STREAMS_LARGEST)).collect()
    }
}

/// What the guest sends before the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number of the round.
    pub round: u32,
    /// Which attempt it is, of all.
    pub attempt: u32,
    /// How many bytes follow. None are a goodbye: the host closes its end.
    pub length: u32,
}

impl Message {
    /// Bytes of it.
    pub const SIZE: usize = 12;

    /// Reads one.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let (words, _) = bytes.as_chunks();
        let word = |number: usize| u32::from_le_bytes(words[number]);
        Self { round: word(0), attempt: word(1), length: word(2) }
    }

    /// The answer to these bytes.
    pub fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let cell = |part: &[u8]| {
            let mut cell = self.attempt.to_le_bytes().to_vec();
            cell.extend(part.iter().map(|byte| !byte));
            cell.resize(4 + STREAMS_CELL as usize, 0);
            cell
        };
        bytes.chunks(STREAMS_CELL as usize).flat_map(cell).collect()
    }
}
