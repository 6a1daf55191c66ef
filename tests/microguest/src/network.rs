//! What comes of the command `network`.

use std::fmt;

use crate::draw::draws;
use crate::protocol::{NETWORK_LARGEST, NETWORK_SMALLEST};

/// Settings of the command `network`, which its text gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkWork {
    /// Frames.
    pub rounds: usize,
    /// Another one, other frames. Not 0.
    pub seed: u64,
}

impl fmt::Display for NetworkWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network rounds={} seed={:#x}", self.rounds, self.seed)
    }
}

impl NetworkWork {
    /// What the guest sends, each as soon as it has received the one before it.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        let frame = |draw: u64| {
            let range = NETWORK_LARGEST - NETWORK_SMALLEST + 1;
            let length = NETWORK_SMALLEST + (draw & 0xffff_ffff) % range;
            let mut frame: Vec<u8> =
                (0..length).map(|at| ((draw >> 32) + at).to_le_bytes()[0]).collect();
            frame[..6].fill(0xff);
            frame[6..12].fill(2);
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame
        };
        draws(self.seed).take(self.rounds).map(frame).collect()
    }

    /// What the guest writes to its console when it is through.
    pub fn console_line(&self) -> String {
        format!("network: {:#018x} bytes\n", self.frames().concat().len())
    }
}
