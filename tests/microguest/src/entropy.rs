//! What comes of the command `entropy`.

use std::fmt;

use crate::draw::next_draw;
use crate::protocol::ENTROPY_LARGEST;

/// Settings of the command `entropy`, which its text gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntropyWork {
    /// Requests.
    pub rounds: u64,
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
        let draws = std::iter::successors(Some(self.seed), |draw| Some(next_draw(*draw))).skip(1);
        let lengths = draws.map(|draw| 1 + (draw & 0xffff_ffff) % ENTROPY_LARGEST);
        let count = usize::try_from(self.rounds).expect("a guest makes no more requests");
        format!("entropy: {:#018x} bytes\n", lengths.take(count).sum::<u64>())
    }
}
