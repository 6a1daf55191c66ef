//! What comes of the command `balloon`.

use std::fmt;

use crate::draw::draws;
use crate::word_at;

/// Settings of the command `balloon`, which its text gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalloonWork {
    /// How often it gives pages and takes them back.
    pub rounds: usize,
    /// Another one, other pages. Not 0.
    pub seed: u64,
    /// How often it wants to be asked for statistics at least.
    pub asked: u64,
}

impl fmt::Display for BalloonWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, seed, asked } = self;
        write!(f, "balloon rounds={rounds} seed={seed:#x} asked={asked}")
    }
}

impl BalloonWork {
    /// The bytes that it says are free when it says that there are as many.
    pub fn free_of(total: u64) -> u64 {
        word_at(total, 0)
    }

    /// What the guest writes to its console when it is through, having found every page as it must be.
    pub fn console_line(&self) -> String {
        let pages = draws(self.seed).take(self.rounds).map(|draw| 1 + (draw & 0xffff_ffff) % 8);
        format!("balloon: {:#018x} pages\n", pages.sum::<u64>())
    }
}
