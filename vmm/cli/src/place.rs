//! Run directories: where a VM is found by its name.
//!
//! A run directory is locked as long as its supervisor lives, by a lock that the kernel lets go with the process. So one
//! that is not locked is left over, whatever its process died of, and whoever comes by removes it.
//!
//! ```text
//!   /run/corten                 0700, the user's own
//!     NAME/                     0700, locked by the supervisor
//!       pid                     of the supervisor
//!       control.sock            where clients connect
//!       console.log, .1         what the guest said
//!       supervisor.log          what the supervisor and the VM process said
//! ```

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use thiserror::Error;

const PID: &str = "pid";
/// A path of a socket has 107 bytes at most, and the directory needs some of them.
const MAX_NAME: usize = 63;
/// How long a directory may be locked by somebody who is about to say or to remove it.
const SETTLING: Duration = Duration::from_secs(2);

/// Why there is no run directory.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// No place for them.
    #[error("XDG_RUNTIME_DIR is not set: say by --runtime DIR where run directories go")]
    NoRuntime,
    /// A name that no VM has.
    #[error(
        "{0:?} is no name: it has at most {MAX_NAME} lower-case letters, digits, `-` and `.`, and begins and ends with a letter or digit"
    )]
    Name(String),
    /// The directory cannot be used.
    #[error("cannot use {path}")]
    Directory {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Others could put VMs there.
    #[error("{0} is not this user's alone: it must be a directory of its own with mode 0700")]
    Foreign(PathBuf),
    /// There is one of this name.
    #[error(
        "{name} runs already, kept by process {holder}: stop it, or give this one another --name"
    )]
    Taken {
        /// The name.
        name: String,
        /// Its supervisor.
        holder: i32,
    },
    /// There is none of this name.
    #[error("no VM {0:?} runs; `corten ps` lists those that do")]
    NotRunning(String),
}

/// Where run directories are.
#[derive(Clone, Debug)]
pub struct Runtime(PathBuf);

/// A run directory, this process's own. It is removed with it.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// Locked.
    _directory: File,
}

impl Runtime {
    /// That directory, or the usual one of this user.
    pub fn new(said: Option<&Path>) -> Result<Self, PlaceError> {
        match said {
            Some(path) => std::path::absolute(path)
                .map(Self)
                .map_err(|source| PlaceError::Directory { path: path.into(), source }),
            None if geteuid().is_root() => Ok(Self("/run/corten".into())),
            None => {
                let directory = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
                let directory = directory.filter(|directory| directory.is_absolute());
                Ok(Self(directory.ok_or(PlaceError::NoRuntime)?.join("corten")))
            }
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The run directory of this name, whether it is there or not.
    pub fn of(&self, name: &str) -> Result<PathBuf, PlaceError> {
        if is_name(name) { Ok(self.0.join(name)) } else { Err(PlaceError::Name(name.into())) }
    }

    /// Takes the run directory of this name: makes it, or empties one that was left over.
    pub fn take(&self, name: &str) -> Result<Place, PlaceError> {
        let path = self.of(name)?;
        self.prepare()?;
        let failed = |source| PlaceError::Directory { path: path.clone(), source };
        let deadline = Instant::now() + SETTLING;
        loop {
            make(&path).map_err(failed)?;
            let directory = match File::open(&path) {
                // Whoever found it left over was quicker.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                directory => directory.map_err(failed)?,
            };
            match directory.try_lock() {
                Ok(()) if is_at(&directory, &path) => {
                    empty(&path).map_err(failed)?;
                    let pid = std::process::id().to_string();
                    fs::write(path.join(PID), pid).map_err(failed)?;
                    return Ok(Place { path, _directory: directory });
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => match holder(&path) {
                    Some(holder) => return Err(PlaceError::Taken { name: name.into(), holder }),
                    None if Instant::now() < deadline => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    None => return Err(PlaceError::Taken { name: name.into(), holder: 0 }),
                },
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
    }

    /// Makes sure that nobody else can put VMs there.
    fn prepare(&self) -> Result<(), PlaceError> {
        let failed = |source| PlaceError::Directory { path: self.0.clone(), source };
        make(&self.0).map_err(failed)?;
        let found = fs::symlink_metadata(&self.0).map_err(failed)?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(PlaceError::Foreign(self.0.clone()));
        }
        Ok(())
    }

    /// Names of VMs that run, in order. What is left over of others is removed.
    pub fn names(&self) -> Result<Vec<String>, PlaceError> {
        let failed = |source| PlaceError::Directory { path: self.0.clone(), source };
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
            if is_name(&name) && self.is_running(&name) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Process that holds a run directory.
    pub fn holder(&self, name: &str) -> Option<i32> {
        holder(&self.0.join(name))
    }

    /// Whether a VM of this name runs. What is left over of one that does not is removed.
    pub fn is_running(&self, name: &str) -> bool {
        let path = self.0.join(name);
        let Ok(directory) = File::open(&path) else { return false };
        match directory.try_lock() {
            Err(TryLockError::WouldBlock) => true,
            Ok(()) if is_at(&directory, &path) => {
                // What cannot be removed now is tried again by the next command.
                let _ = remove(&path);
                false
            }
            _ => false,
        }
    }
}

impl Place {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The lock goes after it: until then nobody takes the name.
        let _ = remove(&self.path);
    }
}

fn is_name(name: &str) -> bool {
    let ends = |byte: Option<u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let inner =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    name.len() <= MAX_NAME
        && name.bytes().all(inner)
        && ends(name.bytes().next())
        && ends(name.bytes().next_back())
}

/// Makes a directory, or finds it there.
fn make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Whether the open directory is still the one of this name.
fn is_at(directory: &File, path: &Path) -> bool {
    let identity = |found: &fs::Metadata| (found.dev(), found.ino());
    match (directory.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(theirs)) => identity(&ours) == identity(&theirs),
        _ => false,
    }
}

fn holder(path: &Path) -> Option<i32> {
    fs::read_to_string(path.join(PID)).ok()?.trim().parse().ok()
}

fn empty(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    empty(path)?;
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn runtime() -> (tempfile::TempDir, Runtime) {
        let directory = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(Some(&directory.path().join("corten"))).unwrap();
        (directory, runtime)
    }

    #[test]
    fn place_is_taken_once_and_gone_when_it_is_let_go() {
        let (_directory, runtime) = runtime();
        let place = runtime.take("first").unwrap();
        assert!(runtime.is_running("first"));
        assert_eq!(runtime.names().unwrap(), ["first"]);
        let error = runtime.take("first").unwrap_err().to_string();
        assert!(error.contains(&format!("kept by process {}", std::process::id())), "{error}");
        let path = place.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        drop(place);
        assert!(!path.exists());
        assert!(runtime.names().unwrap().is_empty());
        runtime.take("first").unwrap();
    }

    #[test]
    fn what_a_killed_supervisor_left_is_recognised_and_replaced() {
        let (_directory, runtime) = runtime();
        let path = runtime.of("old").unwrap();
        fs::create_dir_all(path.join("root")).unwrap();
        fs::set_permissions(runtime.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(path.join(PID), "1").unwrap();
        let place = runtime.take("old").unwrap();
        assert!(!place.path().join("root").exists());
        assert_eq!(holder(place.path()), i32::try_from(std::process::id()).ok());
        fs::create_dir(runtime.of("older").unwrap()).unwrap();
        assert_eq!(runtime.names().unwrap(), ["old"]);
        assert!(!runtime.of("older").unwrap().exists());
    }

    #[test]
    fn directory_that_others_can_write_to_is_refused() {
        let (_directory, runtime) = runtime();
        fs::create_dir(runtime.path()).unwrap();
        fs::set_permissions(runtime.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(runtime.take("first"), Err(PlaceError::Foreign(_))));
    }

    #[test]
    fn names_are_those_of_kubernetes_and_no_paths() {
        let (_directory, runtime) = runtime();
        for name in ["a", "first", "db-1.test", "0"] {
            assert!(runtime.of(name).is_ok(), "{name}");
        }
        let long = "x".repeat(64);
        for name in ["", ".", "..", "a/b", "-a", "a-", "A", "ä", ".a", "a b", &long] {
            assert!(matches!(runtime.of(name), Err(PlaceError::Name(_))), "{name}");
        }
    }
}
