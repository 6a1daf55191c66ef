//! What a disk is on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::backend::{Alignment, Medium};
use super::config::BlockError;
use super::file::{DiskError, DiskFile};
use super::images::ImageDisk;

/// One file or block device, or images.
#[derive(Clone)]
pub enum Disk {
    /// Raw, written where it is.
    File(DiskFile),
    /// Images, with an overlay to write to.
    Images(ImageDisk),
}

impl From<DiskFile> for Disk {
    fn from(file: DiskFile) -> Self {
        Self::File(file)
    }
}

impl From<ImageDisk> for Disk {
    fn from(images: ImageDisk) -> Self {
        Self::Images(images)
    }
}

impl Disk {
    /// Size in bytes, as it was last asked for.
    pub fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.size(),
            Self::Images(images) => images.size(),
        }
    }

    /// The smallest block size that it can be offered with.
    pub fn block_size(&self) -> u32 {
        match self {
            Self::File(file) => file.block_size(),
            Self::Images(_) => 512,
        }
    }

    pub(super) fn alignment(&self) -> Alignment {
        match self {
            Self::File(file) => file.alignment(),
            Self::Images(_) => Alignment::NONE,
        }
    }

    /// What a pool's threads work on.
    pub(super) fn medium(&self) -> Arc<dyn Medium> {
        match self {
            Self::File(file) => Arc::clone(file.file()) as _,
            Self::Images(images) => images.medium(),
        }
    }

    pub(super) fn check_writable(&self) -> Result<(), BlockError> {
        match self {
            Self::File(file) => file.check_writable().map_err(BlockError::Disk),
            Self::Images(images) if images.is_writable() => Ok(()),
            Self::Images(_) => Err(BlockError::NoOverlay),
        }
    }

    /// What is locked while the disk is written to: none of what is only read.
    pub(super) fn written_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::File(file) => Some(file.as_fd()),
            Self::Images(images) => images.overlay_fd(),
        }
    }

    /// Looks again how large it is. Images stay as they are.
    pub(super) fn measure(&mut self) -> Result<(), DiskError> {
        match self {
            Self::File(file) => file.measure(),
            Self::Images(_) => Ok(()),
        }
    }

    /// The file that a ring is made for.
    pub(super) fn ring_file(&self) -> io::Result<&Arc<std::fs::File>> {
        match self {
            Self::File(file) => Ok(file.file()),
            Self::Images(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "images are not read by a ring"))
            }
        }
    }
}
