//! What comes of the command `console`.

use std::fmt;

use crate::draw::{drawn_bytes, draws};
use crate::protocol::CONSOLE_LARGEST;

/// Settings of the command `console`, which its text gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsoleWork {
    /// How often it sends and receives.
    pub rounds: usize,
    /// Another one, other bytes. Not 0.
    pub seed: u64,
}

impl fmt::Display for ConsoleWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "console rounds={} seed={:#x}", self.rounds, self.seed)
    }
}

impl ConsoleWork {
    /// What the guest sends, and wants to receive.
    pub fn stream(&self) -> Vec<u8> {
        let part = |draw| drawn_bytes(draw, CONSOLE_LARGEST);
        draws(self.seed).take(self.rounds).flat_map(part).collect()
    }

    /// What the guest writes to its serial port when it is through.
    pub fn console_line(&self) -> String {
        format!("console: {:#018x} bytes\n", self.stream().len())
    }
}
