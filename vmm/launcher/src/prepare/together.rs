//! Whether the disks of one VM go together, and locks on those that are only read.
//!
//! Its VM process locks each disk that it writes to, for itself: a file that is there under two names, or by two hard links,
//! would be in its own way, and could not say which volumes it is of. What is only read is locked when all are known to go
//! together: before, they could be in each other's way.

use std::fs::{File, Metadata};
use std::io;
use std::path::PathBuf;

use super::volume::VolumeError;
use crate::volumes::disk_image::{
    Access, DiskContent, DiskImage, DiskImageError, Origin, hold_for_reading,
};
use crate::volumes::holder::is_same;

/// Files that were opened for one VM and are not its alone.
#[derive(Default)]
pub(super) struct Together(Vec<Opened>);

struct Opened {
    volume: String,
    path: PathBuf,
    file: File,
    metadata: Metadata,
    access: Access,
}

impl Together {
    /// One more; an error if it is there already and either of them is to be written to by one alone.
    pub(super) fn add(&mut self, volume: &str, disk: &DiskImage) -> Result<(), VolumeError> {
        let Some(Origin { path, access }) = &disk.origin else { return Ok(()) };
        let (DiskContent::Raw(file) | DiskContent::Image { image: file, .. }) = &disk.content;
        let opened = Opened::new(volume, path.clone(), file, *access);
        let opened = opened.map_err(|source| DiskImageError::Open(path.clone(), source))?;
        if let Some(other) = self.0.iter().find(|other| opened.excludes(other)) {
            return Err(VolumeError::Twice { path: path.clone(), other: other.volume.clone() });
        }
        self.0.push(opened);
        Ok(())
    }

    /// Locks what is only read; an error comes with the name of its volume.
    pub(super) fn hold(self) -> Result<(), (String, DiskImageError)> {
        for opened in self.0.into_iter().filter(|opened| opened.access == Access::Read) {
            let held = hold_for_reading(&opened.file, &opened.path);
            held.map_err(|error| (opened.volume, error))?;
        }
        Ok(())
    }
}

impl Opened {
    /// The file is a duplicate of the one that the VM process gets: locks are those of both.
    fn new(volume: &str, path: PathBuf, file: &File, access: Access) -> io::Result<Self> {
        let (file, metadata) = (file.try_clone()?, file.metadata()?);
        Ok(Self { volume: volume.into(), path, file, metadata, access })
    }

    fn excludes(&self, other: &Self) -> bool {
        [self.access, other.access].contains(&Access::Write)
            && is_same(&self.metadata, &other.metadata)
    }
}
