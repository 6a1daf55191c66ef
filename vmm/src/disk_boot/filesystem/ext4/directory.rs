//! Directories: blocks of entries. Blocks of an index look like empty ones to whoever reads one after the other.

use super::ReadError;
use crate::disk_boot::filesystem::MAX_NAMES;
use crate::disk_boot::source::{le16, le32};

const HEADER: usize = 8;

/// The inode that a name in this directory stands for.
pub(super) fn find(
    content: &[u8],
    block_size: usize,
    wanted: &[u8],
) -> Result<Option<u32>, ReadError> {
    let mut found = None;
    entries(content, block_size, |inode, name| {
        found = (name == wanted).then_some(inode);
        found.is_none()
    })?;
    Ok(found)
}

/// All names that are text.
pub(super) fn names(content: &[u8], block_size: usize) -> Result<Vec<String>, ReadError> {
    let mut names = Vec::new();
    entries(content, block_size, |_, name| {
        if let Ok(text) = std::str::from_utf8(name)
            && text != "."
            && text != ".."
        {
            names.push(text.to_owned());
        }
        names.len() < MAX_NAMES
    })?;
    Ok(names)
}

/// Gives each entry to `take` until that does not want any more.
fn entries(
    content: &[u8],
    block_size: usize,
    mut take: impl FnMut(u32, &[u8]) -> bool,
) -> Result<(), ReadError> {
    for block in content.chunks(block_size) {
        let mut rest = block;
        while rest.len() >= HEADER {
            let length = match le16(rest, 4) {
                // As far as there is a block of 64 KiB.
                0 | u16::MAX if block_size > usize::from(u16::MAX) => rest.len(),
                length => usize::from(length),
            };
            let name = rest.get(HEADER..HEADER + usize::from(rest[6]));
            let (Some(name), Some(behind)) = (name, rest.get(length..)) else {
                return Err(ReadError::Damaged("a directory's entry goes beyond it"));
            };
            if length < HEADER {
                return Err(ReadError::Damaged("a directory's entry has no length"));
            }
            let inode = le32(rest, 0);
            if inode != 0 && !take(inode, name) {
                return Ok(());
            }
            rest = behind;
        }
    }
    Ok(())
}
