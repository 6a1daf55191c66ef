//! The journal (jbd2): which blocks it has in a newer form than their place.
//!
//! Its log is walked as the kernel does when it recovers: from the oldest transaction that may not have reached its
//! place, around the end of the log, to the first block that does not go on with the right number. A transaction counts
//! when it is complete. A block that was revoked is not taken from that transaction or one before it: by then it may
//! have become something else's. All numbers are big endian.

use std::collections::BTreeMap;
use std::ops::Range;

use super::inode::Inode;
use super::{Ext4, FileMap, Place, ReadError};
use crate::disk_boot::checksum::crc32c;
use crate::disk_boot::source::{be16, be32};

/// How each of its own blocks begins. A block of the file system that does is escaped.
pub(super) const MAGIC: u32 = 0xc03b_3998;

const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK_1: u32 = 3;
const SUPERBLOCK_2: u32 = 4;
const REVOKE: u32 = 5;

const FEATURE_64_BIT: u32 = 0x2;
const FEATURE_CHECKSUM_2: u32 = 0x8;
const FEATURE_CHECKSUM_3: u32 = 0x10;
const FEATURE_FAST_COMMIT: u32 = 0x20;
/// Revokes, and commits that are written with what they commit.
const FEATURES_KNOWN: u32 =
    0x1 | FEATURE_64_BIT | 0x4 | FEATURE_CHECKSUM_2 | FEATURE_CHECKSUM_3 | FEATURE_FAST_COMMIT;

const TAG_ESCAPED: u32 = 1;
const TAG_SAME_UUID: u32 = 2;
const TAG_LAST: u32 = 8;

const HEADER: usize = 12;
/// Header, and how many bytes of the block are in use.
const REVOKE_HEADER: usize = 16;
/// Blocks of fast commits where the journal does not say it.
const FAST_COMMIT_BLOCKS: u32 = 256;
/// The largest journal that mke2fs makes has 1 GiB.
const MAX_BLOCKS: u32 = 1 << 20;

/// A block of the file system that is in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    /// Where it is there, as a block of the file system.
    pub(super) block: u64,
    /// Its first bytes are [`MAGIC`], and are not there.
    pub(super) is_escaped: bool,
}

/// What the journal has.
#[derive(Debug, Default)]
pub(super) struct Replay(BTreeMap<u64, Logged>);

impl Replay {
    pub(super) fn find(&self, block: u64) -> Option<Logged> {
        self.0.get(&block).copied()
    }

    pub(super) fn has_any(&self, blocks: Range<u64>) -> bool {
        self.0.range(blocks).next().is_some()
    }

    /// What is in the journal that is this inode's content.
    pub(super) fn load(ext4: &Ext4<'_>, inode: u32) -> Result<Self, ReadError> {
        let inode = Inode::read_from(ext4, inode)?;
        if !inode.is_file() {
            return Err(ReadError::Damaged("the journal is no file"));
        }
        let map = inode.map(ext4)?;
        let log = Log::open(ext4, &map)?;
        // Nothing in it that has not reached its place.
        let Some(log) = log else { return Ok(Self::default()) };
        Ok(log.walk()?.into_replay())
    }
}

/// The journal as a circle of blocks.
struct Log<'a, 'b> {
    ext4: &'a Ext4<'b>,
    map: &'a FileMap,
    /// Where its runs begin.
    starts: Vec<u64>,
    features: u32,
    seed: u32,
    /// First block of the circle.
    first: u32,
    /// Behind its last block.
    end: u32,
    /// Block and number of the oldest transaction.
    start: u32,
    sequence: u32,
}

impl<'a, 'b> Log<'a, 'b> {
    fn open(ext4: &'a Ext4<'b>, map: &'a FileMap) -> Result<Option<Self>, ReadError> {
        let starts = map.runs.iter().scan(0_u64, |next, run| {
            let start = *next;
            *next = next.saturating_add(run.length);
            Some(start)
        });
        let mut log = Self {
            ext4,
            map,
            starts: starts.collect(),
            features: 0,
            seed: 0,
            first: 0,
            end: 1,
            start: 0,
            sequence: 0,
        };
        let (bytes, _) = log.block(0)?;
        let version = be32(&bytes, 4);
        if be32(&bytes, 0) != MAGIC || ![SUPERBLOCK_1, SUPERBLOCK_2].contains(&version) {
            return Err(ReadError::Damaged("its journal has no superblock"));
        }
        if usize::try_from(be32(&bytes, 12)).ok() != Some(ext4.block_size()) {
            return Err(ReadError::Damaged("its journal has other blocks"));
        }
        if version == SUPERBLOCK_2 {
            log.features = be32(&bytes, 0x28);
        }
        if log.features & !FEATURES_KNOWN != 0 {
            return Err(ReadError::Unsupported("a journal of a newer kind"));
        }
        log.seed = crc32c(u32::MAX, bytes.get(0x30..0x40).unwrap_or_default());
        (log.first, log.start, log.sequence) =
            (be32(&bytes, 0x14), be32(&bytes, 0x1c), be32(&bytes, 0x18));
        let blocks = u32::try_from(map.size / ext4.block_size() as u64).unwrap_or(u32::MAX);
        log.end = be32(&bytes, 0x10).min(blocks).min(MAX_BLOCKS);
        if log.features & FEATURE_FAST_COMMIT != 0 {
            let said = be32(&bytes, 0x54);
            let fast = if said == 0 { FAST_COMMIT_BLOCKS } else { said };
            log.end = log.end.saturating_sub(fast);
        }
        if log.start == 0 {
            return Ok(None);
        }
        let is_circle = log.first > 0 && log.first < log.end;
        if !is_circle || !(log.first..log.end).contains(&log.start) {
            return Err(ReadError::Damaged("its journal is no circle"));
        }
        Ok(Some(log))
    }

    /// A block of the journal, and which block of the file system it is.
    fn block(&self, number: u32) -> Result<(Vec<u8>, u64), ReadError> {
        let size = self.ext4.block_size() as u64;
        let offset = u64::from(number) * size;
        let run = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        if let (Some(start), Some(run)) = (self.starts.get(run), self.map.runs.get(run))
            && let (Place::At(at), within) = (run.place, offset - start)
            && within < run.length
        {
            let at = at.saturating_add(within);
            return Ok((self.ext4.volume.bytes(at, self.ext4.block_size())?, at / size));
        }
        Err(ReadError::Damaged("its journal has holes"))
    }

    fn has_checksums(&self) -> bool {
        self.features & (FEATURE_CHECKSUM_2 | FEATURE_CHECKSUM_3) != 0
    }

    /// Whether a block of the journal has the checksum that is in it at `at`.
    fn is_sound(&self, block: &[u8], at: usize) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let mut covered = block.to_vec();
        let Some(place) = covered.get_mut(at..at + 4) else { return false };
        place.fill(0);
        crc32c(self.seed, &covered) == be32(block, at)
    }

    /// Goes through all complete transactions.
    fn walk(&self) -> Result<Walked, ReadError> {
        let mut walked = Walked::default();
        let mut at = self.start;
        let mut sequence = self.sequence;
        let mut open = Transaction::default();
        let tail = self.ext4.block_size() - 4;
        // Each round takes one block or more of a circle that is not gone around twice.
        let mut left = self.end - self.first;
        while left > 0 {
            let (block, _) = self.block(at)?;
            if be32(&block, 0) != MAGIC || be32(&block, 8) != sequence {
                break;
            }
            (at, left) = (self.after(at), left - 1);
            match be32(&block, 4) {
                DESCRIPTOR if self.is_sound(&block, tail) => {
                    let Some(()) = self.tags(&block, sequence, (&mut at, &mut left), &mut open)?
                    else {
                        break;
                    };
                }
                REVOKE if self.is_sound(&block, tail) => self.revokes(&block, &mut open),
                // The first of the checksums that a commit has room for.
                COMMIT if self.is_sound(&block, 16) => {
                    walked.transactions.push(std::mem::take(&mut open));
                    sequence = sequence.wrapping_add(1);
                }
                _ => break,
            }
        }
        Ok(walked)
    }

    fn after(&self, block: u32) -> u32 {
        if block + 1 >= self.end { self.first } else { block + 1 }
    }

    /// Takes the blocks that a descriptor announces; none if the log ends among them.
    fn tags(
        &self,
        descriptor: &[u8],
        sequence: u32,
        (at, left): (&mut u32, &mut u32),
        open: &mut Transaction,
    ) -> Result<Option<()>, ReadError> {
        let tail = if self.has_checksums() { 4 } else { 0 };
        let mut tags = &descriptor[HEADER..descriptor.len() - tail];
        while let Some(tag) = Tag::read(tags, self.features) {
            if *left == 0 {
                return Ok(None);
            }
            let (content, block) = self.block(*at)?;
            (*at, *left) = (self.after(*at), *left - 1);
            if self.has_checksums() && !tag.is_sound(crc32c_of(self.seed, sequence, &content)) {
                return Ok(None);
            }
            open.blocks.push((tag.block, Logged { block, is_escaped: tag.is_escaped }));
            if tag.is_last {
                break;
            }
            tags = tags.get(tag.length..).unwrap_or_default();
        }
        Ok(Some(()))
    }

    fn revokes(&self, block: &[u8], open: &mut Transaction) {
        let tail = if self.has_checksums() { 4 } else { 0 };
        let used = usize::try_from(be32(block, HEADER)).unwrap_or(usize::MAX);
        let used = used.min(block.len() - tail);
        let entries = block.get(REVOKE_HEADER..used).unwrap_or_default();
        if self.features & FEATURE_64_BIT != 0 {
            let numbers = entries.as_chunks::<8>().0.iter();
            open.revoked.extend(numbers.map(|bytes| u64::from_be_bytes(*bytes)));
        } else {
            let numbers = entries.as_chunks::<4>().0.iter();
            open.revoked.extend(numbers.map(|bytes| u64::from(u32::from_be_bytes(*bytes))));
        }
    }
}

fn crc32c_of(seed: u32, sequence: u32, content: &[u8]) -> u32 {
    crc32c(crc32c(seed, &sequence.to_be_bytes()), content)
}

/// What a descriptor says of one block.
struct Tag {
    block: u64,
    checksum: Checksum,
    is_escaped: bool,
    is_last: bool,
    /// Of this tag.
    length: usize,
}

enum Checksum {
    Half(u16),
    Whole(u32),
}

impl Tag {
    /// None at the end of the descriptor.
    fn read(bytes: &[u8], features: u32) -> Option<Self> {
        let is_64_bit = features & FEATURE_64_BIT != 0;
        let (length, flags, high, checksum) = if features & FEATURE_CHECKSUM_3 != 0 {
            (16, be32(bytes, 4), be32(bytes, 8), Checksum::Whole(be32(bytes, 12)))
        } else {
            let spare = if features & FEATURE_CHECKSUM_2 != 0 { 2 } else { 0 };
            let length = if is_64_bit { 12 } else { 8 } + spare;
            let (checksum, flags) = (be16(bytes, 4), be16(bytes, 6));
            (length, u32::from(flags), be32(bytes, 8), Checksum::Half(checksum))
        };
        bytes.get(..length)?;
        let high = if is_64_bit { high } else { 0 };
        let uuid = if flags & TAG_SAME_UUID != 0 { 0 } else { 16 };
        Some(Self {
            block: u64::from(high) << 32 | u64::from(be32(bytes, 0)),
            checksum,
            is_escaped: flags & TAG_ESCAPED != 0,
            is_last: flags & TAG_LAST != 0,
            length: length + uuid,
        })
    }

    fn is_sound(&self, found: u32) -> bool {
        match self.checksum {
            Checksum::Whole(expected) => found == expected,
            Checksum::Half(expected) => found & 0xffff == u32::from(expected),
        }
    }
}

/// What one transaction did.
#[derive(Debug, Default)]
struct Transaction {
    blocks: Vec<(u64, Logged)>,
    revoked: Vec<u64>,
}

/// All complete transactions, the oldest first.
#[derive(Debug, Default)]
struct Walked {
    transactions: Vec<Transaction>,
}

impl Walked {
    fn into_replay(self) -> Replay {
        let mut blocks = BTreeMap::new();
        for Transaction { blocks: written, revoked } in self.transactions {
            blocks.extend(written);
            for block in revoked {
                blocks.remove(&block);
            }
        }
        Replay(blocks)
    }
}
