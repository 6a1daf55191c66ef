//! Snapshots in files: a machine with its memory, to go on later, as often as wanted.
//!
//! A snapshot is two files. The memory file ([`write_memory`], [`MemoryFile`]) is guest memory with a checksum of each chunk; the
//! records file ([`Snapshot`]) is all else: blueprint, records, command line, what its disks were. Both carry the same
//! random id. The records are written last, when the memory is on the disk: a snapshot that was not finished has none.
//!
//! The process opens neither: both come as descriptors, for their owner only ([`check_private`]). docs/snapshots.md
//! says what is promised.

mod checksum;
mod container;
mod disks;
mod memory;
mod records;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use container::{ContainerError, Header, MAX_LENGTH, Part, open, seal};
pub use disks::{DiskChange, DiskStamp, settle};
pub use memory::{MemoryFile, MemoryFileError, write_memory};
pub use records::{BootSizes, RecordsFileError, Snapshot};

/// What tells a snapshot from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotId(pub [u8; 16]);

impl SnapshotId {
    /// A new one.
    pub fn random() -> io::Result<Self> {
        let mut id = [0; 16];
        crate::entropy::fill(&mut id)?;
        Ok(Self(id))
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why a file is not taken for a snapshot, whatever is in it.
#[derive(Debug, Error)]
pub enum SnapshotFileError {
    /// It cannot be asked.
    #[error("cannot look at the file")]
    Ask(#[source] io::Error),
    /// No file.
    #[error("it is not a regular file")]
    Kind,
    /// Others could read the guest's memory, or change it.
    #[error("others than its owner have access to the file (mode {0:04o}): it has to be 0600")]
    Mode(u32),
    /// It may be another snapshot.
    #[error("the file has {0} bytes in it: a snapshot goes to an empty one")]
    NotEmpty(u64),
}

/// Whether the file is its owner's only: guests' secrets are in it.
pub fn check_private(file: &File) -> Result<(), SnapshotFileError> {
    let metadata = file.metadata().map_err(SnapshotFileError::Ask)?;
    if !metadata.is_file() {
        return Err(SnapshotFileError::Kind);
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(SnapshotFileError::Mode(mode)) }
}

/// Whether a snapshot may go into the file.
pub fn check_empty(file: &File) -> Result<(), SnapshotFileError> {
    match file.metadata().map_err(SnapshotFileError::Ask)?.size() {
        0 => Ok(()),
        size => Err(SnapshotFileError::NotEmpty(size)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Write;

    use super::*;

    #[test]
    fn only_files_for_their_owner_alone_are_taken() {
        let file = tempfile::tempfile().unwrap();
        for mode in [0o600, 0o400] {
            file.set_permissions(Permissions::from_mode(mode)).unwrap();
            check_private(&file).unwrap();
        }
        for mode in [0o644, 0o640, 0o660, 0o602, 0o610] {
            file.set_permissions(Permissions::from_mode(mode)).unwrap();
            let error = check_private(&file).unwrap_err().to_string();
            assert!(error.contains(&format!("(mode {mode:04o})")), "{error}");
        }
        let error = check_private(&File::open("/dev/null").unwrap()).unwrap_err();
        assert!(matches!(error, SnapshotFileError::Kind), "{error}");
    }

    #[test]
    fn nothing_is_overwritten() {
        let mut file = tempfile::tempfile().unwrap();
        check_empty(&file).unwrap();
        file.write_all(b"something").unwrap();
        assert!(matches!(check_empty(&file), Err(SnapshotFileError::NotEmpty(9))));
    }
}
