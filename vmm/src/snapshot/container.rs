//! The form of a records file: a header, and named parts with a checksum each.
//!
//! | part of the file | what |
//! |---|---|
//! | header, 48 bytes | magic, version, machine version, id of the snapshot, length of the file, number of parts, checksum |
//! | each part | length of its name (2 bytes), of its content (4), checksum of both (4), name, content |
//!
//! Numbers are little endian. Reading is strict: the parts fill the file exactly.

use std::str;

use thiserror::Error;

use super::SnapshotId;
use super::checksum::checksum;

const MAGIC: [u8; 8] = *b"CRTNREC\n";
const VERSION: u32 = 1;
const HEADER: usize = 48;
const PART: usize = 10;

/// No records file is longer: it is read as a whole.
pub const MAX_LENGTH: u64 = 64 << 20;

/// What stands at the head of a records file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the guest's ABI.
    pub machine_version: u32,
    /// Which snapshot it is.
    pub id: SnapshotId,
}

/// Why bytes are no records file.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ContainerError {
    /// Something else.
    #[error("it is no records file of a snapshot: its first bytes are {0:02x?}")]
    Magic(Vec<u8>),
    /// Made by another release.
    #[error("the records file has version {0}, this build reads {VERSION}: a newer build made it")]
    Version(u32),
    /// The header is not as it was written.
    #[error("the header of the records file is damaged")]
    Header,
    /// Cut off, or something was added.
    #[error("the records file has {found} bytes, it must have {expected}")]
    Length {
        /// How many it has.
        found: u64,
        /// How many it had.
        expected: u64,
    },
    /// More than is read.
    #[error("the records would have {0} bytes, over the limit of {MAX_LENGTH}")]
    TooLong(u64),
    /// The parts do not fill the file.
    #[error("part {0} of the records file ends beyond the file, or too early")]
    Parts(u32),
    /// A part without a name.
    #[error("the name of part {0} of the records file is damaged")]
    Name(u32),
    /// A part is not as it was written.
    #[error("{0:?} in the records file is damaged: its checksum is another")]
    Part(String),
}

/// A records file of these parts.
pub fn seal(header: Header, parts: &[(String, Vec<u8>)]) -> Result<Vec<u8>, ContainerError> {
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let content = |(name, content): &(String, Vec<u8>)| PART + name.len() + content.len();
    let length = parts.iter().map(content).sum::<usize>() + HEADER;
    if length as u64 > MAX_LENGTH {
        return Err(ContainerError::TooLong(length as u64));
    }
    let mut file = Vec::with_capacity(length);
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    file.extend(header.machine_version.to_le_bytes());
    file.extend(header.id.0);
    file.extend((length as u64).to_le_bytes());
    file.extend(count.to_le_bytes());
    file.extend(checksum(&file).to_le_bytes());
    for (number, (name, content)) in (0..).zip(parts) {
        let sizes = (u16::try_from(name.len()), u32::try_from(content.len()));
        let (Ok(name_length), Ok(length)) = sizes else {
            return Err(ContainerError::Parts(number));
        };
        file.extend(name_length.to_le_bytes());
        file.extend(length.to_le_bytes());
        let named = [name.as_bytes(), content.as_slice()].concat();
        file.extend(checksum(&named).to_le_bytes());
        file.extend(named);
    }
    Ok(file)
}

/// Name and content of a part.
pub type Part<'a> = (&'a str, &'a [u8]);

/// The parts of a records file.
pub fn open(file: &[u8]) -> Result<(Header, Vec<Part<'_>>), ContainerError> {
    let magic = file.get(..MAGIC.len()).unwrap_or(file);
    if magic != MAGIC {
        return Err(ContainerError::Magic(magic.to_vec()));
    }
    let Some((head, mut rest)) = file.split_first_chunk::<HEADER>() else {
        let (found, expected) = (file.len() as u64, HEADER as u64);
        return Err(ContainerError::Length { found, expected });
    };
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
    let version = number(8);
    if version > VERSION {
        return Err(ContainerError::Version(version));
    }
    if version == 0 || checksum(&head[..HEADER - 4]) != number(HEADER - 4) {
        return Err(ContainerError::Header);
    }
    let expected = u64::from(number(32)) | u64::from(number(36)) << 32;
    let found = file.len() as u64;
    if found != expected {
        return Err(ContainerError::Length { found, expected });
    }
    let mut id = SnapshotId([0; 16]);
    id.0.copy_from_slice(&head[16..32]);
    let count = number(40);
    let mut parts = Vec::new();
    for part in 0..count {
        let (named, after) = split_part(rest, part)?;
        parts.push(named);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(ContainerError::Parts(count));
    }
    Ok((Header { machine_version: number(12), id }, parts))
}

fn split_part(file: &[u8], part: u32) -> Result<(Part<'_>, &[u8]), ContainerError> {
    let beyond = || ContainerError::Parts(part);
    let (head, rest) = file.split_first_chunk::<PART>().ok_or_else(beyond)?;
    let [a, b, c, d, e, f, sum @ ..] = *head;
    let name_length = usize::from(u16::from_le_bytes([a, b]));
    let length = usize::try_from(u32::from_le_bytes([c, d, e, f])).map_err(|_| beyond())?;
    let named = name_length.checked_add(length).ok_or_else(beyond)?;
    let (named, after) = rest.split_at_checked(named).ok_or_else(beyond)?;
    let (name, content) = named.split_at(name_length);
    let good = checksum(named) == u32::from_le_bytes(sum);
    match str::from_utf8(name) {
        Ok(name) if good => Ok(((name, content), after)),
        // The name may be what is damaged: no more of it than can be.
        Ok(name) => Err(ContainerError::Part(name.chars().take(80).collect())),
        Err(_) => Err(ContainerError::Name(part)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: Header = Header { machine_version: 1, id: SnapshotId([3; 16]) };

    fn parts() -> Vec<(String, Vec<u8>)> {
        vec![("one".into(), b"content".to_vec()), ("two".into(), Vec::new())]
    }

    fn sealed() -> Vec<u8> {
        seal(HEAD, &parts()).unwrap()
    }

    #[test]
    fn what_is_sealed_opens() {
        let file = sealed();
        let (header, read) = open(&file).unwrap();
        assert_eq!(header, HEAD);
        let read: Vec<_> =
            read.into_iter().map(|(name, content)| (name.to_owned(), content.to_vec())).collect();
        assert_eq!(read, parts());
    }

    #[test]
    fn form_of_version_1_is_golden() {
        let golden = "4352544e5245430a01000000010000000303030303030303030303030303030344000000000000\
                      0001000000";
        let file = seal(HEAD, &[("part".into(), b"within".to_vec())]).unwrap();
        let text: String = file[..44].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, golden);
        assert_eq!(&file[48..54], [4, 0, 6, 0, 0, 0]);
        assert_eq!(&file[58..], b"partwithin");
    }

    #[test]
    fn other_files_and_other_versions_are_told_apart() {
        assert_eq!(open(b"").unwrap_err(), ContainerError::Magic(Vec::new()));
        let other = open(b"\x7fELF and so on").unwrap_err();
        assert_eq!(other, ContainerError::Magic(b"\x7fELF and".to_vec()));
        let mut newer = sealed();
        newer[8] = 2;
        assert_eq!(open(&newer).unwrap_err(), ContainerError::Version(2));
    }

    #[test]
    fn truncated_file_is_refused_by_its_length() {
        let file = sealed();
        let expected = file.len() as u64;
        for length in [48, file.len() - 1] {
            let found = length as u64;
            let error = open(&file[..length]).unwrap_err();
            assert_eq!(error, ContainerError::Length { found, expected });
        }
        let error = open(&file[..20]).unwrap_err();
        assert_eq!(error, ContainerError::Length { found: 20, expected: 48 });
        let longer = [&file[..], b"x"].concat();
        assert!(matches!(open(&longer), Err(ContainerError::Length { .. })));
    }

    #[test]
    fn damaged_part_is_named() {
        let mut file = sealed();
        file[HEADER + PART + 4] ^= 1;
        let error = open(&file).unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"one\" in the records file is damaged: its checksum is another"
        );
    }

    #[test]
    fn any_changed_byte_is_found() {
        let file = sealed();
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0x10;
            assert!(open(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn more_than_can_be_read_is_not_written() {
        let part = ("large".into(), vec![0; 64 << 20]);
        assert!(matches!(seal(HEAD, &[part]), Err(ContainerError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = open(&bytes);
            let _ = open(&[&sealed()[..HEADER], &bytes].concat());
        }
    }
}
