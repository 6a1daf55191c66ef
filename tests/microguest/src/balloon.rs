//! What comes of the command `balloon`.

use std::fmt;

use crate::draw::draws;

/// Settings of the command `balloon`, which its text gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalloonWork {
    /// How often it gives pages and takes them back.
    pub rounds: usize,
    /// Another one, other pages. Not 0.
    pub seed: u64,
}

impl fmt::Display for BalloonWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "balloon rounds={} seed={:#x}", self.rounds, self.seed)
    }
}

impl BalloonWork {
    /// What the guest writes to its console when it is through, having found every page as it must be.
    pub fn console_line(&self) -> String {
        let pages = draws(self.seed).take(self.rounds).map(|draw| 1 + (draw & 0xffff_ffff) % 8);
        format!("balloon: {:#018x} pages\n", pages.sum::<u64>())
    }
}
