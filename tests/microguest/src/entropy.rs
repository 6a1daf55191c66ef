//! What comes of the command `entropy`.

use std::fmt;

use crate::draw::draws;
use crate::protocol::ENTROPY_LARGEST;

/// Settings of the command `entropy`, which its text gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntropyWork {
    /// Requests.
    pub rounds: usize,
    /// Another one, other lengths. Not 0.
    pub seed: u64,
}

impl fmt::Display for EntropyWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entropy rounds={} seed={:#x}", self.rounds, self.seed)
    }
}

impl EntropyWork {
    /// What the guest writes to its console when it is through.
    pub fn console_line(&self) -> String {
        let lengths = draws(self.seed).map(|draw| 1 + (draw & 0xffff_ffff) % ENTROPY_LARGEST);
        format!("entropy: {:#018x} bytes\n", lengths.take(self.rounds).sum::<u64>())
    }
}
