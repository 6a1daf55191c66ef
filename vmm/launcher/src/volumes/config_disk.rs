//! Disks with the files of a ConfigMap, a Secret, a service account or the downward API.
//!
//! A guest reads them as they were when its VM was started. Kubernetes mounts such a volume as links to a directory with a hidden
//! name (`key -> ..data/key`, `..data -> ..2026_11_17…`), so that it can change all files at once; what begins with two dots is
//! its own and is left out, and the links are followed within the volume only.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use thiserror::Error;

use super::iso9660::{IsoError, MAX_DEPTH, MAX_ENTRIES, MAX_SIZE, Tree, image};

/// The volume label, unless the disk's user gives another.
pub const LABEL: &str = "cfgdata";
/// The volume label by which Windows finds its answer file.
pub const SYSPREP_LABEL: &str = "unattendCD";
/// As Kubernetes mounts such files by default.
const MODE: u32 = 0o644;

/// A file by its path in the volume.
pub type NamedFile = (String, Vec<u8>);

/// Why a mounted volume cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A file or directory that cannot be read.
    #[error("cannot read {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
    /// Neither a file nor a directory.
    #[error("{} is no regular file", .0.display())]
    Kind(PathBuf),
    /// A name that is no text.
    #[error("the name of {} is no UTF-8", .0.display())]
    Name(PathBuf),
    /// More than a disk can have.
    #[error("{} has more than {MAX_ENTRIES} files, {MAX_DEPTH} levels or {MAX_SIZE} bytes", .0.display())]
    TooMuch(PathBuf),
}

/// The disk with these files.
pub fn config_disk(label: &str, files: Vec<NamedFile>) -> Result<Vec<u8>, IsoError> {
    let mut tree = Tree::new(MODE);
    for (path, content) in files {
        tree.add(&path, content)?;
    }
    image(&tree, label)
}

/// The files of a volume that is mounted at `directory`, sorted by path.
pub fn mounted_files(directory: &Path) -> Result<Vec<NamedFile>, ReadError> {
    let failed = |error: Errno| ReadError::Io(directory.into(), error.into());
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let root = openat(AT_FDCWD, directory, flags, Mode::empty()).map_err(failed)?;
    let mut walk = Walk { root, at: directory, files: Vec::new(), size: 0 };
    walk.enter("", 1)?;
    walk.files.sort();
    Ok(walk.files)
}

struct Walk<'a> {
    root: OwnedFd,
    at: &'a Path,
    files: Vec<NamedFile>,
    size: usize,
}

impl Walk<'_> {
    fn enter(&mut self, path: &str, depth: usize) -> Result<(), ReadError> {
        let shown = self.at.join(path);
        let failed = |error: io::Error| ReadError::Io(shown.clone(), error);
        if depth > MAX_DEPTH {
            return Err(ReadError::TooMuch(self.at.into()));
        }
        // By its descriptor: the path may by now lead elsewhere.
        let directory = self.open(if path.is_empty() { "." } else { path })?;
        let by_descriptor = format!("/proc/self/fd/{}", directory.as_raw_fd());
        for entry in fs::read_dir(by_descriptor).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_str().ok_or_else(|| ReadError::Name(shown.join(&name)))?;
            // Kubernetes' own.
            if name.starts_with("..") {
                continue;
            }
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            self.take(&path, depth)?;
        }
        Ok(())
    }

    fn take(&mut self, path: &str, depth: usize) -> Result<(), ReadError> {
        let shown = self.at.join(path);
        let file = File::from(self.open(path)?);
        let status = fstat(&file).map_err(|error| ReadError::Io(shown.clone(), error.into()))?;
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        if kind == SFlag::S_IFDIR {
            return self.enter(path, depth + 1);
        }
        if kind != SFlag::S_IFREG {
            return Err(ReadError::Kind(shown));
        }
        // One more than there may be, to see that there is more.
        let room = MAX_SIZE - self.size + 1;
        let mut content = Vec::new();
        let limited = file.take(room.try_into().unwrap_or(u64::MAX));
        read_all(limited, &mut content).map_err(|error| ReadError::Io(shown.clone(), error))?;
        self.size += content.len();
        if self.size > MAX_SIZE || self.files.len() == MAX_ENTRIES {
            return Err(ReadError::TooMuch(self.at.into()));
        }
        self.files.push((path.into(), content));
        Ok(())
    }

    /// Opens what a path leads to, within the volume.
    fn open(&self, path: &str) -> Result<OwnedFd, ReadError> {
        // A pipe must not make the launcher wait.
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(flags).resolve(resolve);
        let failed = |error: Errno| ReadError::Io(self.at.join(path), error.into());
        openat2(&self.root, path, how).map_err(failed)
    }
}

fn read_all(mut file: impl Read, content: &mut Vec<u8>) -> io::Result<()> {
    file.read_to_end(content).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::iso9660::testing::{content, label};
    use super::*;

    /// A volume as kubelet makes it.
    fn mounted() -> tempfile::TempDir {
        let volume = tempfile::tempdir().unwrap();
        let data = volume.path().join("..2026_11_17_09_00_00.1");
        fs::create_dir_all(data.join("nested/more")).unwrap();
        fs::write(data.join("key"), "value").unwrap();
        fs::write(data.join(".dot"), "hidden, but the user's").unwrap();
        fs::write(data.join("nested/more/key"), "deep").unwrap();
        symlink("..2026_11_17_09_00_00.1", volume.path().join("..data")).unwrap();
        for name in ["key", ".dot", "nested"] {
            symlink(format!("..data/{name}"), volume.path().join(name)).unwrap();
        }
        volume
    }

    #[test]
    fn files_of_a_mounted_volume_are_read_once_and_by_their_own_names() {
        let volume = mounted();
        let files = mounted_files(volume.path()).unwrap();
        let expected =
            [(".dot", "hidden, but the user's"), ("key", "value"), ("nested/more/key", "deep")];
        assert_eq!(files, expected.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())));
        let disk = config_disk(LABEL, files).unwrap();
        assert_eq!(label(&disk), "cfgdata");
        assert_eq!(content(&disk, "nested/more/key").as_deref(), Some("deep"));
        assert_eq!(content(&disk, "..data"), None);
    }

    #[test]
    fn links_that_leave_the_volume_are_not_followed() {
        let volume = mounted();
        let outside = tempfile::NamedTempFile::new().unwrap();
        symlink(outside.path(), volume.path().join("out")).unwrap();
        let error = mounted_files(volume.path()).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot read {}/out", volume.path().display()));
    }

    #[test]
    fn pipes_and_loops_end_with_an_error() {
        let volume = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&volume.path().join("pipe"), Mode::S_IRWXU).unwrap();
        assert!(matches!(mounted_files(volume.path()), Err(ReadError::Kind(_))));
        let volume = tempfile::tempdir().unwrap();
        symlink(".", volume.path().join("again")).unwrap();
        assert!(matches!(mounted_files(volume.path()), Err(ReadError::TooMuch(_))));
        assert!(matches!(mounted_files(Path::new("/nonexistent")), Err(ReadError::Io(..))));
    }
}
