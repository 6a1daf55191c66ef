//! The two files of a snapshot, as a control peer makes them.

use std::fs::{File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;
use corten_link::Role;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Both of them, without a name.
#[derive(Debug)]
pub struct SnapshotFiles {
    memory: File,
    records: File,
}

impl SnapshotFiles {
    /// Two empty files, for nobody else.
    pub fn new() -> Result<Self> {
        Self { memory: tempfile::tempfile()?, records: tempfile::tempfile()? }.private()
    }

    /// The same, in memory: where there is no room for files.
    pub fn in_memory() -> Result<Self> {
        let file =
            || -> Result<File> { Ok(memfd_create("snapshot", MFdFlags::MFD_CLOEXEC)?.into()) };
        Self { memory: file()?, records: file()? }.private()
    }

    fn private(self) -> Result<Self> {
        self.set_mode(0o600)?;
        Ok(self)
    }

    /// The memory file.
    pub fn memory(&self) -> Result<File> {
        Ok(self.memory.try_clone()?)
    }

    /// The records file.
    pub fn records(&self) -> Result<File> {
        Ok(self.records.try_clone()?)
    }

    /// Lets others have access to both, or not.
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        self.memory.set_permissions(Permissions::from_mode(mode))?;
        Ok(self.records.set_permissions(Permissions::from_mode(mode))?)
    }

    /// Both, as they are granted.
    pub fn grant(&self) -> Result<Vec<(Role, OwnedFd)>> {
        let memory = (Role::snapshot_memory(), self.memory()?.into());
        Ok(vec![memory, (Role::snapshot_records(), self.records()?.into())])
    }
}
