//! Disks for tests: golden images of file systems, and FAT volumes made of a list of files.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;

#[cfg(test)]
use super::source::{Budget, Window};
#[cfg(test)]
use super::volumes::{Candidate, Volumes};

/// What is in a file of ours.
pub(super) fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut unpacked).expect("it is packed");
    unpacked
}

/// An image with the blocks of a variant in it.
pub(super) fn variant(base: &[u8], blocks: &[u8]) -> Vec<u8> {
    let mut image = base.to_vec();
    for block in unpacked(blocks).chunks(4 + 1024) {
        let number: usize = std::str::from_utf8(&block[..4])
            .ok()
            .and_then(|number| number.parse().ok())
            .expect("it is a number");
        image[number * 1024..(number + 1) * 1024].copy_from_slice(&block[4..]);
    }
    image
}

/// Which table of clusters a volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Fat12,
    Fat16,
    Fat32,
}

const SECTOR: usize = 512;

/// A FAT volume with these files, each by its path, and the directories that they are in.
pub(super) fn fat(table: Table, files: &[(&str, &[u8])]) -> Vec<u8> {
    let clusters = match table {
        Table::Fat12 => 2000,
        Table::Fat16 => 5000,
        Table::Fat32 => 3000,
    };
    let mut volume = Fat { table, chains: vec![0xfff_fff8, 0xfff_ffff], data: Vec::new() };
    let mut tree = Tree::default();
    for (path, content) in files {
        tree.insert(path.trim_start_matches('/'), content);
    }
    let root = volume.directory(&tree);
    let table_sectors = clusters * 4 / SECTOR + 1;
    let mut image = vec![0; 32 * SECTOR];
    image[..3].copy_from_slice(b"\xeb\x58\x90");
    image[11..13].copy_from_slice(&512_u16.to_le_bytes());
    (image[13], image[14], image[16], image[21]) = (1, 32, 1, 0xf8);
    let label = if table == Table::Fat32 { 67 } else { 39 };
    image[label..label + 4].copy_from_slice(&0x1234_abcd_u32.to_le_bytes());
    image[label + 4..label + 15].copy_from_slice(b"BOOT       ");
    let sectors = |number: usize| u32::try_from(number).expect("volumes are small").to_le_bytes();
    let root_sectors = if table == Table::Fat32 {
        image[36..40].copy_from_slice(&sectors(table_sectors));
        image[44..48].copy_from_slice(&volume.store(&root).to_le_bytes());
        0
    } else {
        image[22..24].copy_from_slice(&sectors(table_sectors)[..2]);
        image[17..19].copy_from_slice(&512_u16.to_le_bytes());
        32
    };
    let total = 32 + table_sectors + root_sectors + clusters;
    image[32..36].copy_from_slice(&sectors(total));
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    let mut packed = volume.packed();
    packed.resize(table_sectors * SECTOR, 0);
    image.extend(packed);
    if root_sectors > 0 {
        let start = image.len();
        image.extend(root);
        image.resize(start + root_sectors * SECTOR, 0);
    }
    image.extend(volume.data);
    image.resize(total * SECTOR, 0);
    image
}

#[derive(Default)]
struct Tree<'a> {
    files: BTreeMap<String, &'a [u8]>,
    directories: BTreeMap<String, Tree<'a>>,
}

impl<'a> Tree<'a> {
    fn insert(&mut self, path: &str, content: &'a [u8]) {
        match path.split_once('/') {
            Some((name, rest)) => {
                self.directories.entry(name.into()).or_default().insert(rest, content);
            }
            None => drop(self.files.insert(path.into(), content)),
        }
    }
}

struct Fat {
    table: Table,
    chains: Vec<u32>,
    data: Vec<u8>,
}

impl Fat {
    /// Stores content, and says where.
    fn store(&mut self, content: &[u8]) -> u32 {
        let first = u32::try_from(self.chains.len()).expect("volumes are small");
        let count = content.len().div_ceil(SECTOR).max(1);
        for number in 1..count {
            self.chains.push(first + u32::try_from(number).expect("volumes are small"));
        }
        self.chains.push(0xfff_ffff);
        self.data.extend(content);
        self.data.resize((self.chains.len() - 2) * SECTOR, 0);
        first
    }

    fn directory(&mut self, tree: &Tree<'_>) -> Vec<u8> {
        let mut records = Vec::new();
        for (number, (name, directory)) in tree.directories.iter().enumerate() {
            let content = self.directory(directory);
            let cluster = self.store(&content);
            records.extend(self.records(number, name, 0x10, cluster, 0));
        }
        for (number, (name, content)) in tree.files.iter().enumerate() {
            let cluster = self.store(content);
            let size = u32::try_from(content.len()).expect("files are small");
            records.extend(self.records(500 + number, name, 0x20, cluster, size));
        }
        records
    }

    /// A long name, and the record that it belongs to.
    fn records(&self, number: usize, name: &str, kind: u8, cluster: u32, size: u32) -> Vec<u8> {
        let mut record = format!("F{number:07}BIN").into_bytes();
        let sum = |sum: u8, byte: &u8| sum.rotate_right(1).wrapping_add(*byte);
        let checksum = record.iter().fold(0, sum);
        record.resize(32, 0);
        record[11] = kind;
        record[20..22].copy_from_slice(&cluster.to_le_bytes()[2..]);
        record[26..28].copy_from_slice(&cluster.to_le_bytes()[..2]);
        record[28..32].copy_from_slice(&size.to_le_bytes());
        let mut letters: Vec<u16> = name.encode_utf16().collect();
        if !letters.len().is_multiple_of(13) {
            letters.push(0);
        }
        letters.resize(letters.len().next_multiple_of(13), 0xffff);
        let parts: Vec<&[u16]> = letters.chunks(13).collect();
        let mut records = Vec::new();
        for (number, part) in parts.iter().enumerate().rev() {
            let mut long = vec![0; 32];
            let is_last = if number + 1 == parts.len() { 0x40 } else { 0 };
            (long[0], long[11], long[13]) =
                (u8::try_from(number + 1).expect("names are short") | is_last, 0x0f, checksum);
            let places = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];
            for (letter, at) in part.iter().zip(places) {
                long[at..at + 2].copy_from_slice(&letter.to_le_bytes());
            }
            records.extend(long);
        }
        records.extend(record);
        records
    }

    fn packed(&self) -> Vec<u8> {
        let chains = self.chains.iter();
        match self.table {
            Table::Fat32 => chains.flat_map(|next| next.to_le_bytes()).collect(),
            Table::Fat16 => chains.flat_map(|next| next.to_le_bytes()[..2].to_vec()).collect(),
            Table::Fat12 => self
                .chains
                .chunks(2)
                .flat_map(|pair| {
                    let low = pair[0] & 0xfff;
                    let high = pair.get(1).copied().unwrap_or(0) & 0xfff;
                    (low | high << 12).to_le_bytes()[..3].to_vec()
                })
                .collect(),
        }
    }
}

/// Calls `look` with the volumes of these disks.
#[cfg(test)]
pub(super) fn with_volumes<T>(disks: &[Vec<u8>], look: impl FnOnce(&Volumes<'_>) -> T) -> T {
    let budget = Budget::new(1 << 30);
    let candidates: Vec<Candidate<'_>> = disks
        .iter()
        .enumerate()
        .map(|(number, content)| Candidate { name: format!("disk{number}"), sector: 512, content })
        .collect();
    let volumes = Volumes::open(&candidates, &budget);
    look(&volumes)
}

/// Calls `look` with all of a disk.
#[cfg(test)]
pub(super) fn with_window<T>(disk: &Vec<u8>, look: impl FnOnce(Window<'_>) -> T) -> T {
    let budget = Budget::new(1 << 30);
    look(Window::whole(disk, &budget))
}
