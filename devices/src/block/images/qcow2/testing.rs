//! Writes images byte by byte, and reads from bytes in memory.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use miniz_oxide::deflate::compress_to_vec as deflate;
use ruzstd::encoding::{CompressionLevel, compress_to_vec as pack};

use crate::block::images::read_at::ReadAt;

/// Bytes that must not be read past their end.
#[derive(Clone, Debug)]
pub(in crate::block) struct Bytes(pub(in crate::block) Vec<u8>);

impl ReadAt for Bytes {
    fn fill(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).expect("an offset in memory");
        let part = self.0.get(start..start + bytes.len());
        bytes.copy_from_slice(part.expect("nothing behind the end is read"));
        Ok(())
    }
}

/// What a cluster of a test's image is.
#[derive(Clone, Debug)]
pub(in crate::block) enum Content {
    Data(Vec<u8>),
    Zeroes,
    Compressed(Vec<u8>),
}

/// An image to be written: header, L1 table, L2 tables, data, compressed data close together.
#[derive(Clone, Debug)]
pub(in crate::block) struct ImageBuilder {
    pub(in crate::block) version: u32,
    pub(in crate::block) cluster_bits: u32,
    pub(in crate::block) size: u64,
    pub(in crate::block) zstd: bool,
    pub(in crate::block) backing: Option<&'static str>,
    pub(in crate::block) clusters: BTreeMap<u64, Content>,
}

impl ImageBuilder {
    /// An empty image of version 3.
    pub(in crate::block) fn new(cluster_bits: u32, size: u64) -> Self {
        let clusters = BTreeMap::new();
        Self { version: 3, cluster_bits, size, zstd: false, backing: None, clusters }
    }

    pub(in crate::block) fn with(mut self, number: u64, content: Content) -> Self {
        self.clusters.insert(number, content);
        self
    }

    pub(in crate::block) fn on(mut self, backing: &'static str) -> Self {
        self.backing = Some(backing);
        self
    }

    pub(in crate::block) fn data(self, number: u64, byte: u8) -> Self {
        let cluster = vec![byte; 1 << self.cluster_bits];
        self.with(number, Content::Data(cluster))
    }

    fn cluster_size(&self) -> usize {
        1 << self.cluster_bits
    }

    /// The image as a file.
    pub(in crate::block) fn build(&self) -> Bytes {
        let size = self.cluster_size();
        let table_entries = size as u64 / 8;
        let l1_entries = self.size.div_ceil(size as u64 * table_entries);
        let l1_clusters = (usize::try_from(l1_entries).unwrap() * 8).div_ceil(size);
        let mut file = vec![0; size * (1 + l1_clusters)];
        let mut tables: BTreeMap<u64, usize> = BTreeMap::new();
        let mut packed = Vec::new();
        for (number, content) in &self.clusters {
            let l1_index = number / table_entries;
            let table = *tables.entry(l1_index).or_insert_with(|| grow(&mut file, size));
            let pointer_at = size + usize::try_from(l1_index).unwrap() * 8;
            put(&mut file, pointer_at, &(1 << 63 | table as u64).to_be_bytes());
            let entry_at = table + usize::try_from(number % table_entries).unwrap() * 8;
            let entry = match content {
                Content::Zeroes => 1,
                Content::Data(bytes) => {
                    let offset = grow(&mut file, size);
                    put(&mut file, offset, bytes);
                    1 << 63 | offset as u64
                }
                Content::Compressed(bytes) => {
                    packed.push((entry_at, self.compress(bytes)));
                    continue;
                }
            };
            put(&mut file, entry_at, &entry.to_be_bytes());
        }
        for (entry_at, bytes) in packed {
            let offset = file.len();
            file.extend(&bytes);
            let more = (offset % 512 + bytes.len()).div_ceil(512) - 1;
            let entry = 1 << 62 | (more as u64) << (70 - self.cluster_bits) | offset as u64;
            put(&mut file, entry_at, &entry.to_be_bytes());
        }
        self.put_header(&mut file, u32::try_from(l1_entries).unwrap());
        Bytes(file)
    }

    fn compress(&self, bytes: &[u8]) -> Vec<u8> {
        if self.zstd { pack(bytes, CompressionLevel::Fastest) } else { deflate(bytes, 6) }
    }

    fn put_header(&self, file: &mut [u8], l1_entries: u32) {
        put(file, 0, b"QFI\xfb");
        put(file, 4, &self.version.to_be_bytes());
        if let Some(name) = self.backing {
            put(file, 8, &256_u64.to_be_bytes());
            put(file, 16, &u32::try_from(name.len()).unwrap().to_be_bytes());
            put(file, 256, name.as_bytes());
        }
        put(file, 20, &self.cluster_bits.to_be_bytes());
        put(file, 24, &self.size.to_be_bytes());
        put(file, 36, &l1_entries.to_be_bytes());
        put(file, 40, &(self.cluster_size() as u64).to_be_bytes());
        if self.version == 3 {
            put(file, 72, &(u64::from(self.zstd) << 3).to_be_bytes());
            put(file, 96, &4_u32.to_be_bytes());
            put(file, 100, &112_u32.to_be_bytes());
            put(file, 104, &[u8::from(self.zstd)]);
        }
    }
}

/// A new cluster at the end.
fn grow(file: &mut Vec<u8>, size: usize) -> usize {
    let offset = file.len();
    file.resize(offset + size, 0);
    offset
}

pub(in crate::block) fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    let range: Range<usize> = at..at + bytes.len();
    file[range].copy_from_slice(bytes);
}
