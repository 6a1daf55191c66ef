//! ext2, ext3 and ext4, read only, as the guest's kernel would find them after it has looked at the journal.
//!
//! What a crash or a reset left in the journal is not written anywhere: blocks that a complete transaction has are read
//! from the journal instead of from their place (`journal`). Checksums are looked at in the journal only, where they say
//! how far it goes: a damaged file is found by whoever uses it.
//!
//! Read are extents and block maps, content that is kept in an inode, directories with and without an index, links, groups of
//! any layout, also of clusters. Not read are encrypted files, journals on another device, and fast commits (what they
//! say is lost, all before them is not).

mod directory;
mod inode;
mod journal;
mod superblock;

use std::io;

use self::directory::{find, names};
use self::inode::Inode;
use self::journal::Replay;
use self::superblock::Superblock;
use super::{FileMap, MAX_DIRECTORY, Place, ReadError, Run};
use crate::disk_boot::source::Window;

const ROOT: u32 = 2;
/// Links on the way to one file.
const MAX_LINKS: u32 = 16;
/// Directories on the way to one file.
const MAX_DEPTH: usize = 64;
const MAX_PATH: u64 = 4096;

/// The file system.
pub(in crate::disk_boot) struct Ext4<'a> {
    volume: Window<'a>,
    superblock: Superblock,
    replay: Replay,
}

impl<'a> Ext4<'a> {
    /// That on `volume`, if there is one.
    pub(super) fn open(volume: Window<'a>) -> Result<Option<Self>, ReadError> {
        let Some(superblock) = Superblock::read(&volume)? else { return Ok(None) };
        let mut found = Self { volume, superblock, replay: Replay::default() };
        if let Some(journal) = found.superblock.unclean_journal()? {
            found.replay = Replay::load(&found, journal)?;
        }
        Ok(Some(found))
    }

    pub(super) fn kind(&self) -> &'static str {
        self.superblock.kind()
    }

    pub(super) fn uuid(&self) -> String {
        self.superblock.uuid()
    }

    pub(super) fn label(&self) -> &str {
        &self.superblock.label
    }

    pub(super) fn volume(&self) -> &Window<'a> {
        &self.volume
    }

    pub(super) fn map(&self, path: &str, limit: u64) -> Result<FileMap, ReadError> {
        let inode = self.file(path)?;
        super::check_size(inode.size, limit)?;
        inode.map(self)
    }

    pub(super) fn file_size(&self, path: &str) -> Result<u64, ReadError> {
        Ok(self.file(path)?.size)
    }

    pub(super) fn list(&self, path: &str) -> Result<Vec<String>, ReadError> {
        names(&self.directory(&self.resolve(path)?)?, self.block_size())
    }

    fn file(&self, path: &str) -> Result<Inode, ReadError> {
        let inode = self.resolve(path)?;
        if inode.is_file() { Ok(inode) } else { Err(ReadError::NotA("file")) }
    }

    /// The content of a directory.
    fn directory(&self, inode: &Inode) -> Result<Vec<u8>, ReadError> {
        if !inode.is_directory() {
            return Err(ReadError::NotA("directory"));
        }
        inode.read(self, MAX_DIRECTORY)
    }

    /// Follows a path and the links on it. The parent of a directory is the one it was entered from.
    fn resolve(&self, path: &str) -> Result<Inode, ReadError> {
        let mut parents = Vec::new();
        let mut at = Inode::read_from(self, ROOT)?;
        let mut left: Vec<Vec<u8>> = components(path.as_bytes());
        let mut links = 0;
        while let Some(name) = left.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    at = parents.pop().unwrap_or(at);
                    continue;
                }
                _ => {}
            }
            let number = find(&self.directory(&at)?, self.block_size(), &name)?;
            let next = Inode::read_from(self, number.ok_or(ReadError::NotFound)?)?;
            if next.is_link() {
                links += 1;
                let target = next.read(self, MAX_PATH)?;
                if links > MAX_LINKS {
                    return Err(ReadError::Damaged("a link leads in circles"));
                }
                if target.starts_with(b"/") {
                    parents.clear();
                    at = Inode::read_from(self, ROOT)?;
                }
                left.extend(components(&target));
            } else {
                parents.push(std::mem::replace(&mut at, next));
            }
            if left.len() + parents.len() > MAX_DEPTH {
                return Err(ReadError::Damaged("a path is too long"));
            }
        }
        Ok(at)
    }

    fn block_size(&self) -> usize {
        self.superblock.block_size
    }

    /// Where a block is now.
    fn place(&self, block: u64) -> Result<Place, ReadError> {
        if block == 0 || block >= self.superblock.blocks {
            return Err(ReadError::Damaged("a block is outside of the file system"));
        }
        let at = |block: u64| block * self.block_size() as u64;
        Ok(match self.replay.find(block) {
            None => Place::At(at(block)),
            Some(logged) if logged.is_escaped => {
                Place::Escaped(at(logged.block), journal::MAGIC.to_be_bytes())
            }
            Some(logged) => Place::At(at(logged.block)),
        })
    }

    /// Adds `count` blocks from `first` on to a file, from wherever they are now.
    fn push(&self, map: &mut FileMap, first: u64, count: u64) -> Result<(), ReadError> {
        let size = self.block_size() as u64;
        let end = first.checked_add(count).filter(|end| *end <= self.superblock.blocks);
        let end = end.ok_or(ReadError::Damaged("a file is outside of the file system"))?;
        if first > 0 && !self.replay.has_any(first..end) {
            return map.push(Run { place: Place::At(first * size), length: count * size });
        }
        for block in first..end {
            map.push(Run { place: self.place(block)?, length: size })?;
        }
        Ok(())
    }

    /// Reads a part of a block.
    fn read_block(&self, block: u64, offset: usize, bytes: &mut [u8]) -> Result<(), ReadError> {
        if offset.checked_add(bytes.len()).is_none_or(|end| end > self.block_size()) {
            return Err(ReadError::Damaged("something goes beyond its block"));
        }
        let read = |at: u64, bytes: &mut [u8]| -> io::Result<()> {
            self.volume.read(at + offset as u64, bytes)
        };
        match self.place(block)? {
            Place::Hole => bytes.fill(0),
            Place::At(at) => read(at, bytes)?,
            Place::Escaped(at, first) => {
                read(at, bytes)?;
                for (place, byte) in bytes.iter_mut().zip(first.get(offset..).unwrap_or(&[])) {
                    *place = *byte;
                }
            }
        }
        Ok(())
    }

    /// Reads a whole block.
    fn block(&self, block: u64) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; self.block_size()];
        self.read_block(block, 0, &mut bytes)?;
        Ok(bytes)
    }
}

/// The parts of a path, the first one last.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests;
