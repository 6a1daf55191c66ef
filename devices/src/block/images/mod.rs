//! Disks that are made of images: a chain of raw and qcow2 files that are only read, and on top of them, for a disk that
//! is written to, an overlay that belongs to this one machine.
//!
//! ```text
//!   transfer ─▶ threads ─▶ Layers ── bit set ────▶ overlay: a sparse file, the same offsets as the disk
//!                             └─ not set ─▶ chain: image 0 ─▶ image 1 ─▶ … ─▶ zeroes
//! ```
//!
//! **Images** are descriptors with a format, in order, each the backing file of the one before it. No file is looked for
//! by a name that is in an image, and no format is guessed. An image that names a backing file must have one behind it
//! in the list, and one that names none must be the last. A backing file that is shorter than what is on top of it reads
//! as zeroes behind its end. `qcow2` says how images of that format are read and what their makers cannot do.
//!
//! **Overlay.** A bit for each 64 KiB says whether they are in the overlay or in the images. A write to what is in the
//! images copies the rest of its 64 KiB up first; discarded and zeroed ranges are holes in the overlay with their bits
//! set. The bits are in memory and saved with the machine: they and the file are of use only together. A process that
//! dies without having been saved takes them along, and what was written is lost: a disk that is to last is a raw one.
//!
//! **Threads.** Such a disk is always served by the threads of a pool, by system calls that wait. A read is several
//! steps that depend on each other (a table, the data, decompression), which on a ring would be a state machine for each
//! request, for disks that are mostly read once at boot and whose decompression needs a processor anyway. It costs up to
//! two changes of threads for each request, and more than four requests of a disk are not at work at a time. To the
//! transfer the disk is a file like any other that does part of what is asked: one run of clusters at a time. Raw
//! disks have their ring as before.
//!
//! **Locks.** One for the overlay's bits, one for each image's tables, one for its decompressed clusters; none is held
//! during a system call. Clusters that are being copied up or zeroed are claimed: whoever else wants to do that to one of
//! them waits; whoever reads does not.
//!
//! **System calls.** When made: fcntl, lseek, fstat, ftruncate of an overlay that is shorter than the disk. At work, on
//! the disk's threads only: preadv and pread64 on images and overlay; pwritev, pwrite64, fdatasync and fallocate on the
//! overlay; futex; mmap and munmap where memory for large clusters is had and given back.

mod bitmap;
mod cache;
mod chain;
mod layers;
mod overlay;
mod qcow2;
mod read_at;
mod state;
mod vectors;

#[cfg(feature = "fuzz")]
mod fuzzing;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

use nix::fcntl::OFlag;
use thiserror::Error;

use self::chain::Chain;
#[cfg(feature = "fuzz")]
pub use self::fuzzing::read_any_images;
use self::layers::Layers;
use self::overlay::Overlay;
pub use self::qcow2::Qcow2Error;
pub use self::state::{Allocation, OverlayState};
use super::backend::Medium;
use super::file::{DiskError, asking, flags_of};

/// The longest chain.
pub const MAX_IMAGES: usize = 32;
/// The largest disk: the bits of its overlay are 32 MiB.
pub const MAX_SIZE: u64 = 16 << 40;

/// How an image is to be read. Never guessed: a guest could write another format's header into a raw disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// Its bytes are the disk's.
    Raw,
    /// Versions 2 and 3.
    Qcow2,
}

/// One image of a chain.
#[derive(Debug)]
pub struct ImageFile {
    /// Open for reading.
    pub fd: OwnedFd,
    /// How to read it.
    pub format: ImageFormat,
}

/// Why images are no disk. They are counted from 0, the disk's own.
#[derive(Debug, Error)]
pub enum ImageError {
    /// None, or too many.
    #[error("a disk is made of 1 to {MAX_IMAGES} images, not of {0}")]
    Count(usize),
    /// A descriptor that cannot be read as an image.
    #[error("the descriptor of image {number} cannot be used")]
    File {
        /// Which one.
        number: usize,
        /// Why.
        #[source]
        source: DiskError,
    },
    /// No image, or one of a kind that cannot be read.
    #[error("image {number} cannot be read as qcow2")]
    Qcow2 {
        /// Which one.
        number: usize,
        /// Why.
        #[source]
        source: Qcow2Error,
    },
    /// The list ends too early.
    #[error("image {number} needs a backing file (it calls it \"{name}\"), and none was given")]
    BackingMissing {
        /// Which one.
        number: usize,
        /// What it calls its backing file.
        name: String,
    },
    /// The list goes on where the chain does not.
    #[error("image {number} has no backing file, but one was given")]
    BackingUnused {
        /// Which one.
        number: usize,
    },
    /// A raw image that is no disk.
    #[error("the disk has {0} bytes; 512 bytes to 16 TiB can be")]
    Size(u64),
    /// A descriptor that cannot be an overlay.
    #[error("the descriptor of the overlay cannot be used")]
    Overlay(#[source] DiskError),
}

/// A disk that is made of images.
#[derive(Clone)]
pub struct ImageDisk(Arc<Layers>);

impl ImageDisk {
    /// The disk that the first of `images` is, those after it being what it is based on. With an overlay, a file that
    /// is open for reading and writing and that nobody else uses, it can be written to. A new overlay is empty; one with
    /// content is of use once the machine that wrote it is loaded.
    pub fn open(images: Vec<ImageFile>, overlay: Option<OwnedFd>) -> Result<Self, ImageError> {
        let open = |(number, image): (usize, ImageFile)| {
            let (file, length) = open_file(image.fd, Kind::Any)
                .map_err(|source| ImageError::File { number, source })?;
            Ok((file, length, image.format))
        };
        let images = images.into_iter().enumerate().map(open).collect::<Result<_, _>>()?;
        let chain = Chain::open(images)?;
        let overlay = overlay.map(|fd| open_overlay(fd, chain.size())).transpose();
        let overlay = overlay.map_err(ImageError::Overlay)?;
        Ok(Self(Arc::new(Layers::new(chain, overlay))))
    }

    /// Size in bytes: whole sectors.
    pub fn size(&self) -> u64 {
        self.0.size()
    }

    /// Whether it can be written to.
    pub fn is_writable(&self) -> bool {
        self.0.overlay().is_some()
    }

    pub(super) fn medium(&self) -> Arc<dyn Medium> {
        Arc::clone(&self.0) as _
    }

    /// What is locked while the disk is written to.
    pub(super) fn overlay_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.overlay().map(|overlay| overlay.file().as_fd())
    }

    /// What is saved of its overlay, if it has one. Nothing is at work on it.
    pub(super) fn save(&self) -> Option<OverlayState> {
        self.0.overlay().map(Overlay::save)
    }

    /// What was saved becomes the state of the overlay; or what it says that cannot be.
    pub(super) fn load(&self, saved: &OverlayState) -> Result<(), String> {
        self.0.overlay().map_or(Ok(()), |overlay| overlay.load(saved))
    }
}

/// What a descriptor may be open on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file or a block device.
    Any,
    /// A file.
    File,
}

/// The file, and how long it is.
fn open_file(fd: OwnedFd, kind: Kind) -> Result<(File, u64), DiskError> {
    let mut file = File::from(fd);
    let found = file.metadata().map_err(asking("look at the file"))?.file_type();
    if !found.is_file() && (kind == Kind::File || !found.is_block_device()) {
        return Err(DiskError::Kind);
    }
    if flags_of(&file)?.contains(OFlag::O_DIRECT) {
        return Err(DiskError::Direct);
    }
    let length = file.seek(SeekFrom::End(0)).map_err(asking("measure the file"))?;
    Ok((file, length))
}

fn open_overlay(fd: OwnedFd, size: u64) -> Result<Overlay, DiskError> {
    let (file, length) = open_file(fd, Kind::File)?;
    let flags = flags_of(&file)?;
    if flags & OFlag::O_ACCMODE != OFlag::O_RDWR {
        return Err(DiskError::NotWritable);
    }
    if flags.contains(OFlag::O_APPEND) {
        return Err(DiskError::Appends);
    }
    // Holes read as zeroes; behind the end there would be nothing to read.
    if length < size {
        file.set_len(size).map_err(asking("make the overlay as long as the disk"))?;
    }
    Ok(Overlay::new(file, size))
}
