//! Entries of the two tables.

use std::io;

use thiserror::Error;

use super::header::Header;

/// Bits 9 to 55: offsets of tables and clusters. The others are flags, or reserved.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const ZEROES: u64 = 1;
/// What the length of compressed data is counted in.
const SECTOR: u64 = 512;

/// What is wrong with a part of an image: an I/O error of the request that needed it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum Damage {
    #[error("an L2 table at {0:#x} is not at a cluster's begin, or not in the file")]
    Table(u64),
    #[error("a cluster at {0:#x} is not at a cluster's begin, or not in the file")]
    Cluster(u64),
    #[error("a cluster of zeroes in an image of version 2")]
    Zeroes,
    #[error("a compressed cluster at {0:#x} is not in the file")]
    Compressed(u64),
    #[error("a compressed cluster does not expand to a cluster")]
    Expansion,
}

impl From<Damage> for io::Error {
    fn from(damage: Damage) -> Self {
        Self::new(io::ErrorKind::InvalidData, damage)
    }
}

/// What an L2 entry says of its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    /// Nothing: the backing file has it.
    Unallocated,
    Zeroes,
    /// Begins there in the file.
    Data {
        offset: u64,
    },
    /// Is in these bytes of the file at the latest: they may end before.
    Compressed {
        offset: u64,
        length: u64,
    },
}

impl Cluster {
    /// What `entry` says, in an image whose file has `file_length` bytes.
    pub(super) fn of(entry: u64, header: &Header, file_length: u64) -> Result<Self, Damage> {
        if entry & COMPRESSED != 0 {
            return Self::compressed(entry, header, file_length);
        }
        if entry & ZEROES != 0 {
            return if header.has_zero_clusters { Ok(Self::Zeroes) } else { Err(Damage::Zeroes) };
        }
        match entry & OFFSET {
            0 => Ok(Self::Unallocated),
            offset if offset.is_multiple_of(header.cluster_size()) && offset < file_length => {
                Ok(Self::Data { offset })
            }
            offset => Err(Damage::Cluster(offset)),
        }
    }

    /// The offset is in the low bits, how many sectors there are beyond its own in those above.
    fn compressed(entry: u64, header: &Header, file_length: u64) -> Result<Self, Damage> {
        let offset_bits = 70 - header.cluster_bits;
        let offset = entry & ((1 << offset_bits) - 1);
        let sectors = (entry & (COMPRESSED - 1)) >> offset_bits;
        let longest = (sectors + 1) * SECTOR - offset % SECTOR;
        // The last sector need not be complete.
        match file_length.checked_sub(offset) {
            None | Some(0) => Err(Damage::Compressed(offset)),
            Some(left) => Ok(Self::Compressed { offset, length: longest.min(left) }),
        }
    }
}

/// Where the L2 table is that an L1 entry points to; none if nothing in its range is allocated.
pub(super) fn table_of(
    entry: u64,
    header: &Header,
    file_length: u64,
) -> Result<Option<u64>, Damage> {
    let (offset, size) = (entry & OFFSET, header.cluster_size());
    if offset == 0 {
        return Ok(None);
    }
    let is_there = file_length.checked_sub(offset).is_some_and(|left| left >= size);
    if offset.is_multiple_of(size) && is_there {
        Ok(Some(offset))
    } else {
        Err(Damage::Table(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::super::compression::Compression;
    use super::*;

    fn header(cluster_bits: u32, has_zero_clusters: bool) -> Header {
        Header {
            cluster_bits,
            size: 1 << 20,
            l1_offset: 1 << cluster_bits,
            has_zero_clusters,
            compression: Compression::Deflate,
            backing: None,
        }
    }

    #[test]
    fn clusters_begin_at_clusters_in_the_file() {
        let header = header(16, true);
        let of = |entry| Cluster::of(entry, &header, 0x3_0001);
        assert_eq!(of(0), Ok(Cluster::Unallocated));
        assert_eq!(of(1 << 63), Ok(Cluster::Unallocated));
        assert_eq!(of(1 << 63 | 0x2_0000), Ok(Cluster::Data { offset: 0x2_0000 }));
        assert_eq!(of(0x3_0000), Ok(Cluster::Data { offset: 0x3_0000 }));
        assert_eq!(of(0x4_0000), Err(Damage::Cluster(0x4_0000)));
        assert_eq!(of(0x2_0200), Err(Damage::Cluster(0x2_0200)));
        assert_eq!(of(0x2_0001), Ok(Cluster::Zeroes));
        assert_eq!(of(1), Ok(Cluster::Zeroes));
    }

    #[test]
    fn version_2_has_no_clusters_of_zeroes() {
        assert_eq!(Cluster::of(1, &header(16, false), 0x3_0000), Err(Damage::Zeroes));
    }

    #[test]
    fn compressed_clusters_are_counted_in_sectors() {
        let header = header(16, true);
        let of = |entry| Cluster::of(COMPRESSED | entry, &header, 0x2_0000);
        let compressed = |offset, length| Ok(Cluster::Compressed { offset, length });
        assert_eq!(of(0x1_0000), compressed(0x1_0000, 512));
        assert_eq!(of(2 << 54 | 0x1_0010), compressed(0x1_0010, 1520));
        assert_eq!(of(0xff << 54 | 0x1_ff00), compressed(0x1_ff00, 0x100));
        assert_eq!(of(0x2_0000), Err(Damage::Compressed(0x2_0000)));
        assert_eq!(of((1 << 54) - 1), Err(Damage::Compressed((1 << 54) - 1)));
    }

    #[test]
    fn tables_lie_in_the_file_whole() {
        let header = header(16, true);
        let of = |entry| table_of(entry, &header, 0x3_ffff);
        assert_eq!(of(1 << 63), Ok(None));
        assert_eq!(of(1 << 63 | 0x2_0000), Ok(Some(0x2_0000)));
        assert_eq!(of(0x3_0000), Err(Damage::Table(0x3_0000)));
        assert_eq!(of(0x1_0200), Err(Damage::Table(0x1_0200)));
        assert_eq!(of(u64::MAX), Err(Damage::Table(OFFSET)));
    }
}
