//! What comes of the command `filters`.

use std::fmt;

use crate::draw::draws;
use crate::protocol::{
    FILTERS_ADDRESS, FILTERS_ALL_MULTICAST, FILTERS_ALL_UNICAST, FILTERS_KINDS, FILTERS_LISTED,
    FILTERS_MULTICAST_TABLE, FILTERS_NO_BROADCAST, FILTERS_NO_MULTICAST, FILTERS_OWN,
    FILTERS_PROMISCUOUS, FILTERS_UNICAST_TABLE,
};
use crate::{checksum_with, word_at};

/// The address of somebody else.
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const LISTED: [u8; 6] = [2, 0, 0, 0, 0, FILTERS_LISTED];
/// A group that nobody is in.
const GROUP: [u8; 6] = [1, 0, 0, 0, 0, 0x77];
const LISTED_GROUP: [u8; 6] = [1, 0, 0, 0, 0, FILTERS_LISTED];
const BROADCAST: [u8; 6] = [0xff; 6];
/// IEEE 802's number for local experiments.
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];

/// Settings of the command `filters`, which its text gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiltersWork {
    /// How often it asks for other frames.
    pub rounds: u32,
    /// Another one, other frames. Not 0.
    pub seed: u64,
}

impl fmt::Display for FiltersWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filters rounds={} seed={:#x}", self.rounds, self.seed)
    }
}

impl FiltersWork {
    /// What the peer is to send for a frame of the guest's: one of each kind, that to the guest's own address last.
    pub fn answers(frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        let own: [u8; 6] = frame.get(6..12)?.try_into().ok()?;
        let round = frame.get(14..18)?;
        let kinds = [OTHER, LISTED, GROUP, LISTED_GROUP, BROADCAST, own];
        let answer = |(kind, to): (u32, [u8; 6])| {
            let mut answer = [&to[..], &OTHER, &EXPERIMENT, round, &kind.to_le_bytes()].concat();
            answer.resize(frame.len(), 0);
            answer
        };
        Some((0..).zip(kinds).map(answer).collect())
    }

    /// The address that the guest has in each round.
    pub fn addresses(&self) -> Vec<[u8; 6]> {
        let own = |choice| [2, 0, 0, 0, 0, FILTERS_OWN + u8::from(has(choice, FILTERS_ADDRESS))];
        self.choices().map(own).collect()
    }

    /// What the guest writes to its console when it is through.
    pub fn console_line(&self) -> String {
        let (mut frames, mut checksum) = (0, 0);
        for (round, choice) in (0..).zip(self.choices()) {
            for kind in (0..FILTERS_KINDS).filter(|kind| passes(choice, *kind)) {
                frames += 1;
                checksum = checksum_with(checksum, word_at(round, kind.into()));
            }
        }
        format!("filters: {frames:#018x} frames, {checksum:#018x}\n")
    }

    fn choices(&self) -> impl Iterator<Item = u64> {
        draws(self.seed).zip(0..self.rounds).map(|(draw, _)| draw >> 32)
    }
}

fn has(choice: u64, bit: u32) -> bool {
    choice >> bit & 1 == 1
}

/// Whether a frame of the kind reaches a guest that asked for this (virtio 1.2, section 5.1.6.5).
fn passes(choice: u64, kind: u32) -> bool {
    let asked = |bit| has(choice, bit);
    let group = !asked(FILTERS_NO_MULTICAST);
    asked(FILTERS_PROMISCUOUS)
        || match kind {
            0 => asked(FILTERS_ALL_UNICAST),
            1 => asked(FILTERS_ALL_UNICAST) || asked(FILTERS_UNICAST_TABLE),
            2 => group && asked(FILTERS_ALL_MULTICAST),
            3 => group && (asked(FILTERS_ALL_MULTICAST) || asked(FILTERS_MULTICAST_TABLE)),
            4 => !asked(FILTERS_NO_BROADCAST),
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_differ_in_what_passes() {
        let work = FiltersWork { rounds: 64, seed: 0x5eed_5eed_5eed_5eed };
        for kind in 0..FILTERS_KINDS - 1 {
            let count = work.choices().filter(|choice| passes(*choice, kind)).count();
            assert!((1..64).contains(&count), "{count} of kind {kind}");
        }
        assert!(work.choices().all(|choice| passes(choice, FILTERS_KINDS - 1)));
    }
}
