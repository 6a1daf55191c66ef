//! Whether the disks of one VM go together.
//!
//! Its VM process locks each disk that it writes to, for itself: a file that is there under two names, or by two hard links,
//! would be in its own way, and could not say which volumes it is of.

use std::fs::Metadata;

use super::volume::VolumeError;
use crate::volumes::disk_image::{Access, DiskContent, DiskImage, Origin};
use crate::volumes::holder::is_same;

/// Files that were opened for one VM and are not its alone.
#[derive(Default)]
pub(super) struct Together(Vec<Opened>);

struct Opened {
    volume: String,
    file: Metadata,
    access: Access,
}

impl Together {
    /// One more; an error if it is there already and either of them is to be written to by one alone.
    pub(super) fn add(&mut self, volume: &str, disk: &DiskImage) -> Result<(), VolumeError> {
        let Some(Origin { path, access }) = &disk.origin else { return Ok(()) };
        let (DiskContent::Raw(file) | DiskContent::Image { image: file, .. }) = &disk.content;
        let opened = Opened { volume: volume.into(), file: file.metadata()?, access: *access };
        if let Some(other) = self.0.iter().find(|other| opened.excludes(other)) {
            return Err(VolumeError::Twice { path: path.clone(), other: other.volume.clone() });
        }
        self.0.push(opened);
        Ok(())
    }
}

impl Opened {
    fn excludes(&self, other: &Self) -> bool {
        [self.access, other.access].contains(&Access::Write) && is_same(&self.file, &other.file)
    }
}
