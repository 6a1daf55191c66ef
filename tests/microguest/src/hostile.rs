//! What the neighbour does in the command `hostile`, done again by the host.

use std::fmt;

use crate::protocol::{HOSTILE_BLOCKS, HOSTILE_STRIDE, SECTOR_SIZE};
use crate::{checksum_with, word_at};

/// Settings of the command `hostile`, which its text gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostileWork {
    /// Each is a sector written and one read.
    pub rounds: u64,
    /// Attacks during each of the two.
    pub steps: u64,
    /// Another one, other attacks and other content.
    pub seed: u64,
}

impl fmt::Display for HostileWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, steps, seed } = self;
        write!(f, "hostile rounds={rounds} steps={steps} seed={seed:#x}")
    }
}

impl HostileWork {
    /// Bytes of the neighbour's disk that are in use.
    pub const SIZE: u64 = HOSTILE_BLOCKS * SECTOR_SIZE;

    /// Does what the neighbour does on what was on its disk before, at least [`Self::SIZE`] bytes of it, and gives the
    /// checksum of what it reads.
    pub fn apply(&self, disk: &mut [u8]) -> u64 {
        let (words, _) = disk.as_chunks_mut();
        let mut checksum = 0;
        for round in 0..self.rounds {
            for (place, word) in sector(words, round).iter_mut().zip(0..) {
                *place = word_at(word, self.seed.wrapping_add(round)).to_le_bytes();
            }
            let read = sector(words, round * HOSTILE_STRIDE).iter().zip(0..);
            let mixed = read.map(|(word, place)| word_at(place, u64::from_le_bytes(*word)));
            checksum = mixed.fold(checksum, checksum_with);
        }
        checksum
    }

    /// What the guest writes to its console when the attacked device is back to good use.
    pub fn console_line(&self, checksum: u64) -> String {
        format!("hostile: peace after rounds {:#018x}, checksum {checksum:#018x}\n", self.rounds)
    }
}

/// The words of a sector.
fn sector(words: &mut [[u8; 8]], number: u64) -> &mut [[u8; 8]] {
    let number = usize::try_from(number % HOSTILE_BLOCKS).expect("there are few");
    let size = usize::try_from(SECTOR_SIZE / 8).expect("a sector is small");
    words.chunks_exact_mut(size).nth(number).expect("the disk has all sectors in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: HostileWork = HostileWork { rounds: 20, steps: 4, seed: 3 };

    fn disk(content: u8) -> Vec<u8> {
        vec![content; usize::try_from(HostileWork::SIZE).unwrap()]
    }

    #[test]
    fn checksum_depends_on_what_was_written_and_on_what_was_there() {
        let checksum = WORK.apply(&mut disk(0));
        let others = [
            HostileWork { seed: 4, ..WORK }.apply(&mut disk(0)),
            HostileWork { rounds: 19, ..WORK }.apply(&mut disk(0)),
            WORK.apply(&mut disk(1)),
        ];
        assert!(!others.contains(&checksum), "{checksum:#x} is among {others:#x?}");
        assert_eq!(HostileWork { steps: 5, ..WORK }.apply(&mut disk(0)), checksum);
    }

    #[test]
    fn each_round_writes_a_sector_of_its_own() {
        let mut disk = disk(0);
        WORK.apply(&mut disk);
        let written = disk.chunks(512).filter(|sector| sector[8..16] != [0; 8]);
        assert_eq!(written.count(), 20);
    }

    #[test]
    fn text_is_the_command_with_its_settings() {
        assert_eq!(WORK.to_string(), "hostile rounds=20 steps=4 seed=0x3");
    }
}
