//! Files that live no longer than their machine.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::opening::check_free;
use super::{Access, DiskImageError, MODE};

/// Where files go that live no longer than their machine.
#[derive(Clone, Debug)]
pub enum Scratch {
    /// Into this directory, without a name: they are gone with the last descriptor.
    Nameless(PathBuf),
    /// Into this directory, by the names of their disks. What was there before is emptied.
    Named(PathBuf),
}

impl Scratch {
    /// A new file of `size` bytes, all of them holes.
    pub(super) fn file(&self, name: &str, size: u64) -> Result<File, DiskImageError> {
        let (path, file) = match self {
            Self::Nameless(directory) => (directory.clone(), nameless(directory)),
            Self::Named(directory) => {
                let path = directory.join(format!("{name}.img"));
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false).mode(MODE);
                let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
                let file = options.custom_flags(flags.bits()).open(&path);
                (path, file)
            }
        };
        let file = file.map_err(|source| DiskImageError::Open(path.clone(), source))?;
        let failed = |source| DiskImageError::Open(path.clone(), source);
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(DiskImageError::Kind(path));
        }
        check_free(&file, &path, Access::Write)?;
        file.set_len(0).map_err(failed)?;
        file.set_len(size).map_err(|source| DiskImageError::Make { path, size, source })?;
        Ok(file)
    }
}

fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(MODE);
    match options.clone().custom_flags(OFlag::O_TMPFILE.bits()).open(directory) {
        // A file system without such files; whatever else is wrong is so with a name too.
        Err(_) => {
            let path = directory.join(format!(".corten-{}", std::process::id()));
            let file = options.create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        file => file,
    }
}
