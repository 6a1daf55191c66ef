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
    /// Itself, by which it is known from another one of its name: as long as it is open, none has its number.
    file: File,
}

impl Made {
    pub(super) fn new(directory: &OwnedFd, name: &Path, file: &File) -> io::Result<Self> {
        let (directory, file) = (directory.try_clone()?, file.try_clone()?);
        Ok(Self { directory, name: name.into(), file })
    }

    /// Takes it away, if it is still there.
    pub(super) fn remove(&self) {
        let found = fstatat(&self.directory, &self.name, AtFlags::AT_SYMLINK_NOFOLLOW);
        let (Ok(found), Ok(own)) = (found, self.file.metadata()) else { return };
        if (found.st_dev, found.st_ino) == (own.dev(), own.ino()) {
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
