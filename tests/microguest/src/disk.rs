//! What the command `disk` does, done again by the host: what it must report, and what must be on the disk then.

use std::fmt;

use crate::draw::next_draw;
use crate::protocol::{
    DISK_FIRST_READ, DISK_FIRST_WRITE, DISK_KIND_SHIFT, DISK_LANES, SECTOR_SIZE,
};
use crate::{checksum_with, word_at};

/// Settings of the command `disk`, which its text gives. Those that are not here change neither the checksum nor the
/// disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskWork {
    /// Requests of each lane; one at least.
    pub rounds: u64,
    /// Blocks in use, from the first on: a multiple of [`DISK_LANES`].
    pub blocks: u64,
    /// Sectors of a block, at most [`DISK_MAX_SECTORS`](crate::protocol::DISK_MAX_SECTORS).
    pub sectors: u64,
    /// Another one, other requests.
    pub seed: u64,
}

impl Default for DiskWork {
    fn default() -> Self {
        Self { rounds: 16, blocks: 64, sectors: 1, seed: 0 }
    }
}

impl fmt::Display for DiskWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, blocks, sectors, seed } = self;
        write!(f, "disk rounds={rounds} blocks={blocks} sectors={sectors} seed={seed:#x}")
    }
}

impl DiskWork {
    /// How many requests are done.
    pub fn completions(&self) -> u64 {
        DISK_LANES * self.rounds
    }

    /// Does the work on what was on the disk before, at least [`Self::size`] bytes of it, and gives the checksum.
    ///
    /// Lane after lane: they have no block in common, so the order between them does not matter.
    pub fn apply(&self, disk: &mut [u8]) -> u64 {
        let lanes = (0..DISK_LANES).map(|lane| self.apply_lane(lane, disk));
        lanes.fold(0, checksum_with)
    }

    /// What the guest writes to its console when it is through, in which hosts without a result port find the checksum.
    pub fn console_line(&self, checksum: u64) -> String {
        format!("disk: {:#018x} requests, checksum {checksum:#018x}\n", self.completions())
    }

    /// Bytes of the blocks in use.
    pub fn size(&self) -> u64 {
        self.blocks * self.block_size()
    }

    fn block_size(&self) -> u64 {
        self.sectors * SECTOR_SIZE
    }

    fn apply_lane(&self, lane: u64, disk: &mut [u8]) -> u64 {
        let mut checksum = 0;
        let mut draw = word_at(lane, self.seed) | 1;
        for _ in 0..self.rounds {
            draw = next_draw(draw);
            // The status of a request that was done is 0.
            checksum = checksum_with(checksum, 0);
            let block = self.block_of(lane, draw, disk);
            match draw >> DISK_KIND_SHIFT {
                DISK_FIRST_WRITE.. => {
                    for (place, word) in block.iter_mut().zip(0..) {
                        *place = word_at(word, draw).to_le_bytes();
                    }
                }
                DISK_FIRST_READ.. => {
                    // Each word is mixed with its place: equal ones would cancel each other out.
                    let words = block.iter().map(|word| u64::from_le_bytes(*word)).zip(0..);
                    let mixed = words.map(|(word, place)| word_at(place, word));
                    checksum = mixed.fold(checksum, checksum_with);
                }
                // A flush changes nothing that can be seen.
                _ => {}
            }
        }
        checksum
    }

    /// The words of the block that a request is for.
    fn block_of<'a>(&self, lane: u64, draw: u64, disk: &'a mut [u8]) -> &'a mut [[u8; 8]] {
        let number = lane + DISK_LANES * ((draw & 0xffff_ffff) % (self.blocks / DISK_LANES));
        let size = usize::try_from(self.block_size()).expect("a block is at most 4 KiB");
        let mut blocks = disk.chunks_exact_mut(size);
        let number = usize::try_from(number).expect("a disk in memory has no more blocks");
        blocks.nth(number).expect("the disk has all blocks in use").as_chunks_mut().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk_of(work: &DiskWork) -> Vec<u8> {
        vec![0; usize::try_from(work.size()).unwrap()]
    }

    #[test]
    fn checksum_depends_on_everything_that_is_read() {
        let work = DiskWork { rounds: 64, ..DiskWork::default() };
        let checksum = work.apply(&mut disk_of(&work));
        let mut other_disk = disk_of(&work);
        other_disk.fill(0xff);
        let others = [
            DiskWork { seed: 1, ..work }.apply(&mut disk_of(&work)),
            DiskWork { rounds: 63, ..work }.apply(&mut disk_of(&work)),
            DiskWork { blocks: 60, ..work }.apply(&mut disk_of(&work)),
            DiskWork { blocks: 32, sectors: 2, ..work }.apply(&mut disk_of(&work)),
            work.apply(&mut other_disk),
        ];
        assert!(!others.contains(&checksum), "{checksum:#x} is among {others:#x?}");
    }

    #[test]
    fn lanes_keep_to_their_blocks() {
        let work = DiskWork { rounds: 64, sectors: 2, ..DiskWork::default() };
        for lane in 0..DISK_LANES {
            let mut disk = disk_of(&work);
            work.apply_lane(lane, &mut disk);
            let written = (0..).zip(disk.chunks(1024)).filter(|(_, block)| block[8] != 0);
            let blocks: Vec<u64> = written.map(|(number, _)| number).collect();
            assert!(blocks.len() > 8 && blocks.iter().all(|block| block % DISK_LANES == lane));
        }
    }

    #[test]
    fn work_goes_on_where_earlier_work_ended() {
        let (first, second) = (DiskWork::default(), DiskWork { seed: 1, ..DiskWork::default() });
        let mut disk = disk_of(&first);
        first.apply(&mut disk);
        assert_ne!(second.apply(&mut disk), second.apply(&mut disk_of(&second)));
    }

    #[test]
    fn text_is_the_command_with_its_settings() {
        let work = DiskWork { rounds: 5, blocks: 8, sectors: 2, seed: 0x1f };
        assert_eq!(work.to_string(), "disk rounds=5 blocks=8 sectors=2 seed=0x1f");
    }
}
