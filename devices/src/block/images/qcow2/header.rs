//! The header: what an image is, and whether it can be read.

use std::io;

use thiserror::Error;

use super::compression::Compression;
use crate::block::images::MAX_SIZE;
use crate::block::images::read_at::ReadAt;

const MAGIC: [u8; 4] = *b"QFI\xfb";
/// Bytes of a version 2 header.
const SHORT: usize = 72;
/// The least that a version 3 header has.
const LONG: u32 = 104;
/// All fields that are known, up to the compression type.
const KNOWN: usize = 105;
/// The longest name of a backing file.
const MAX_NAME: u32 = 1023;
/// Of 512 bytes to 2 MiB, as everywhere else that reads such images.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// Bytes of an entry in a table.
pub(super) const ENTRY: u64 = 8;

const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// Why an image cannot be read.
#[derive(Debug, Error)]
pub enum Qcow2Error {
    /// The file cannot be read.
    #[error("cannot read its header")]
    Read(#[source] io::Error),
    /// Too short for a header.
    #[error("it has {0} bytes, fewer than the header of a qcow2 image")]
    Short(u64),
    /// Another format.
    #[error("it does not begin like a qcow2 image; give it as a raw image if it is one")]
    Magic,
    /// Not a version that there is.
    #[error("it is of version {0}; versions 2 and 3 can be read")]
    Version(u32),
    /// Clusters of a size that cannot be.
    #[error("its clusters are of 2^{0} bytes; 2^9 to 2^21 can be read")]
    ClusterBits(u32),
    /// A header that ends before its fields, or behind its cluster.
    #[error("its header is {0} bytes long, which cannot be")]
    HeaderLength(u32),
    /// A disk of a size that there cannot be.
    #[error("its disk has {0} bytes; 512 bytes to 16 TiB can be read")]
    Size(u64),
    /// Encrypted.
    #[error("it is encrypted (method {0}); decrypt it with qemu-img convert")]
    Encrypted(u32),
    /// Marked by a program that found it damaged.
    #[error("it is marked as corrupt; repair it with qemu-img check -r all")]
    Corrupt,
    /// Its data are in another file.
    #[error("its data are in another file; make one image of them with qemu-img convert")]
    ExternalData,
    /// Entries of the other kind.
    #[error("it has extended L2 entries; convert it with qemu-img convert -o extended_l2=off")]
    ExtendedL2,
    /// Features of a later time.
    #[error("it has features that are not known: {0:#x}")]
    Features(u64),
    /// A compression that is not known, or that contradicts the features.
    #[error("its compression type {0} is not known or contradicts its features")]
    Compression(u8),
    /// The first table is not in the file, or not large enough for the disk.
    #[error("its L1 table of {entries} entries at {offset:#x} is misplaced or too small")]
    L1 {
        /// Where it begins.
        offset: u64,
        /// How many entries it has.
        entries: u32,
    },
    /// The name of the backing file is not in the file, or too long.
    #[error(
        "the name of its backing file, {length} bytes at {offset:#x}, is misplaced or too long"
    )]
    BackingName {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        length: u32,
    },
}

/// What the header says, checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) cluster_bits: u32,
    /// Bytes of the disk.
    pub(super) size: u64,
    pub(super) l1_offset: u64,
    /// Whether entries can say that a cluster reads as zeroes: not in version 2.
    pub(super) has_zero_clusters: bool,
    pub(super) compression: Compression,
    /// The name of the backing file, for people to read: no file is ever looked for by it.
    pub(super) backing: Option<String>,
}

impl Header {
    /// The header of the image in `source`, which has `length` bytes.
    pub(super) fn read(source: &impl ReadAt, length: u64) -> Result<Self, Qcow2Error> {
        let there = usize::try_from(length).unwrap_or(KNOWN).min(KNOWN);
        let mut bytes = [0; KNOWN];
        source.fill(0, &mut bytes[..there]).map_err(Qcow2Error::Read)?;
        if there < SHORT {
            return Err(Qcow2Error::Short(length));
        }
        let fields = Fields(bytes);
        if fields.bytes(0) != MAGIC {
            return Err(Qcow2Error::Magic);
        }
        let compression = match fields.u32(4) {
            2 => Compression::Deflate,
            3 if there < LONG as usize => return Err(Qcow2Error::Short(length)),
            3 => fields.check_features()?,
            version => return Err(Qcow2Error::Version(version)),
        };
        let cluster_bits = fields.u32(20);
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(Qcow2Error::ClusterBits(cluster_bits));
        }
        let header = Self {
            cluster_bits,
            size: fields.u64(24),
            l1_offset: fields.u64(40),
            has_zero_clusters: fields.u32(4) == 3,
            compression,
            backing: fields.backing_name(source, length)?,
        };
        if !(512..=MAX_SIZE).contains(&header.size) {
            return Err(Qcow2Error::Size(header.size));
        }
        match fields.u32(32) {
            0 => {}
            method => return Err(Qcow2Error::Encrypted(method)),
        }
        header.check_l1(fields.u32(36), length)?;
        Ok(header)
    }

    pub(super) fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Entries in an L2 table, which takes one cluster.
    pub(super) fn table_entries(&self) -> u64 {
        self.cluster_size() / ENTRY
    }

    /// The part of it that the disk needs has to be there. It may have more, where snapshots of machines are.
    fn check_l1(&self, entries: u32, length: u64) -> Result<(), Qcow2Error> {
        let offset = self.l1_offset;
        let needed = self.size.div_ceil(self.cluster_size() * self.table_entries());
        let end = offset.checked_add(needed * ENTRY);
        let is_there = offset.is_multiple_of(self.cluster_size()) && offset > 0;
        if is_there && u64::from(entries) >= needed && end.is_some_and(|end| end <= length) {
            Ok(())
        } else {
            Err(Qcow2Error::L1 { offset, entries })
        }
    }
}

/// The bytes of a header, zeroes where the file has no more. Numbers are big-endian.
struct Fields([u8; KNOWN]);

impl Fields {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        for (place, byte) in bytes.iter_mut().zip(self.0.iter().skip(at)) {
            *place = *byte;
        }
        bytes
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.bytes(at))
    }

    /// What version 3 has: features, and how clusters are compressed.
    fn check_features(&self) -> Result<Compression, Qcow2Error> {
        let features = self.u64(72);
        if features & CORRUPT != 0 {
            return Err(Qcow2Error::Corrupt);
        }
        if features & EXTERNAL_DATA != 0 {
            return Err(Qcow2Error::ExternalData);
        }
        if features & EXTENDED_L2 != 0 {
            return Err(Qcow2Error::ExtendedL2);
        }
        let unknown = features & !(DIRTY | COMPRESSION_TYPE);
        if unknown != 0 {
            return Err(Qcow2Error::Features(unknown));
        }
        let header_length = self.u32(100);
        if header_length < LONG || !header_length.is_multiple_of(8) || header_length > 1 << 21 {
            return Err(Qcow2Error::HeaderLength(header_length));
        }
        // A field behind the header's end says nothing.
        let [kind] = if header_length > LONG { self.bytes(104) } else { [0] };
        match (features & COMPRESSION_TYPE != 0, kind) {
            (false, 0) => Ok(Compression::Deflate),
            (true, 1) => Ok(Compression::Zstd),
            _ => Err(Qcow2Error::Compression(kind)),
        }
    }

    fn backing_name(
        &self,
        source: &impl ReadAt,
        file_length: u64,
    ) -> Result<Option<String>, Qcow2Error> {
        let (offset, length) = (self.u64(8), self.u32(16));
        if offset == 0 {
            return Ok(None);
        }
        let end = offset.checked_add(length.into());
        if length > MAX_NAME || end.is_none_or(|end| end > file_length) {
            return Err(Qcow2Error::BackingName { offset, length });
        }
        let mut name = vec![0; length as usize];
        source.fill(offset, &mut name).map_err(Qcow2Error::Read)?;
        Ok(Some(String::from_utf8_lossy(&name).into_owned()))
    }
}
