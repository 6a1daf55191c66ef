//! Files that were made for a VM, and go again if it comes to nothing.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// A file that was not there before.
#[derive(Debug)]
pub struct Made {
    directory: OwnedFd,
    name: PathBuf,
    /// Device and number, by which it is known from one of the same name.
    identity: (u64, u64),
}

impl Made {
    pub(super) fn new(directory: &OwnedFd, name: &Path, file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            directory: directory.try_clone()?,
            name: name.into(),
            identity: (metadata.dev(), metadata.ino()),
        })
    }

    /// Takes it away, if it is still there.
    pub(super) fn remove(&self) {
        let found = fstatat(&self.directory, &self.name, AtFlags::AT_SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| (found.st_dev, found.st_ino) == self.identity) {
            // What cannot be taken away is an empty disk too many, and nothing worse.
            let _ = unlinkat(&self.directory, &self.name, UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Files that were made for a VM. They go with this, unless they are kept.
#[derive(Debug, Default)]
pub struct MadeFiles(Vec<Made>);

impl MadeFiles {
    /// One more.
    pub fn add(&mut self, made: Option<Made>) {
        self.0.extend(made);
    }

    /// They stay: the VM runs, and what is in them is its guest's.
    pub fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        self.0.iter().for_each(Made::remove);
    }
}
