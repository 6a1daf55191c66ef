//! Why there is no disk.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::IN_IMAGE;
use crate::volumes::holder::Holder;
use crate::volumes::probe::{ProbeError, SECTOR};

/// Why there is no disk.
#[derive(Debug, Error)]
pub enum DiskImageError {
    /// The file cannot be opened or made.
    #[error("cannot open {}", .0.display())]
    Open(PathBuf, #[source] io::Error),
    /// The file is missing, and is not to be made.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// Where the file is to be.
    #[error("there is no directory {}", .0.display())]
    NoDirectory(PathBuf),
    /// A path that may lead anywhere.
    #[error("{} is no absolute path without `..`", .0.display())]
    Path(PathBuf),
    /// A link where none may be.
    #[error("there is a symbolic link in {}; give the path that it leads to", .0.display())]
    Link(PathBuf),
    /// Neither a file nor a block device.
    #[error("{} is neither a regular file nor a block device", .0.display())]
    Kind(PathBuf),
    /// Nothing in it.
    #[error("{} is empty; make it as large as the disk is to be, for example with truncate --size=10G", .0.display())]
    Empty(PathBuf),
    /// Not whole sectors.
    #[error("{} has {size} bytes, which is no multiple of {SECTOR}; pad it, for example with truncate --size=%{SECTOR}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// Not whole sectors, since it is an image of another format.
    #[error("{} is a qcow2 image, where a disk of its own is raw; make one of it, for example with qemu-img convert -O raw", .0.display())]
    Qcow2(PathBuf),
    /// Less than the least that can be.
    #[error("a disk of {0} bytes cannot be made; the least is 1 MiB")]
    TooSmall(u64),
    /// More than the file system can have in one file.
    #[error("a disk of {size} bytes cannot be made in {}", path.display())]
    Make {
        /// The directory or file.
        path: PathBuf,
        /// How large it was to be.
        size: u64,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Not enough room.
    #[error("{} has room for {free} bytes, too little for a disk of {wanted}", path.display())]
    NoRoom {
        /// The directory.
        path: PathBuf,
        /// What is free there.
        free: u64,
        /// What was asked for.
        wanted: u64,
    },
    /// Another VM writes to it.
    #[error("disk {} is in use by {holder}", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
        /// Who has it.
        holder: Holder,
    },
    /// No file, or several, where one is to be.
    #[error(
        "the image has {count} files in /{IN_IMAGE}; it has to have exactly one, or `path` has to say which"
    )]
    NotOne {
        /// How many.
        count: usize,
    },
    /// A file that is no image.
    #[error("{path} in the image cannot be used as a disk")]
    Image {
        /// Its path in the image.
        path: String,
        /// Why.
        #[source]
        source: ProbeError,
    },
    /// Images on top of images.
    #[error("an ephemeral disk has to be on top of a raw one")]
    NotRaw,
}
