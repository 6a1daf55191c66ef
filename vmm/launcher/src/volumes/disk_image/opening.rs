//! How files are opened: within their volume, as what they are, and nobody else's.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;

use super::sizes::fitting;
use super::{Access, DiskContent, DiskImage, DiskImageError, Made, Origin};
use crate::volumes::holder::{holder, share};
use crate::volumes::probe::{SECTOR, looks_like_qcow2};

/// How long a disk may be held by nobody who can be seen.
const SETTLING: Duration = Duration::from_secs(1);

/// A directory, and how far links in it are followed.
pub(super) struct Volume {
    pub(super) directory: OwnedFd,
    /// For people to read.
    pub(super) path: PathBuf,
    pub(super) resolve: ResolveFlag,
}

impl Volume {
    pub(super) fn open(&self, name: &Path, flags: OFlag) -> Result<File, Errno> {
        // A pipe must not make anyone wait.
        let always = OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let mode = if flags.contains(OFlag::O_CREAT) {
            Mode::S_IRUSR | Mode::S_IWUSR
        } else {
            Mode::empty()
        };
        let how = OpenHow::new().flags(flags | always).mode(mode).resolve(self.resolve);
        openat2(&self.directory, name, how).map(File::from)
    }
}

/// The file of this name; with a capacity it is made where it is missing.
pub(super) fn open_or_make(
    volume: &Volume,
    name: &Path,
    create: Option<u64>,
    access: Access,
) -> Result<DiskImage, DiskImageError> {
    let flags = if access == Access::Read { OFlag::O_RDONLY } else { OFlag::O_RDWR };
    match (volume.open(name, flags), create) {
        (Err(Errno::ENOENT), Some(capacity)) => {
            let size = fitting(volume, capacity)?;
            let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
            let file = volume.open(name, flags).map_err(|error| not_opened(&volume.path, error))?;
            let failed = |source| DiskImageError::Open(volume.path.clone(), source);
            let made = Made::new(&volume.directory, name, &file).map_err(failed)?;
            let too_large = |source| {
                made.remove();
                DiskImageError::Make { path: volume.path.clone(), size, source }
            };
            file.set_len(size).map_err(too_large)?;
            let origin = Some(Origin { path: volume.path.clone(), access });
            Ok(DiskImage { content: DiskContent::Raw(file), size, origin, made: Some(made) })
        }
        (Err(error), _) => Err(not_opened(&volume.path, error)),
        (Ok(file), _) => raw(file, &volume.path, access),
    }
}

/// A raw disk that exists.
pub(super) fn raw(
    mut file: File,
    path: &Path,
    access: Access,
) -> Result<DiskImage, DiskImageError> {
    let failed = |source| DiskImageError::Open(path.into(), source);
    let kind = file.metadata().map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(DiskImageError::Kind(path.into()));
    }
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    if size == 0 {
        return Err(DiskImageError::Empty(path.into()));
    }
    if !size.is_multiple_of(SECTOR) {
        // No guest can have made it so: whoever pads it destroys an image.
        let path = path.into();
        return Err(if looks_like_qcow2(&file) {
            DiskImageError::Qcow2(path)
        } else {
            DiskImageError::Size { path, size }
        });
    }
    check_free(&file, path, access)?;
    let origin = Some(Origin { path: path.into(), access });
    Ok(DiskImage { content: DiskContent::Raw(file), size, origin, made: None })
}

/// Nobody is in the way. It is locked later, so this is for the message, and before anything is changed.
pub(super) fn check_free(file: &File, path: &Path, access: Access) -> Result<(), DiskImageError> {
    let deadline = Instant::now() + SETTLING;
    loop {
        let found = match holder(file, access != Access::Write) {
            // A file system without locks can still be read.
            Err(_) if access == Access::Read => return Ok(()),
            found => found.map_err(|source| DiskImageError::Open(path.into(), source))?,
        };
        match found {
            None => return Ok(()),
            // The rings of a process that was killed a moment ago may hold its files longer than it was there.
            Some(holder) if holder.process.is_none() && Instant::now() < deadline => {
                std::thread::sleep(SETTLING / 100);
            }
            Some(holder) => return Err(DiskImageError::InUse { path: path.into(), holder }),
        }
    }
}

/// Keeps others from writing to what is only read, for as long as the file is open anywhere. Without locks nothing does.
pub fn hold_for_reading(file: &File, path: &Path) -> Result<(), DiskImageError> {
    while let Ok(false) = share(file) {
        // Whoever was in the way may be gone by now.
        check_free(file, path, Access::Read)?;
    }
    Ok(())
}

pub(super) fn not_opened(path: &Path, error: Errno) -> DiskImageError {
    match error {
        Errno::ENOENT => DiskImageError::Missing(path.into()),
        Errno::ELOOP | Errno::EXDEV => DiskImageError::Link(path.into()),
        error => DiskImageError::Open(path.into(), error.into()),
    }
}
