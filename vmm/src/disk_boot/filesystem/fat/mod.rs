//! FAT12, FAT16 and FAT32 with long names (Microsoft's "FAT: General Overview of On-Disk Format"), read only.
//!
//! A chain of clusters is followed as far as a file's size says, or a directory's limit: one that leads in a circle ends
//! there, too.

mod directory;

use std::cell::RefCell;

use self::directory::{Entry, entries};
use super::{FileMap, MAX_DIRECTORY, MAX_NAMES, Place, ReadError, Run, check_size};
use crate::disk_boot::source::{Window, le16, le32};

/// Of the table, read at once.
const PAGE: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Fat12,
    Fat16,
    Fat32,
}

/// Where a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directory {
    /// That of FAT12 and FAT16, which has a place of its own.
    FixedRoot,
    /// A chain of clusters.
    Chain(u32),
}

/// The file system.
pub(in crate::disk_boot) struct Fat<'a> {
    volume: Window<'a>,
    width: Width,
    /// Bytes of a cluster.
    cluster: u64,
    /// How many there are; they are counted from 2.
    clusters: u32,
    /// First byte of the table that counts.
    table: u64,
    /// The directory with a place of its own: first byte, and bytes.
    root: (u64, u64),
    root_cluster: u32,
    /// First byte of cluster 2.
    data: u64,
    serial: u32,
    label: String,
    /// The part of the table that was last read, and its number.
    page: RefCell<(u64, Vec<u8>)>,
}

impl<'a> Fat<'a> {
    /// That on `volume`, if there is one.
    pub(super) fn open(volume: Window<'a>) -> Result<Option<Self>, ReadError> {
        if volume.size() < 512 {
            return Ok(None);
        }
        let boot = volume.bytes(0, 512)?;
        let (sector, per_cluster) = (u64::from(le16(&boot, 11)), u64::from(boot[13]));
        let (reserved, tables) = (u64::from(le16(&boot, 14)), u64::from(boot[16]));
        let is_fat = matches!(boot[0], 0xeb | 0xe9)
            && [512, 1024, 2048, 4096].contains(&sector)
            && per_cluster.is_power_of_two()
            && reserved > 0
            && (1..=4).contains(&tables)
            && (boot[21] == 0xf0 || boot[21] >= 0xf8);
        if !is_fat {
            return Ok(None);
        }
        let either = |short: usize, long: usize| match le16(&boot, short) {
            0 => u64::from(le32(&boot, long)),
            number => number.into(),
        };
        let (sectors, table_sectors) = (either(19, 32), either(22, 36));
        let root_bytes = u64::from(le16(&boot, 17)) * 32;
        let root_start = (reserved + tables * table_sectors) * sector;
        let data = root_start + root_bytes.next_multiple_of(sector);
        let cluster = sector * per_cluster;
        let bytes = (sectors * sector).min(volume.size());
        let clusters = bytes.saturating_sub(data) / cluster;
        // What it is called depends on this alone.
        let width = match clusters {
            0 => return Ok(None),
            1..4085 => Width::Fat12,
            4085..65525 => Width::Fat16,
            65525..0x0fff_fff5 => Width::Fat32,
            _ => return Err(ReadError::Damaged("it has too many clusters")),
        };
        let is_32 = le16(&boot, 22) == 0;
        if !is_32 && (width == Width::Fat32 || root_bytes == 0) {
            return Err(ReadError::Damaged("its boot sector cannot be"));
        }
        // Small volumes that say they are FAT32 are taken at their word, as Linux does.
        let width = if is_32 { Width::Fat32 } else { width };
        let flags = le16(&boot, 40);
        let active = if is_32 && flags & 0x80 != 0 { u64::from(flags & 0xf) } else { 0 };
        let names = if is_32 { 67 } else { 39 };
        let label = boot.get(names + 4..names + 15).unwrap_or_default();
        Ok(Some(Self {
            volume,
            width,
            cluster,
            clusters: u32::try_from(clusters).unwrap_or(u32::MAX),
            table: (reserved + active.min(tables - 1) * table_sectors) * sector,
            root: (root_start, root_bytes),
            root_cluster: le32(&boot, 44),
            data,
            serial: le32(&boot, names),
            label: String::from_utf8_lossy(label).trim_end().into(),
            page: RefCell::new((u64::MAX, Vec::new())),
        }))
    }

    pub(super) fn kind(&self) -> &'static str {
        match self.width {
            Width::Fat12 => "FAT12",
            Width::Fat16 => "FAT16",
            Width::Fat32 => "FAT32",
        }
    }

    /// What stands in for a UUID.
    pub(super) fn serial(&self) -> String {
        format!("{:04X}-{:04X}", self.serial >> 16, self.serial & 0xffff)
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn volume(&self) -> &Window<'a> {
        &self.volume
    }

    pub(super) fn map(&self, path: &str, limit: u64) -> Result<FileMap, ReadError> {
        let file = self.file(path)?;
        let size = u64::from(file.size);
        check_size(size, limit)?;
        self.chain(file.cluster, size)
    }

    pub(super) fn file_size(&self, path: &str) -> Result<u64, ReadError> {
        Ok(self.file(path)?.size.into())
    }

    pub(super) fn list(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let content = self.content(self.directory(path)?)?;
        let names = entries(&content).filter(|entry| entry.name != "." && entry.name != "..");
        Ok(names.map(|entry| entry.name).take(MAX_NAMES).collect())
    }

    fn file(&self, path: &str) -> Result<Entry, ReadError> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let entry = self.find(self.directory(directory)?, name)?;
        if entry.is_directory { Err(ReadError::NotA("file")) } else { Ok(entry) }
    }

    fn directory(&self, path: &str) -> Result<Directory, ReadError> {
        let root = match self.width {
            Width::Fat32 => Directory::Chain(self.root_cluster),
            Width::Fat12 | Width::Fat16 => Directory::FixedRoot,
        };
        let mut way = vec![root];
        for name in path.split('/') {
            let at = way.last().copied().unwrap_or(root);
            match name {
                "" | "." => {}
                ".." => drop(way.pop()),
                name => {
                    let entry = self.find(at, name)?;
                    if !entry.is_directory {
                        return Err(ReadError::NotA("directory"));
                    }
                    way.push(Directory::Chain(entry.cluster));
                }
            }
        }
        Ok(way.last().copied().unwrap_or(root))
    }

    fn find(&self, directory: Directory, name: &str) -> Result<Entry, ReadError> {
        let content = self.content(directory)?;
        // Names differ by more than the case of their letters.
        let is_it = |entry: &Entry| {
            entry.name.to_lowercase() == name.to_lowercase()
                || entry.short.eq_ignore_ascii_case(name)
        };
        entries(&content).find(is_it).ok_or(ReadError::NotFound)
    }

    fn content(&self, directory: Directory) -> Result<Vec<u8>, ReadError> {
        match directory {
            Directory::FixedRoot => {
                let (start, length) = self.root;
                Ok(self.volume.bytes(start, usize::try_from(length).unwrap_or(0))?)
            }
            Directory::Chain(first) => {
                let mut map = self.chain(first, MAX_DIRECTORY)?;
                map.size = map.runs.iter().map(|run| run.length).sum();
                map.read(&self.volume, MAX_DIRECTORY.max(self.cluster))
            }
        }
    }

    /// The clusters from `first` on, as many as `size` bytes take, or as there are.
    fn chain(&self, first: u32, size: u64) -> Result<FileMap, ReadError> {
        let mut map = FileMap::new(size);
        let mut next = first;
        for _ in 0..size.div_ceil(self.cluster) {
            let Some(index) = next.checked_sub(2).filter(|index| *index < self.clusters) else {
                break;
            };
            let at = self.data + u64::from(index) * self.cluster;
            map.push(Run { place: Place::At(at), length: self.cluster })?;
            next = self.next(next)?;
        }
        Ok(map)
    }

    /// What the table says of a cluster: the next one, or something that is none.
    fn next(&self, cluster: u32) -> Result<u32, ReadError> {
        let number = u64::from(cluster);
        Ok(match self.width {
            Width::Fat12 => {
                let [low, high] = [number + number / 2, number + number / 2 + 1];
                let pair = u16::from_le_bytes([self.byte(low)?, self.byte(high)?]);
                u32::from(if cluster.is_multiple_of(2) { pair & 0xfff } else { pair >> 4 })
            }
            Width::Fat16 => {
                let at = number * 2;
                u32::from(u16::from_le_bytes([self.byte(at)?, self.byte(at + 1)?]))
            }
            Width::Fat32 => {
                let at = number * 4;
                let bytes =
                    [self.byte(at)?, self.byte(at + 1)?, self.byte(at + 2)?, self.byte(at + 3)?];
                u32::from_le_bytes(bytes) & 0x0fff_ffff
            }
        })
    }

    /// A byte of the table.
    fn byte(&self, at: u64) -> Result<u8, ReadError> {
        let mut page = self.page.borrow_mut();
        if page.0 != at / PAGE {
            let start = self.table.saturating_add(at / PAGE * PAGE);
            let part = self.volume.part(start, PAGE);
            let part = part.ok_or(ReadError::Damaged("its table of clusters is cut"))?;
            let length = usize::try_from(part.size()).unwrap_or(0);
            *page = (at / PAGE, part.bytes(0, length)?);
        }
        let within = usize::try_from(at % PAGE).unwrap_or(usize::MAX);
        page.1.get(within).copied().ok_or(ReadError::Damaged("its table of clusters is cut"))
    }
}

#[cfg(test)]
mod tests;
