//! Disks that are files: opened, made where they may be, and checked.
//!
//! | volume | becomes |
//! |---|---|
//! | persistentVolumeClaim, dataVolume | `disk.img` in the volume, or the block device that it is; raw |
//! | hostDisk | the file; raw |
//! | emptyDisk | a new sparse file; raw |
//! | ephemeral | the claim's disk as an image that is only read, and an overlay |
//! | containerDisk | the image's only file under `/disk`, only read, raw or qcow2, and an overlay |
//!
//! **Paths.** Whoever fills a volume or an image also makes its links. They are followed within it, never out of it; and on the
//! way to a hostDisk, which may be anywhere on a node, there may be none at all.
//!
//! **Sizes.** Files that are made have whole mebibytes, as KubeVirt's do: an emptyDisk no less than was asked for, files in a
//! volume, which may not have more room than that, no more. Where a volume has less room than was asked for, up to a
//! tenth less is taken; a sparse file that could not be filled is not made. `disk.img` grows with its claim, never shrinks.

mod error;
mod made;
mod opening;
mod scratch;
mod sizes;

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use corten_link::ImageFormat;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;

pub use self::error::DiskImageError;
pub use self::made::{Made, MadeFiles};
pub use self::opening::hold_for_reading;
use self::opening::{Volume, check_free, not_opened, open_or_make, raw};
pub use self::scratch::Scratch;
use self::sizes::{enough_mebibytes, grown};
use super::probe::probe;

/// The disk's file in a volume that is a file system.
const IN_CLAIM: &str = "disk.img";
/// Where the disk is in an image, unless its user says otherwise.
const IN_IMAGE: &str = "disk";
/// How far links in a claim are followed.
const IN_VOLUME: ResolveFlag =
    ResolveFlag::RESOLVE_BENEATH.union(ResolveFlag::RESOLVE_NO_MAGICLINKS);
/// Nobody else's business.
const MODE: u32 = 0o600;

/// What a disk is made of.
#[derive(Debug)]
pub enum DiskContent {
    /// One raw file or block device.
    Raw(File),
    /// An image that is only read, and what takes the writes.
    Image {
        /// Open for reading.
        image: File,
        /// How to read it.
        format: ImageFormat,
        /// A file of this machine's; none if the disk is only read.
        overlay: Option<File>,
    },
}

/// What is done with a disk that is a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written to, by one machine.
    Write,
    /// It is written to, by every machine that shares it.
    Share,
}

/// A file that was there before its VM, or stays behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// For people to read.
    pub path: PathBuf,
    /// What is done with it.
    pub access: Access,
}

/// A disk that can be handed to a VM process.
#[derive(Debug)]
pub struct DiskImage {
    /// What it is made of.
    pub content: DiskContent,
    /// Bytes that the guest sees.
    pub size: u64,
    /// Whose file it is, unless it is this VM's alone. Of an image with an overlay, the image.
    pub origin: Option<Origin>,
    /// Its file, if that was made just now and stays when the VM has ended.
    pub made: Option<Made>,
}

/// A disk with nothing on it.
pub fn empty_disk(
    scratch: &Scratch,
    name: &str,
    capacity: u64,
) -> Result<DiskImage, DiskImageError> {
    let size = enough_mebibytes(capacity)?;
    let file = scratch.file(name, size)?;
    Ok(DiskImage { content: DiskContent::Raw(file), size, origin: None, made: None })
}

/// The file at `path`; with a capacity it is made where it is missing.
pub fn host_disk(
    path: &Path,
    create: Option<u64>,
    access: Access,
) -> Result<DiskImage, DiskImageError> {
    // It has no name to look for; whatever is wrong with it, it is absolute.
    if path == Path::new("/") {
        return Err(DiskImageError::Kind(path.into()));
    }
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let (Some(directory), Some(name), true) =
        (path.parent(), path.file_name(), path.is_absolute() && path.components().all(is_plain))
    else {
        return Err(DiskImageError::Path(path.into()));
    };
    let root = openat(AT_FDCWD, "/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    let root = root.map_err(|error| DiskImageError::Open(path.into(), error.into()))?;
    let resolve = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(resolve);
    let relative = directory.strip_prefix("/").unwrap_or(directory);
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let directory = openat2(&root, relative, how).map_err(|error| match error {
        Errno::ENOENT | Errno::ENOTDIR => DiskImageError::NoDirectory(directory.into()),
        error => not_opened(path, error),
    })?;
    open_or_make(&Volume { directory, path: path.into(), resolve }, Path::new(name), create, access)
}

/// The disk of a claim, which is mounted at `path` or is the block device there. With a capacity its file is made where it is
/// missing, and grows to it where it is smaller.
pub fn claim(
    path: &Path,
    create: Option<u64>,
    access: Access,
) -> Result<DiskImage, DiskImageError> {
    let failed = |source| DiskImageError::Open(path.into(), source);
    if !path.metadata().map_err(failed)?.is_dir() {
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let mut options = OpenOptions::new();
        options.read(true).write(access != Access::Read).custom_flags(flags.bits());
        return raw(options.open(path).map_err(failed)?, path, access);
    }
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = openat(AT_FDCWD, path, flags, Mode::empty());
    let directory = directory.map_err(|error| failed(error.into()))?;
    let volume = Volume { directory, path: path.join(IN_CLAIM), resolve: IN_VOLUME };
    let disk = open_or_make(&volume, Path::new(IN_CLAIM), create, access)?;
    match (&disk.content, create) {
        (DiskContent::Raw(file), Some(capacity)) if access != Access::Read => {
            let size = grown(file, disk.size, capacity).map_err(failed)?;
            Ok(DiskImage { size, ..disk })
        }
        _ => Ok(disk),
    }
}

/// The disk of the claim at `path`, as a descriptor that nothing can be read through: if it is there and may not be opened
/// for `access`. Whatever else is the matter with it is told by [`claim`].
pub fn closed_claim(path: &Path, access: Access) -> Option<(PathBuf, OwnedFd)> {
    let flags = if access == Access::Read { OFlag::O_RDONLY } else { OFlag::O_RDWR };
    let place = OFlag::O_PATH | OFlag::O_CLOEXEC;
    if !path.metadata().ok()?.is_dir() {
        let always = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let opened = openat(AT_FDCWD, path, flags | always, Mode::empty());
        let shown = openat(AT_FDCWD, path, place, Mode::empty()).ok()?;
        return (opened.err() == Some(Errno::EACCES)).then_some((path.into(), shown));
    }
    let directory = openat(AT_FDCWD, path, place | OFlag::O_DIRECTORY, Mode::empty()).ok()?;
    let volume = Volume { directory, path: path.join(IN_CLAIM), resolve: IN_VOLUME };
    let opened = volume.open(Path::new(IN_CLAIM), flags);
    let how = OpenHow::new().flags(place).resolve(IN_VOLUME);
    let shown = openat2(&volume.directory, IN_CLAIM, how).ok()?;
    (opened.err() == Some(Errno::EACCES)).then_some((volume.path, shown))
}

/// What a raw disk holds, with an overlay on top of it: it is never written to.
pub fn ephemeral(
    base: DiskImage,
    scratch: &Scratch,
    name: &str,
) -> Result<DiskImage, DiskImageError> {
    let DiskImage { content: DiskContent::Raw(image), size, origin, made } = base else {
        return Err(DiskImageError::NotRaw);
    };
    let overlay = Some(scratch.file(name, size)?);
    let content = DiskContent::Image { image, format: ImageFormat::Raw, overlay };
    Ok(DiskImage { content, size, origin, made })
}

/// The disk in an image whose files are below `root`: the only one in its directory `disk`, or the one at `path`. Writes go to an
/// overlay, if there is a place for one.
pub fn container_disk(
    root: &Path,
    path: Option<&str>,
    scratch: Option<&Scratch>,
    name: &str,
) -> Result<DiskImage, DiskImageError> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let failed = |error: Errno| DiskImageError::Open(root.into(), error.into());
    let directory = openat(AT_FDCWD, root, flags, Mode::empty()).map_err(failed)?;
    // As in a container of that image: its root is the end of the world.
    let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let volume = Volume { directory, path: root.into(), resolve };
    let path = match path.map(|path| path.trim_start_matches('/')).filter(|path| !path.is_empty()) {
        Some(path) => path.to_owned(),
        None => format!("{IN_IMAGE}/{}", only_file(&volume)?),
    };
    let shown = root.join(&path);
    let file = volume.open(Path::new(&path), OFlag::O_RDONLY);
    let file = file.map_err(|error| not_opened(&shown, error))?;
    of_image(file, (&shown, path), scratch, name)
}

/// The disk that was taken out of an image, and is the file at `path`.
pub fn unpacked_disk(
    path: &Path,
    scratch: Option<&Scratch>,
    name: &str,
) -> Result<DiskImage, DiskImageError> {
    let file = File::open(path).map_err(|source| DiskImageError::Open(path.into(), source))?;
    of_image(file, (path, path.display().to_string()), scratch, name)
}

/// A file that nobody writes to, with a place for what the guest writes.
fn of_image(
    file: File,
    (shown, path): (&Path, String),
    scratch: Option<&Scratch>,
    name: &str,
) -> Result<DiskImage, DiskImageError> {
    let kind = file.metadata().map_err(|source| DiskImageError::Open(shown.into(), source))?;
    if !kind.is_file() {
        return Err(DiskImageError::Kind(shown.into()));
    }
    check_free(&file, shown, Access::Read)?;
    let probed = probe(&file).map_err(|source| DiskImageError::Image { path, source })?;
    let overlay = scratch.map(|scratch| scratch.file(name, probed.size)).transpose()?;
    let content = DiskContent::Image { image: file, format: probed.format, overlay };
    let origin = Some(Origin { path: shown.into(), access: Access::Read });
    Ok(DiskImage { content, size: probed.size, origin, made: None })
}

/// The name of the only file in an image's directory for disks.
fn only_file(volume: &Volume) -> Result<String, DiskImageError> {
    let failed = |source| DiskImageError::Open(volume.path.join(IN_IMAGE), source);
    let directory = volume.open(Path::new(IN_IMAGE), OFlag::O_RDONLY | OFlag::O_DIRECTORY);
    let directory = directory.map_err(|error| not_opened(&volume.path.join(IN_IMAGE), error))?;
    let by_descriptor = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let mut names = Vec::new();
    // Of more than a few nobody needs to know how many.
    for entry in std::fs::read_dir(by_descriptor).map_err(failed)?.take(1000) {
        let entry = entry.map_err(failed)?;
        // A layer that removes a file may leave its mark.
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(".wh.") && !entry.file_type().map_err(failed)?.is_dir() {
            names.push(name);
        }
    }
    match names.as_slice() {
        [name] => Ok(name.clone()),
        names => Err(DiskImageError::NotOne { count: names.len() }),
    }
}
