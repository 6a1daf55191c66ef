//! The superblock, and where groups of blocks have their descriptors.

use super::{Ext4, Place, ReadError};
use crate::disk_boot::source::{Window, array, le16, le32};

const MAGIC: u16 = 0xef53;
/// Its place on every volume.
const OFFSET: u64 = 1024;

const COMPATIBLE_JOURNAL: u32 = 0x4;
const COMPATIBLE_SPARSE_SUPER_2: u32 = 0x200;
const INCOMPATIBLE_COMPRESSION: u32 = 0x1;
const INCOMPATIBLE_RECOVER: u32 = 0x4;
const INCOMPATIBLE_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPATIBLE_META_GROUPS: u32 = 0x10;
const INCOMPATIBLE_EXTENTS: u32 = 0x40;
const INCOMPATIBLE_64_BIT: u32 = 0x80;
/// Also those that change nothing for a reader: file types in directories, multiple mount protection, flexible groups,
/// large attributes, a seed for checksums, large directories, content in inodes, encrypted and case-folded files.
const INCOMPATIBLE_KNOWN: u32 = 0x2
    | INCOMPATIBLE_RECOVER
    | INCOMPATIBLE_META_GROUPS
    | INCOMPATIBLE_EXTENTS
    | INCOMPATIBLE_64_BIT
    | 0x100
    | 0x200
    | 0x400
    | 0x2000
    | 0x4000
    | 0x8000
    | 0x1_0000
    | 0x2_0000;
const READ_ONLY_SPARSE_SUPER: u32 = 0x1;

/// What is needed of it.
#[derive(Debug)]
pub(super) struct Superblock {
    pub(super) block_size: usize,
    /// Blocks, as far as they are on the volume.
    pub(super) blocks: u64,
    pub(super) label: String,
    uuid: [u8; 16],
    first_data_block: u64,
    blocks_per_group: u64,
    inodes: u32,
    inodes_per_group: u32,
    inode_size: usize,
    descriptor_size: usize,
    first_meta_group: u64,
    backup_groups: [u32; 2],
    compatible: u32,
    incompatible: u32,
    read_only: u32,
    journal_inode: u32,
}

impl Superblock {
    pub(super) fn read(volume: &Window<'_>) -> Result<Option<Self>, ReadError> {
        let Some(place) = volume.part(OFFSET, 1024).filter(|place| place.size() == 1024) else {
            return Ok(None);
        };
        let bytes = place.bytes(0, 1024)?;
        if le16(&bytes, 0x38) != MAGIC {
            return Ok(None);
        }
        Self::parse(&bytes, volume.size()).map(Some)
    }

    fn parse(bytes: &[u8], size: u64) -> Result<Self, ReadError> {
        let number = |at: usize| le32(bytes, at);
        let incompatible = number(0x60);
        if incompatible & INCOMPATIBLE_JOURNAL_DEVICE != 0 {
            return Err(ReadError::Unsupported("a journal on another device"));
        }
        if incompatible & INCOMPATIBLE_COMPRESSION != 0 {
            return Err(ReadError::Unsupported("compression"));
        }
        if incompatible & !INCOMPATIBLE_KNOWN != 0 {
            return Err(ReadError::Unsupported("a feature of a newer ext4"));
        }
        let block_size = match number(0x18) {
            shift @ 0..=6 => 1024_usize << shift,
            _ => return Err(ReadError::Damaged("blocks have no size")),
        };
        let is_64_bit = incompatible & INCOMPATIBLE_64_BIT != 0;
        let high = if is_64_bit { number(0x150) } else { 0 };
        let said = u64::from(high) << 32 | u64::from(number(0x04));
        let descriptor_size = if is_64_bit { usize::from(le16(bytes, 0xfe)) } else { 32 };
        // Revision 0 has no field for it.
        let inode_size = if number(0x4c) == 0 { 128 } else { usize::from(le16(bytes, 0x58)) };
        let label = array::<16>(bytes, 0x78);
        let found = Self {
            block_size,
            blocks: said.min(size / block_size as u64),
            label: String::from_utf8_lossy(&label).trim_end_matches('\0').into(),
            uuid: array(bytes, 0x68),
            first_data_block: number(0x14).into(),
            blocks_per_group: number(0x20).into(),
            inodes: number(0x00),
            inodes_per_group: number(0x28),
            inode_size,
            descriptor_size,
            first_meta_group: number(0x104).into(),
            backup_groups: [number(0x24c), number(0x250)],
            compatible: number(0x5c),
            incompatible,
            read_only: number(0x64),
            journal_inode: number(0xe0),
        };
        let is_sane = found.blocks_per_group > 0
            && found.inodes_per_group > 0
            && (128..=block_size).contains(&inode_size)
            && (32..=block_size).contains(&descriptor_size);
        if is_sane { Ok(found) } else { Err(ReadError::Damaged("its superblock cannot be")) }
    }

    pub(super) fn kind(&self) -> &'static str {
        match (self.incompatible & INCOMPATIBLE_EXTENTS, self.compatible & COMPATIBLE_JOURNAL) {
            (0, 0) => "ext2",
            (0, _) => "ext3",
            _ => "ext4",
        }
    }

    pub(super) fn uuid(&self) -> String {
        let digits = format!("{:032x}", u128::from_be_bytes(self.uuid));
        let groups =
            [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        groups.join("-")
    }

    /// The inode of a journal in which there is something that has not reached its place yet.
    pub(super) fn unclean_journal(&self) -> Result<Option<u32>, ReadError> {
        let has_journal = self.compatible & COMPATIBLE_JOURNAL != 0;
        if !has_journal || self.incompatible & INCOMPATIBLE_RECOVER == 0 {
            return Ok(None);
        }
        match self.journal_inode {
            0 => Err(ReadError::Damaged("it has no journal, and needs one")),
            inode => Ok(Some(inode)),
        }
    }
}

impl Ext4<'_> {
    /// The bytes of an inode, and where they are on the volume.
    pub(super) fn inode_bytes(&self, number: u32) -> Result<(Vec<u8>, u64), ReadError> {
        let superblock = &self.superblock;
        let index = number.checked_sub(1).filter(|_| number <= superblock.inodes);
        let index = index.ok_or(ReadError::Damaged("an inode has an impossible number"))?;
        let group = u64::from(index / superblock.inodes_per_group);
        let within = u64::from(index % superblock.inodes_per_group) * superblock.inode_size as u64;
        let block_size = self.block_size() as u64;
        let table = self.inode_table(group)?;
        let block = table.checked_add(within / block_size);
        let block = block.ok_or(ReadError::Damaged("a table of inodes is nowhere"))?;
        let offset = usize::try_from(within % block_size).unwrap_or(usize::MAX);
        let mut bytes = vec![0; superblock.inode_size];
        self.read_block(block, offset, &mut bytes)?;
        let at = match self.place(block)? {
            Place::At(at) | Place::Escaped(at, _) => at,
            Place::Hole => 0,
        };
        Ok((bytes, at + offset as u64))
    }

    /// First block of a group's table of inodes.
    fn inode_table(&self, group: u64) -> Result<u64, ReadError> {
        let superblock = &self.superblock;
        let size = superblock.descriptor_size;
        let each = (self.block_size() / size) as u64;
        let table = group / each;
        let first = superblock.first_data_block;
        // The superblock's own: also with clusters of small blocks, where the first group begins before it.
        let own = OFFSET / self.block_size() as u64;
        let is_meta = superblock.incompatible & INCOMPATIBLE_META_GROUPS != 0;
        let block = if is_meta && table >= superblock.first_meta_group {
            let group = table.saturating_mul(each);
            let start = group.saturating_mul(superblock.blocks_per_group).saturating_add(first);
            let before = if group == 0 { own.saturating_sub(first) } else { 0 };
            start.saturating_add(u64::from(self.has_superblock(group)) + before)
        } else {
            own.saturating_add(1).saturating_add(table)
        };
        let offset = usize::try_from(group % each).unwrap_or(0) * size;
        let mut descriptor = vec![0; size];
        self.read_block(block, offset, &mut descriptor)?;
        let high = if size >= 64 { le32(&descriptor, 0x28) } else { 0 };
        Ok(u64::from(high) << 32 | u64::from(le32(&descriptor, 0x08)))
    }

    /// Whether a group begins with a copy of the superblock.
    fn has_superblock(&self, group: u64) -> bool {
        let superblock = &self.superblock;
        if superblock.compatible & COMPATIBLE_SPARSE_SUPER_2 != 0 {
            return group == 0
                || superblock.backup_groups.iter().any(|backup| u64::from(*backup) == group);
        }
        let is_power_of = |base: u64| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        };
        superblock.read_only & READ_ONLY_SPARSE_SUPER == 0
            || group <= 1
            || [3, 5, 7].into_iter().any(is_power_of)
    }
}
