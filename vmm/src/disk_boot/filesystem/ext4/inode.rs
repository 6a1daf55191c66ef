//! Inodes: what a file is, and where its blocks are.

use std::ops::Range;

use super::{Ext4, FileMap, Place, ReadError, Run};
use crate::disk_boot::source::{array, le16, le32};

const KIND: u16 = 0xf000;
const FILE: u16 = 0x8000;
const DIRECTORY: u16 = 0x4000;
const LINK: u16 = 0xa000;

const ENCRYPTED: u32 = 0x800;
const EXTENTS: u32 = 0x8_0000;
const INLINE: u32 = 0x1000_0000;

/// Bytes of the place for block numbers.
const PLACES: usize = 60;
const EXTENT_MAGIC: u16 = 0xf30a;
const EXTENT_ENTRY: usize = 12;
const MAX_EXTENT_DEPTH: u16 = 5;
/// Longer extents are of that much less, and were never written to.
const UNWRITTEN: u16 = 0x8000;
/// Block numbers in the inode itself.
const DIRECT: usize = 12;

/// Where the place for block numbers is in an inode, and where what may follow the inode's first fields says how long it is.
const PLACES_AT: usize = 0x28;
const EXTRA_SIZE: usize = 0x80;
/// Attributes in an inode, behind its fields: a magic number, then entries; values are counted from the first entry on.
const ATTRIBUTES_MAGIC: u32 = 0xea02_0000;
const ATTRIBUTE: usize = 16;
/// The attribute `system.data`, which has what of the content did not fit into the place for block numbers.
const SYSTEM: u8 = 7;
const DATA: &[u8] = b"data";
/// The directory above, with which content in the inode of a directory begins.
const PARENT: usize = 4;

/// A file, directory or link.
#[derive(Debug)]
pub(super) struct Inode {
    mode: u16,
    flags: u32,
    pub(super) size: u64,
    places: [u8; PLACES],
    /// Where it is on its volume.
    at: u64,
    /// Where in it the rest of content is that it holds itself.
    rest: Range<usize>,
}

impl Inode {
    pub(super) fn read_from(ext4: &Ext4<'_>, number: u32) -> Result<Self, ReadError> {
        let (bytes, at) = ext4.inode_bytes(number)?;
        let size = u64::from(le32(&bytes, 0x6c)) << 32 | u64::from(le32(&bytes, 0x04));
        let (mode, flags) = (le16(&bytes, 0), le32(&bytes, 0x20));
        let rest = if flags & INLINE != 0 { rest_of_content(&bytes) } else { 0..0 };
        let found = Self { mode, flags, size, places: array(&bytes, PLACES_AT), at, rest };
        if found.flags & ENCRYPTED != 0 {
            return Err(ReadError::Unsupported("encryption"));
        }
        Ok(found)
    }

    pub(super) fn is_file(&self) -> bool {
        self.mode & KIND == FILE
    }

    pub(super) fn is_directory(&self) -> bool {
        self.mode & KIND == DIRECTORY
    }

    pub(super) fn is_link(&self) -> bool {
        self.mode & KIND == LINK
    }

    /// The content, if it has at most `limit` bytes.
    pub(super) fn read(&self, ext4: &Ext4<'_>, limit: u64) -> Result<Vec<u8>, ReadError> {
        super::super::check_size(self.size, limit)?;
        let short = usize::try_from(self.size).ok().and_then(|size| self.places.get(..size));
        if let Some(content) = short.filter(|_| self.is_within()) {
            return Ok(content.to_vec());
        }
        let mut content = self.map(ext4)?.read(ext4.volume(), limit)?;
        if self.flags & INLINE != 0 && self.is_directory() {
            content.drain(..PARENT.min(content.len()));
        }
        Ok(content)
    }

    /// Whether it is a link to a path that is where block numbers would be.
    fn is_within(&self) -> bool {
        let is_plain = self.flags & (EXTENTS | INLINE) == 0;
        self.is_link() && is_plain && self.size < PLACES as u64
    }

    /// The content of a file or directory without blocks.
    fn map_within(&self) -> Result<FileMap, ReadError> {
        let mut map = FileMap::new(self.size);
        let rest = self.size.saturating_sub(PLACES as u64);
        if rest > self.rest.len() as u64 {
            return Err(ReadError::Damaged("content in an inode is cut"));
        }
        let place = |offset: usize| Place::At(self.at.saturating_add(offset as u64));
        map.push(Run { place: place(PLACES_AT), length: PLACES as u64 })?;
        map.push(Run { place: place(self.rest.start), length: rest })?;
        Ok(map)
    }

    /// Where the content is. The caller has checked the size.
    pub(super) fn map(&self, ext4: &Ext4<'_>) -> Result<FileMap, ReadError> {
        if self.flags & INLINE != 0 {
            return self.map_within();
        }
        let mut map = FileMap::new(self.size);
        let blocks = self.size.div_ceil(ext4.block_size() as u64);
        if self.flags & EXTENTS != 0 {
            let mut tree = Extents { ext4, map: &mut map, next: 0, blocks };
            tree.node(&self.places, None)?;
        } else {
            let mut tree = BlockMap { ext4, map: &mut map, left: blocks };
            let number = |at: usize| le32(&self.places, at * 4);
            for at in 0..DIRECT {
                tree.data(number(at))?;
            }
            for (level, at) in (1..).zip(DIRECT..DIRECT + 3) {
                tree.indirect(number(at), level)?;
            }
        }
        Ok(map)
    }
}

/// Where in an inode its attribute with content is; nowhere if it has none.
fn rest_of_content(inode: &[u8]) -> Range<usize> {
    let start = EXTRA_SIZE + usize::from(le16(inode, EXTRA_SIZE));
    if le32(inode, start) != ATTRIBUTES_MAGIC {
        return 0..0;
    }
    let first = start + 4;
    let mut at = first;
    // Behind the last entry there are zeroes, or the end of the inode.
    while let Some([length, index]) =
        inode.get(at..at + 2).and_then(<[u8]>::first_chunk::<2>).copied()
        && le32(inode, at) != 0
    {
        let name = inode.get(at + ATTRIBUTE..at + ATTRIBUTE + usize::from(length));
        if index == SYSTEM && name == Some(DATA) {
            let start = first + usize::from(le16(inode, at + 2));
            let size = usize::try_from(le32(inode, at + 8)).unwrap_or(usize::MAX);
            let is_elsewhere = le32(inode, at + 4) != 0;
            let end = start.checked_add(size).filter(|end| *end <= inode.len() && !is_elsewhere);
            return end.map_or(0..0, |end| start..end);
        }
        at += ATTRIBUTE + usize::from(length).next_multiple_of(4);
    }
    0..0
}

/// A walk through a tree of extents.
struct Extents<'a, 'b> {
    ext4: &'a Ext4<'b>,
    map: &'a mut FileMap,
    /// Block of the file that comes next.
    next: u64,
    /// Blocks of the file.
    blocks: u64,
}

impl Extents<'_, '_> {
    /// `depth` is that which the node above it says.
    fn node(&mut self, node: &[u8], depth: Option<u16>) -> Result<(), ReadError> {
        let (entries, own) = (le16(node, 2), le16(node, 6));
        let is_right = match depth {
            None => own <= MAX_EXTENT_DEPTH,
            Some(depth) => own == depth,
        };
        if le16(node, 0) != EXTENT_MAGIC || !is_right {
            return Err(ReadError::Damaged("a tree of extents is none"));
        }
        for number in 1..=usize::from(entries) {
            let start = number * EXTENT_ENTRY;
            let entry = node.get(start..start + EXTENT_ENTRY);
            let entry = entry.ok_or(ReadError::Damaged("a tree of extents is cut"))?;
            if self.next >= self.blocks {
                return Ok(());
            }
            match own.checked_sub(1) {
                None => self.extent(entry)?,
                Some(below) => {
                    let block = u64::from(le16(entry, 8)) << 32 | u64::from(le32(entry, 4));
                    let node = self.ext4.block(block)?;
                    self.node(&node, Some(below))?;
                }
            }
        }
        Ok(())
    }

    fn extent(&mut self, entry: &[u8]) -> Result<(), ReadError> {
        let (first, length) = (u64::from(le32(entry, 0)), le16(entry, 4));
        let start = u64::from(le16(entry, 6)) << 32 | u64::from(le32(entry, 8));
        let is_written = length <= UNWRITTEN;
        let length = u64::from(if is_written { length } else { length - UNWRITTEN });
        let hole = first.checked_sub(self.next);
        let hole = hole.ok_or(ReadError::Damaged("extents are not in order"))?;
        self.hole(hole.min(self.blocks - self.next))?;
        // What is behind the end of the file was reserved for it.
        let length = length.min(self.blocks - self.next);
        if is_written {
            self.ext4.push(self.map, start, length)?;
            self.next += length;
            Ok(())
        } else {
            self.hole(length)
        }
    }

    fn hole(&mut self, blocks: u64) -> Result<(), ReadError> {
        if blocks == 0 {
            return Ok(());
        }
        self.next += blocks;
        let length = blocks.saturating_mul(self.ext4.block_size() as u64);
        self.map.push(Run { place: Place::Hole, length })
    }
}

/// A walk through the block numbers of a file without extents.
struct BlockMap<'a, 'b> {
    ext4: &'a Ext4<'b>,
    map: &'a mut FileMap,
    left: u64,
}

impl BlockMap<'_, '_> {
    /// A block of the file; 0 is a hole.
    fn data(&mut self, block: u32) -> Result<(), ReadError> {
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        if block == 0 { self.hole(1) } else { self.ext4.push(self.map, block.into(), 1) }
    }

    /// A block of numbers, of blocks of the file at level 1, else of such blocks.
    fn indirect(&mut self, block: u32, level: u32) -> Result<(), ReadError> {
        if self.left == 0 {
            return Ok(());
        }
        let each = (self.ext4.block_size() / 4) as u64;
        if block == 0 {
            let blocks = each.saturating_pow(level).min(self.left);
            self.left -= blocks;
            return self.hole(blocks);
        }
        for number in self.ext4.block(block.into())?.as_chunks::<4>().0 {
            let number = u32::from_le_bytes(*number);
            if level == 1 {
                self.data(number)?;
            } else {
                self.indirect(number, level - 1)?;
            }
            if self.left == 0 {
                break;
            }
        }
        Ok(())
    }

    fn hole(&mut self, blocks: u64) -> Result<(), ReadError> {
        let length = blocks.saturating_mul(self.ext4.block_size() as u64);
        self.map.push(Run { place: Place::Hole, length })
    }
}
