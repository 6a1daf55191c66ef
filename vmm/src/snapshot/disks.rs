//! What a machine's disks were when the snapshot was taken. Its memory is full of what was read from them: on a disk that
//! was written since, its guest would destroy what is there.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::thread::sleep;
use std::time::{Duration, Instant};

use corten_link::Role;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How long the clock that stamps files takes at most from one tick to the next, with a margin.
const TICK: Duration = Duration::from_millis(50);
/// The same for file systems that count seconds.
const SECOND: Duration = Duration::from_millis(1100);
/// How often the clock is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// A disk as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskStamp {
    /// What it was granted as: a disk may be several files.
    pub role: Role,
    /// Whether the machine only reads it.
    pub read_only: bool,
    /// What is known of the file; nothing of a block device, which does not tell when it was written.
    pub file: Option<FileStamp>,
}

/// A file as it was. Says nothing across hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds of the last change of its content.
    modified: (i64, i64),
    /// The same for anything of it.
    changed: (i64, i64),
}

/// Why a snapshot does not go on with a disk.
#[derive(Debug, Error)]
pub enum DiskChange {
    /// It cannot be asked.
    #[error("cannot look at {0}")]
    Ask(Role, #[source] io::Error),
    /// A block device, then or now.
    #[error(
        "{0} is a block device, which does not tell whether it was written since the snapshot: name it in force-disks if it was not"
    )]
    BlockDevice(Role),
    /// Another file.
    #[error("{0} is another file than at the snapshot")]
    OtherFile(Role),
    /// Resized.
    #[error("{role} has {found} bytes, at the snapshot it had {expected}")]
    Size {
        /// Which one.
        role: Role,
        /// Its size.
        found: u64,
        /// Its size then.
        expected: u64,
    },
    /// Its content changed.
    #[error("{role} was written since the snapshot: modified at {} s, not {} s", seconds(.found), seconds(.expected))]
    Written {
        /// Which one.
        role: Role,
        /// When it was last modified.
        found: (i64, i64),
        /// When it had last been modified then.
        expected: (i64, i64),
    },
    /// Something of it changed, which may have been its time of modification.
    #[error("{role} was changed since the snapshot: inode changed at {} s, not {} s", seconds(.found), seconds(.expected))]
    Changed {
        /// Which one.
        role: Role,
        /// When it was last changed.
        found: (i64, i64),
        /// When it had last been changed then.
        expected: (i64, i64),
    },
    /// A disk that the snapshot says nothing of.
    #[error("the snapshot says nothing of {0}")]
    Unknown(Role),
}

fn seconds((seconds, nanoseconds): &(i64, i64)) -> String {
    format!("{seconds}.{nanoseconds:09}")
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl DiskStamp {
    /// The disk as it is. What was written to it is on it when this returns.
    pub fn take(role: &Role, read_only: bool, disk: &File) -> io::Result<Self> {
        if !read_only {
            disk.sync_data()?;
        }
        let metadata = disk.metadata()?;
        let file = metadata.is_file().then(|| FileStamp::of(&metadata));
        Ok(Self { role: role.clone(), read_only, file })
    }

    /// Whether it is one of the files that a disk is made of, which are only read and exist in copies.
    fn is_image(&self) -> bool {
        self.role.as_str().starts_with("image/")
    }

    /// Whether the disk is still what it was.
    pub fn check(&self, disk: &File) -> Result<(), DiskChange> {
        let role = self.role.clone();
        let metadata = disk.metadata().map_err(|source| DiskChange::Ask(role.clone(), source))?;
        let is_device = metadata.file_type().is_block_device();
        let Some(then) = self.file.filter(|_| !is_device) else {
            return Err(DiskChange::BlockDevice(role));
        };
        let now = FileStamp::of(&metadata);
        if now.size != then.size {
            let (found, expected) = (now.size, then.size);
            return Err(DiskChange::Size { role, found, expected });
        }
        if now.modified != then.modified {
            let (found, expected) = (now.modified, then.modified);
            return Err(DiskChange::Written { role, found, expected });
        }
        // An image that was unpacked again is another file, and one in a store of images gets names all the time.
        if self.is_image() {
            return Ok(());
        }
        if (now.device, now.inode) != (then.device, then.inode) {
            return Err(DiskChange::OtherFile(role));
        }
        if now.changed != then.changed {
            let (found, expected) = (now.changed, then.changed);
            return Err(DiskChange::Changed { role, found, expected });
        }
        Ok(())
    }
}

/// Waits until whatever is written from now on has another stamp than these: files are stamped by a clock that ticks some
/// hundred times in a second, or once, and what is written in the same tick would not be seen.
///
/// A clock that is not this one, as that of a file server, or that was set back meanwhile, cannot be waited for: then it waits for
/// as long as a tick takes, whatever the clock shows.
pub fn settle(stamps: &[DiskStamp]) {
    let files = stamps.iter().filter(|stamp| !stamp.is_image()).filter_map(|stamp| stamp.file);
    let changed: Vec<(i64, i64)> = files.map(|file| file.changed).collect();
    let Some(due) = changed.iter().copied().map(next_tick).max() else { return };
    let limit = if changed.iter().any(in_seconds) { SECOND } else { TICK };
    let start = Instant::now();
    let now = || clock_gettime(ClockId::CLOCK_REALTIME_COARSE).ok();
    while start.elapsed() < limit {
        if now().is_none_or(|now| (now.tv_sec(), now.tv_nsec()) >= due) {
            return;
        }
        sleep(LOOK);
    }
}

/// Whether the file system may count nothing smaller.
fn in_seconds((_, nanoseconds): &(i64, i64)) -> bool {
    *nanoseconds == 0
}

/// The first time at which a file gets another stamp than this one, by the same clock.
fn next_tick(stamp: (i64, i64)) -> (i64, i64) {
    let (seconds, nanoseconds) = stamp;
    if in_seconds(&stamp) { (seconds.saturating_add(1), 0) } else { (seconds, nanoseconds + 1) }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::time::SystemTime;

    use super::*;

    fn disk() -> (tempfile::NamedTempFile, DiskStamp) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let stamp = DiskStamp::take(&Role::disk("data").unwrap(), false, file.as_file()).unwrap();
        settle(std::slice::from_ref(&stamp));
        (file, stamp)
    }

    #[test]
    fn disk_that_was_only_read_is_unchanged() {
        let (file, stamp) = disk();
        let again = file.reopen().unwrap();
        again.read_exact_at(&mut [0; 512], 0).unwrap();
        corten_devices::block::lock(std::os::fd::AsFd::as_fd(&again)).unwrap();
        stamp.check(&again).unwrap();
    }

    #[test]
    fn write_directly_after_the_snapshot_is_seen() {
        for _ in 0..20 {
            let (file, stamp) = disk();
            file.as_file().write_all_at(b"x", 0).unwrap();
            let error = stamp.check(file.as_file()).unwrap_err();
            assert!(matches!(error, DiskChange::Written { .. }), "{error}");
        }
    }

    #[test]
    fn written_disk_whose_time_was_set_back_is_seen() {
        let (file, stamp) = disk();
        let before = file.as_file().metadata().unwrap().modified().unwrap();
        file.as_file().write_all_at(b"x", 0).unwrap();
        file.as_file().set_modified(before).unwrap();
        let error = stamp.check(file.as_file()).unwrap_err().to_string();
        assert!(error.starts_with("disk/data was changed since the snapshot"), "{error}");
    }

    #[test]
    fn resized_disk_and_another_file_are_named() {
        let (file, stamp) = disk();
        file.as_file().set_len(4096).unwrap();
        let error = stamp.check(file.as_file()).unwrap_err().to_string();
        assert_eq!(error, "disk/data has 4096 bytes, at the snapshot it had 8192");
        let (other, _) = disk();
        let mut stamp = stamp;
        let metadata = other.as_file().metadata().unwrap();
        stamp.file =
            stamp.file.map(|file| FileStamp { inode: file.inode, ..FileStamp::of(&metadata) });
        let error = stamp.check(other.as_file()).unwrap_err();
        assert!(matches!(error, DiskChange::OtherFile(_)), "{error}");
    }

    /// A file of the same size and age.
    fn copy_of(file: &tempfile::NamedTempFile) -> File {
        let copy = tempfile::tempfile().unwrap();
        copy.set_len(8192).unwrap();
        copy.set_modified(file.as_file().metadata().unwrap().modified().unwrap()).unwrap();
        copy.set_permissions(Permissions::from_mode(0o444)).unwrap();
        copy
    }

    #[test]
    fn image_may_be_a_copy_of_the_same_age() {
        let (file, _) = disk();
        let image = Role::image("data", 0).unwrap();
        let stamp = DiskStamp::take(&image, true, file.as_file()).unwrap();
        let copy = copy_of(&file);
        stamp.check(&copy).unwrap();
        copy.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(matches!(stamp.check(&copy), Err(DiskChange::Written { .. })));
    }

    #[test]
    fn disk_that_is_only_read_is_the_same_file() {
        let (file, _) = disk();
        let stamp = DiskStamp::take(&Role::disk("data").unwrap(), true, file.as_file()).unwrap();
        settle(std::slice::from_ref(&stamp));
        stamp.check(file.as_file()).unwrap();
        assert!(matches!(stamp.check(&copy_of(&file)), Err(DiskChange::OtherFile(_))));
        let before = file.as_file().metadata().unwrap().modified().unwrap();
        file.as_file().write_all_at(b"x", 0).unwrap();
        file.as_file().set_modified(before).unwrap();
        assert!(matches!(stamp.check(file.as_file()), Err(DiskChange::Changed { .. })));
    }

    #[test]
    fn next_stamp_of_a_file_is_waited_for() {
        assert_eq!(next_tick((5, 7)), (5, 8));
        assert_eq!(next_tick((5, 0)), (6, 0));
        // Of a file system that counts seconds.
        let (_file, mut stamp) = disk();
        let now = clock_gettime(ClockId::CLOCK_REALTIME_COARSE).unwrap().tv_sec();
        stamp.file = stamp.file.map(|file| FileStamp { changed: (now, 0), ..file });
        settle(std::slice::from_ref(&stamp));
        assert!(clock_gettime(ClockId::CLOCK_REALTIME_COARSE).unwrap().tv_sec() > now);
        // Of a clock that goes ahead.
        stamp.file = stamp.file.map(|file| FileStamp { changed: (i64::MAX, 1), ..file });
        let start = Instant::now();
        settle(std::slice::from_ref(&stamp));
        assert!(start.elapsed() >= TICK);
    }

    #[test]
    fn block_device_is_never_known_to_be_unchanged() {
        let (file, stamp) = disk();
        let stamp = DiskStamp { file: None, ..stamp };
        let error = stamp.check(file.as_file()).unwrap_err();
        assert!(matches!(error, DiskChange::BlockDevice(_)), "{error}");
    }
}
