//! The open file or block device that a disk is on.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;

use libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, c_int, c_short, flock};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use thiserror::Error;

use super::backend::{Alignment, sys};
use super::request::SECTOR;

/// The largest block that a disk may ask for.
const MAX_BLOCK: u32 = 64 * 1024;
/// What any disk takes, where the file system does not say what its own takes.
const SAFE_ALIGNMENT: usize = 4096;

/// Why a descriptor is no disk.
#[derive(Debug, Error)]
pub enum DiskError {
    /// Neither a file nor a block device.
    #[error("the descriptor is neither a regular file nor a block device")]
    Kind,
    /// Not one block in it.
    #[error("the disk has {size} bytes, not one block of {block}")]
    Empty {
        /// How large it is.
        size: u64,
        /// How large a block is.
        block: u32,
    },
    /// Opened for reading only.
    #[error("the descriptor is not open for writing")]
    NotWritable,
    /// Every write would go to its end.
    #[error("the descriptor is open for appending")]
    Appends,
    /// Images and overlays are read at any offset.
    #[error("the descriptor is open with O_DIRECT, and images go through the page cache")]
    Direct,
    /// Cannot be asked.
    #[error("cannot {ask}")]
    Ask {
        /// What was asked.
        ask: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Why a disk is not ours to write to.
#[derive(Debug, Error)]
pub enum LockError {
    /// A process has it.
    #[error("the disk is in use by process {0}")]
    HeldBy(i32),
    /// Whoever has it holds it by an open file, which may be in several processes.
    #[error("the disk is in use through another open file, whose process is not known")]
    HeldByFile,
    /// Locks cannot be had.
    #[error("cannot lock the disk")]
    Lock(#[source] io::Error),
}

/// Which file a disk is, and when it was last changed. Says nothing across hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskIdentity {
    /// Device that the file is on, or that it is.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last change of its content, in nanoseconds since 1970.
    pub changed: i128,
}

/// An open disk: its size, and what it asks of transfers.
#[derive(Clone, Debug)]
pub struct DiskFile {
    file: Arc<File>,
    size: u64,
    block_size: u32,
    alignment: Alignment,
    direct: bool,
}

impl DiskFile {
    /// The disk that `fd` is open on. With `direct`, the page cache is bypassed if the file system can, also where the
    /// descriptor was not opened so; whoever shares the open file shares that.
    pub fn new(fd: OwnedFd, direct: bool) -> Result<Self, DiskError> {
        let file = File::from(fd);
        let kind = file.metadata().map_err(asking("look at the disk"))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(DiskError::Kind);
        }
        let logical = if kind.is_block_device() { logical_block_size(&file)? } else { 512 };
        let (alignment, direct) = settle_direct(&file, direct, logical)?;
        let block_size = logical.max(u32::try_from(alignment.length).unwrap_or(MAX_BLOCK));
        let size = size_of(&file)?;
        if size < u64::from(block_size) {
            return Err(DiskError::Empty { size, block: block_size });
        }
        Ok(Self { file: Arc::new(file), size, block_size, alignment, direct })
    }

    /// Size in bytes, as it was last asked for.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What its transfers are multiples of: the smallest block size that it can be offered with.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Whether it goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Which file it is.
    pub fn identity(&self) -> io::Result<DiskIdentity> {
        let metadata = self.file.metadata()?;
        let device = if metadata.rdev() != 0 { metadata.rdev() } else { metadata.dev() };
        Ok(DiskIdentity {
            device,
            inode: metadata.ino(),
            size: self.size,
            changed: i128::from(metadata.mtime()) * 1_000_000_000
                + i128::from(metadata.mtime_nsec()),
        })
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(super) fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Looks again how large it is.
    pub(super) fn measure(&mut self) -> Result<(), DiskError> {
        self.size = size_of(&self.file)?;
        Ok(())
    }

    pub(super) fn check_writable(&self) -> Result<(), DiskError> {
        let flags = flags_of(&self.file)?;
        let mode = flags & OFlag::O_ACCMODE;
        if mode == OFlag::O_RDONLY {
            return Err(DiskError::NotWritable);
        }
        // pwritev(2): the offset is ignored then.
        if flags.contains(OFlag::O_APPEND) { Err(DiskError::Appends) } else { Ok(()) }
    }

    /// Whatever the descriptor is, with that many bytes: for tests of errors.
    #[cfg(test)]
    pub(super) fn fake(file: File, size: u64) -> Self {
        let (block_size, alignment) = (512, Alignment::NONE);
        Self { file: Arc::new(file), size, block_size, alignment, direct: false }
    }
}

impl AsFd for DiskFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Takes the disk for writing. Held by the open file, so by every descriptor that was passed on or duplicated from this
/// one, until the last is closed or [`unlock`] is called. Who hands a disk over calls that: closing is not enough, as a
/// ring keeps its file for a while after it was closed, and others may have duplicates.
pub fn lock(fd: BorrowedFd<'_>) -> Result<(), LockError> {
    take(fd, F_WRLCK)
}

/// Takes the disk for writing beside others who share it as well; nobody then has it for itself. Else as [`lock`].
pub fn lock_shared(fd: BorrowedFd<'_>) -> Result<(), LockError> {
    take(fd, F_RDLCK)
}

fn take(fd: BorrowedFd<'_>, kind: c_int) -> Result<(), LockError> {
    let mut range = whole(kind);
    match fcntl(fd, FcntlArg::F_OFD_SETLK(&range)) {
        Ok(_) => Ok(()),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => {
            fcntl(fd, FcntlArg::F_OFD_GETLK(&mut range)).map_err(|e| LockError::Lock(e.into()))?;
            // Locks of open files have no process: -1.
            if range.l_pid > 0 {
                Err(LockError::HeldBy(range.l_pid))
            } else {
                Err(LockError::HeldByFile)
            }
        }
        Err(error) => Err(LockError::Lock(error.into())),
    }
}

/// Lets go of what [`lock`] took, for another to take over.
pub fn unlock(fd: BorrowedFd<'_>) -> Result<(), LockError> {
    let range = whole(F_UNLCK);
    fcntl(fd, FcntlArg::F_OFD_SETLK(&range)).map_err(|error| LockError::Lock(error.into()))?;
    Ok(())
}

fn whole(kind: c_int) -> flock {
    let short = |number: c_int| c_short::try_from(number).unwrap_or(0);
    flock { l_type: short(kind), l_whence: short(SEEK_SET), l_start: 0, l_len: 0, l_pid: 0 }
}

pub(super) fn asking(ask: &'static str) -> impl FnOnce(io::Error) -> DiskError {
    move |source| DiskError::Ask { ask, source }
}

pub(super) fn flags_of(file: &File) -> Result<OFlag, DiskError> {
    let flags = fcntl(file, FcntlArg::F_GETFL);
    Ok(OFlag::from_bits_retain(flags.map_err(io::Error::from).map_err(asking("read its flags"))?))
}

/// Whole sectors. A file has a size of its own; a block device says it by its end.
fn size_of(mut file: &File) -> Result<u64, DiskError> {
    let size = file.seek(SeekFrom::End(0)).map_err(asking("measure the disk"))?;
    Ok(size - size % SECTOR)
}

fn logical_block_size(file: &File) -> Result<u32, DiskError> {
    let size = sys::logical_block_size(file).map_err(asking("read the disk's block size"))?;
    let size = u32::try_from(size).ok().filter(|size| size.is_power_of_two());
    let size = size.filter(|size| (512..=MAX_BLOCK).contains(size));
    size.ok_or_else(|| asking("use the disk's block size")(io::ErrorKind::Unsupported.into()))
}

/// Sets O_DIRECT as it is wanted and as it can be.
fn settle_direct(file: &File, wanted: bool, logical: u32) -> Result<(Alignment, bool), DiskError> {
    let flags = flags_of(file)?;
    let is_set = flags.contains(OFlag::O_DIRECT);
    if !is_set && !wanted {
        return Ok((Alignment::NONE, false));
    }
    let asked = sys::direct_alignment(file).map_err(asking("read the disk's alignment"))?;
    if asked == Some((0, 0)) {
        // The file system says that it cannot, for this file.
        let without = flags.difference(OFlag::O_DIRECT);
        fcntl(file, FcntlArg::F_SETFL(without))
            .map_err(io::Error::from)
            .map_err(asking("use the page cache"))?;
        return Ok((Alignment::NONE, false));
    }
    if !is_set && fcntl(file, FcntlArg::F_SETFL(flags | OFlag::O_DIRECT)).is_err() {
        return Ok((Alignment::NONE, false));
    }
    let (memory, length) = asked.unwrap_or((SAFE_ALIGNMENT, SAFE_ALIGNMENT));
    let length = length.max(logical as usize);
    if memory.is_power_of_two() && length.is_power_of_two() && length <= MAX_BLOCK as usize {
        Ok((Alignment { memory, length }, true))
    } else {
        Err(asking("use the disk's alignment")(io::ErrorKind::Unsupported.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn file(size: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        file
    }

    fn open(file: &tempfile::NamedTempFile) -> OwnedFd {
        file.reopen().unwrap().into()
    }

    #[test]
    fn only_disks_are_disks() {
        let null = OwnedFd::from(File::open("/dev/null").unwrap());
        assert!(matches!(DiskFile::new(null, false), Err(DiskError::Kind)));
        let small = DiskFile::new(open(&file(511)), false);
        assert!(matches!(small, Err(DiskError::Empty { size: 0, block: 512 })));
        let odd = DiskFile::new(open(&file(5000)), false).unwrap();
        assert_eq!(odd.size(), 4608);
        assert_eq!(odd.identity().unwrap().size, 4608);
    }

    #[test]
    fn descriptor_says_whether_it_can_be_written() {
        let file = file(4096);
        let reader = OwnedFd::from(File::open(file.path()).unwrap());
        let error = DiskFile::new(reader, false).unwrap().check_writable();
        assert!(matches!(error, Err(DiskError::NotWritable)));
        let appender = File::options().append(true).open(file.path()).unwrap();
        let error = DiskFile::new(appender.into(), false).unwrap().check_writable();
        assert!(matches!(error, Err(DiskError::Appends)));
        DiskFile::new(open(&file), false).unwrap().check_writable().unwrap();
    }

    #[test]
    fn lock_is_held_by_one_open_file() {
        let file = file(4096);
        let (first, second) = (open(&file), open(&file));
        lock(first.as_fd()).unwrap();
        lock(first.try_clone().unwrap().as_fd()).unwrap();
        let error = lock(second.as_fd()).unwrap_err();
        assert!(matches!(error, LockError::HeldByFile));
        unlock(first.as_fd()).unwrap();
        lock(second.as_fd()).unwrap();
    }

    #[test]
    fn shared_lock_is_held_by_several_and_keeps_out_who_wants_all() {
        let file = file(4096);
        let (first, second, third) = (open(&file), open(&file), open(&file));
        lock_shared(first.as_fd()).unwrap();
        lock_shared(second.as_fd()).unwrap();
        assert!(matches!(lock(third.as_fd()), Err(LockError::HeldByFile)));
        unlock(first.as_fd()).unwrap();
        unlock(second.as_fd()).unwrap();
        lock(third.as_fd()).unwrap();
        assert!(matches!(lock_shared(first.as_fd()), Err(LockError::HeldByFile)));
    }

    #[test]
    fn lock_of_a_process_is_refused_by_its_name() {
        let file = file(4096);
        let (process, ours) = (open(&file), open(&file));
        fcntl(&process, FcntlArg::F_SETLK(&whole(F_WRLCK))).unwrap();
        let error = lock(ours.as_fd()).unwrap_err();
        let id = std::process::id();
        assert_eq!(error.to_string(), format!("the disk is in use by process {id}"));
    }
}
