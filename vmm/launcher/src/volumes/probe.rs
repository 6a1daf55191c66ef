//! Whether an image is raw or qcow2, by what is in it and never by its name.
//!
//! Only images that no guest writes to are looked at: a guest could write another format's header into its own raw disk, and have
//! a file of the host's opened as its backing file at the next start. So disks that are written in place are raw, always.
//!
//! What is neither raw nor qcow2 would boot as nonsense if it were taken for raw. Formats that are known are refused by
//! their names, with what to do.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use corten_link::ImageFormat;
use thiserror::Error;

/// Bytes of a sector: what sizes are multiples of.
pub const SECTOR: u64 = 512;
/// The largest disk that is made of images.
const MAX_SIZE: u64 = 16 << 40;
/// How much of a beginning is looked at.
const HEAD: usize = 4096;

/// What an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// How to read it.
    pub format: ImageFormat,
    /// Bytes of the disk that it holds.
    pub size: u64,
}

/// Why a file is no image that can be used.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// It cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// Another format.
    #[error("it is {what}; make a qcow2 or raw image of it, for example with qemu-img convert")]
    Foreign {
        /// Its name.
        what: &'static str,
    },
    /// Compressed as a whole.
    #[error("it is compressed with {with}; decompress it first")]
    Compressed {
        /// By which program.
        with: &'static str,
    },
    /// A size that no disk has.
    #[error("it holds a disk of {0} bytes; a multiple of {SECTOR} up to 16 TiB can be used")]
    Size(u64),
    /// On top of another file.
    #[error(
        "it is only what differs from a backing file, {0:?}; make one image of both, for example with qemu-img convert"
    )]
    Backing(String),
    /// An image that the VM process could not read.
    #[error("it is a qcow2 image {what}")]
    Unreadable {
        /// What it has, and what to do.
        what: String,
    },
    /// A header that says what cannot be.
    #[error("it begins like a qcow2 image of version {version}, but has {length} bytes")]
    Header {
        /// Version of the format.
        version: u32,
        /// Length of the file.
        length: u64,
    },
}

/// Looks at the image that `file` is open on.
pub fn probe(mut file: &File) -> Result<Probed, ProbeError> {
    let length = file.seek(SeekFrom::End(0)).map_err(ProbeError::Read)?;
    let mut head = [0; HEAD];
    let head = read_at(file, 0, length, &mut head).map_err(ProbeError::Read)?;
    let mut tail = [0; 512];
    let tail = read_at(file, length.saturating_sub(SECTOR), length, &mut tail);
    judge(head, tail.map_err(ProbeError::Read)?, length, |offset, name| {
        file.read_exact_at(name, offset)
    })
}

/// Whether a raw disk, which is used as it is, begins like a qcow2 image: then its user may have meant another one.
pub fn looks_like_qcow2(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok_and(|()| magic == *QCOW2)
}

const QCOW2: &[u8; 4] = b"QFI\xfb";

/// By the beginning and the last sector of a file of that length. `read` reads more of it.
fn judge(
    head: &[u8],
    tail: &[u8],
    length: u64,
    read: impl FnOnce(u64, &mut [u8]) -> io::Result<()>,
) -> Result<Probed, ProbeError> {
    if head.starts_with(QCOW2) {
        return qcow2(head, length, read);
    }
    foreign(head, tail)?;
    if length == 0 || !length.is_multiple_of(SECTOR) || length > MAX_SIZE {
        return Err(ProbeError::Size(length));
    }
    Ok(Probed { format: ImageFormat::Raw, size: length })
}

/// What the VM process will read anew, and check in full.
fn qcow2(
    head: &[u8],
    length: u64,
    read: impl FnOnce(u64, &mut [u8]) -> io::Result<()>,
) -> Result<Probed, ProbeError> {
    const MAX_NAME: u32 = 1023;
    let word = |at: usize| head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    let word = |at: usize| word(at).map(u32::from_be_bytes);
    let long = |at: usize| Some(u64::from(word(at)?) << 32 | u64::from(word(at + 4)?));
    let version = word(4).unwrap_or(0);
    let bad = || ProbeError::Header { version, length };
    if version == 1 {
        return Err(ProbeError::Foreign { what: "a qcow image of version 1" });
    }
    if !matches!(version, 2 | 3) || length < 72 {
        return Err(bad());
    }
    let backing = (long(8).ok_or_else(bad)?, word(16).ok_or_else(bad)?);
    if backing.0 != 0 {
        let (offset, size) = backing;
        let end = offset.checked_add(size.into()).filter(|end| *end <= length);
        if size > MAX_NAME || end.is_none() {
            return Err(bad());
        }
        let mut name = vec![0; usize::try_from(size).unwrap_or(0)];
        read(offset, &mut name).map_err(ProbeError::Read)?;
        return Err(ProbeError::Backing(String::from_utf8_lossy(&name).into_owned()));
    }
    let size = long(24).ok_or_else(bad)?;
    if size == 0 || !size.is_multiple_of(SECTOR) || size > MAX_SIZE {
        return Err(ProbeError::Size(size));
    }
    readable(version, &word, &long, (size, length))
        .map_err(|what| ProbeError::Unreadable { what })?;
    Ok(Probed { format: ImageFormat::Qcow2, size })
}

/// What would end the VM process, which cannot say which volume it was.
fn readable(
    version: u32,
    word: &impl Fn(usize) -> Option<u32>,
    long: &impl Fn(usize) -> Option<u64>,
    (size, length): (u64, u64),
) -> Result<(), String> {
    const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
    const CORRUPT: u64 = 1 << 1;
    /// That it was not closed, and how it is compressed.
    const KNOWN: u64 = 1 | 1 << 3;
    let bits = word(20).unwrap_or(0);
    if !CLUSTER_BITS.contains(&bits) {
        return Err(format!("with clusters of 2^{bits} bytes; 2^9 to 2^21 can be read"));
    }
    if word(32) != Some(0) {
        return Err("that is encrypted; decrypt it with qemu-img convert".to_owned());
    }
    let features = if version == 3 { long(72).unwrap_or(0) } else { 0 };
    if features & CORRUPT != 0 {
        return Err("marked as corrupt; repair it with qemu-img check -r all".to_owned());
    }
    if features & !KNOWN != 0 {
        return Err(format!(
            "with features that are not known ({:#x}); make a plain one with qemu-img convert",
            features & !KNOWN
        ));
    }
    let (entries, table) = (word(36).unwrap_or(0), long(40).unwrap_or(0));
    let cluster = 1_u64 << bits;
    let needed = size.div_ceil(cluster * (cluster / 8));
    let end = table.checked_add(needed * 8);
    let is_there = table > 0 && table.is_multiple_of(cluster);
    if !is_there || u64::from(entries) < needed || end.is_none_or(|end| end > length) {
        return Err(format!("whose table of {entries} entries at {table:#x} cannot be right"));
    }
    Ok(())
}

fn foreign(head: &[u8], tail: &[u8]) -> Result<(), ProbeError> {
    const FORMATS: [(usize, &[u8], &str); 7] = [
        (0, b"KDMV", "a VMDK image"),
        (0, b"COWD", "a VMDK image"),
        (0, b"# Disk DescriptorFile", "the description of a VMDK image"),
        (0, b"vhdxfile", "a VHDX image"),
        (0, b"conectix", "a VHD image"),
        (0, b"QED\0", "a QED image"),
        (0x40, b"\x7f\x10\xda\xbe", "a VDI image"),
    ];
    const COMPRESSED: [(&[u8], &str); 4] = [
        (b"\x1f\x8b\x08", "gzip"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh", "bzip2"),
    ];
    let is_at = |(at, magic, _): &&(usize, &[u8], &'static str)| {
        head.get(*at..).is_some_and(|bytes| bytes.starts_with(magic))
    };
    if let Some((_, _, what)) = FORMATS.iter().find(is_at) {
        return Err(ProbeError::Foreign { what });
    }
    // A VHD of a fixed size is raw but for its last sector.
    if tail.starts_with(b"conectix") {
        return Err(ProbeError::Foreign { what: "a VHD image" });
    }
    match COMPRESSED.iter().find(|(magic, _)| head.starts_with(magic)) {
        Some((_, with)) => Err(ProbeError::Compressed { with }),
        None => Ok(()),
    }
}

/// What there is of `buffer`'s length from `offset` on.
fn read_at<'a>(
    file: &File,
    offset: u64,
    length: u64,
    buffer: &'a mut [u8],
) -> io::Result<&'a [u8]> {
    let there = usize::try_from(length - offset).unwrap_or(usize::MAX).min(buffer.len());
    let part = &mut buffer[..there];
    file.read_exact_at(part, offset)?;
    Ok(part)
}

/// Any bytes are an image or are refused; never more. For the fuzz target.
#[cfg(feature = "fuzz")]
pub fn probe_any_bytes(bytes: &[u8]) {
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let tail = &bytes[bytes.len().saturating_sub(512)..];
    let read = |offset: u64, name: &mut [u8]| {
        let from = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let there = bytes.get(from..).and_then(|bytes| bytes.get(..name.len()));
        name.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    };
    if let Ok(probed) = judge(&bytes[..bytes.len().min(HEAD)], tail, length, read) {
        assert!(probed.size > 0 && probed.size.is_multiple_of(SECTOR));
        let is_qcow2 = bytes.starts_with(QCOW2);
        assert_eq!(probed.format == ImageFormat::Qcow2, is_qcow2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed(bytes: &[u8]) -> Result<Probed, String> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        probe(&file).map_err(|error| error.to_string())
    }

    fn qcow2(version: u32, size: u64) -> Vec<u8> {
        const CLUSTER: u64 = 1 << 16;
        let mut image = vec![0; 1 << 10];
        let entries = size.div_ceil(CLUSTER * CLUSTER / 8);
        image.resize(usize::try_from(CLUSTER + entries.min(1 << 20) * 8).unwrap(), 0);
        image[..4].copy_from_slice(QCOW2);
        image[4..8].copy_from_slice(&version.to_be_bytes());
        image[20..24].copy_from_slice(&16_u32.to_be_bytes());
        image[24..32].copy_from_slice(&size.to_be_bytes());
        image[36..40].copy_from_slice(&u32::try_from(entries).unwrap().to_be_bytes());
        image[40..48].copy_from_slice(&CLUSTER.to_be_bytes());
        image
    }

    #[test]
    fn raw_images_are_as_large_as_their_files() {
        let mut boot_sector = vec![0; 1024];
        boot_sector[510..512].copy_from_slice(&[0x55, 0xaa]);
        for bytes in [vec![0; 512], vec![0xff; 1 << 20], boot_sector] {
            let size = bytes.len().try_into().unwrap();
            assert_eq!(probed(&bytes), Ok(Probed { format: ImageFormat::Raw, size }));
        }
    }

    #[test]
    fn qcow2_images_say_how_large_their_disks_are() {
        for version in [2, 3] {
            let expected = Probed { format: ImageFormat::Qcow2, size: 10 << 30 };
            assert_eq!(probed(&qcow2(version, 10 << 30)), Ok(expected));
        }
    }

    #[test]
    fn sizes_that_no_disk_has_are_refused() {
        for length in [0, 511, 513, 5000] {
            let text = format!(
                "it holds a disk of {length} bytes; a multiple of 512 up to 16 TiB can be used"
            );
            assert_eq!(probed(&vec![0; length]), Err(text));
        }
        for size in [0, 1000, (16 << 40) + 512] {
            assert!(probed(&qcow2(3, size)).unwrap_err().starts_with("it holds a disk of"));
        }
    }

    #[test]
    fn other_formats_are_refused_by_their_names() {
        let at = |offset: usize, magic: &[u8]| {
            let mut bytes = vec![0; 4096];
            bytes[offset..offset + magic.len()].copy_from_slice(magic);
            bytes
        };
        let cases = [
            (at(0, b"KDMV"), "it is a VMDK image;"),
            (at(0, b"# Disk DescriptorFile\n"), "it is the description of a VMDK image;"),
            (at(0, b"vhdxfile"), "it is a VHDX image;"),
            (at(0, b"conectix"), "it is a VHD image;"),
            (at(4096 - 512, b"conectix"), "it is a VHD image;"),
            (at(64, b"\x7f\x10\xda\xbe"), "it is a VDI image;"),
            (qcow2(1, 512), "it is a qcow image of version 1;"),
            (at(0, b"\x1f\x8b\x08"), "it is compressed with gzip;"),
            (at(0, b"\xfd7zXZ\0"), "it is compressed with xz;"),
            (at(0, b"\x28\xb5\x2f\xfd"), "it is compressed with zstd;"),
        ];
        for (bytes, text) in cases {
            let error = probed(&bytes).unwrap_err();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn an_image_on_top_of_another_is_refused_with_the_other_name() {
        let mut image = qcow2(3, 1 << 20);
        image[8..16].copy_from_slice(&512_u64.to_be_bytes());
        image[16..20].copy_from_slice(&9_u32.to_be_bytes());
        image[512..521].copy_from_slice(b"/etc/base");
        let error = probed(&image).unwrap_err();
        assert!(error.contains("backing file, \"/etc/base\""), "{error}");
        image[8..16].copy_from_slice(&u64::MAX.to_be_bytes());
        assert!(probed(&image).unwrap_err().starts_with("it begins like a qcow2 image"));
    }

    #[test]
    fn images_that_a_vm_process_could_not_read_are_refused() {
        let changed = |at: usize, bytes: &[u8]| {
            let mut image = qcow2(3, 1 << 30);
            image[at..at + bytes.len()].copy_from_slice(bytes);
            probed(&image).unwrap_err()
        };
        let cases = [
            (changed(20, &30_u32.to_be_bytes()), "with clusters of 2^30 bytes"),
            (changed(20, &0_u32.to_be_bytes()), "with clusters of 2^0 bytes"),
            (changed(32, &1_u32.to_be_bytes()), "that is encrypted"),
            (changed(72, &2_u64.to_be_bytes()), "marked as corrupt"),
            (changed(72, &4_u64.to_be_bytes()), "with features that are not known (0x4)"),
            (changed(36, &0_u32.to_be_bytes()), "whose table of 0 entries"),
            (changed(40, &u64::MAX.to_be_bytes()), "whose table of 2 entries"),
        ];
        for (error, text) in cases {
            assert!(error.starts_with(&format!("it is a qcow2 image {text}")), "{error}");
        }
    }

    #[test]
    fn headers_that_end_early_are_refused() {
        for length in [4, 8, 24, 71] {
            assert!(probed(&qcow2(2, 512)[..length]).is_err(), "{length}");
        }
        assert!(probed(&qcow2(4, 512)).is_err());
        let file = tempfile::tempfile().unwrap();
        assert!(!looks_like_qcow2(&file));
        file.write_all_at(QCOW2, 0).unwrap();
        assert!(looks_like_qcow2(&file));
    }
}
