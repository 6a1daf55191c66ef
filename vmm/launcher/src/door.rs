//! The launcher's side of the device directory.
//!
//! The directory is locked as long as a launcher lives. A second one, which somebody runs in the same container, would
//! otherwise replace the socket, and the agent would no longer find the first.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use corten_link::LinkError;
use corten_link::launcher::{LauncherEnd, SOCKET};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use thiserror::Error;

/// Why nobody can connect.
#[derive(Debug, Error)]
pub enum DoorError {
    /// Another launcher listens there.
    #[error("a launcher runs already behind {0}, and a VM is never run twice")]
    Taken(PathBuf),
    /// The directory cannot be locked.
    #[error(
        "cannot lock {path}; is the device directory mounted (resource devices.kubevirt.io/kvm)?"
    )]
    Lock {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A socket of an earlier launcher cannot be removed.
    #[error("cannot remove the old socket {path}")]
    Remove {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The socket cannot be made.
    #[error("cannot listen on {path}")]
    Listen {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Errno,
    },
}

/// A socket that agents connect to, one after the other.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
    /// Never read or written: its lock ends with it.
    _directory: File,
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Door {
    /// Listens in `directory`.
    pub fn open(directory: &Path) -> Result<Self, DoorError> {
        let path = directory.join(SOCKET);
        let locked = lock(directory)?;
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(DoorError::Remove { path, source });
            }
            _ => {}
        }
        let listener = listening(&path).map_err(|source| DoorError::Listen { path, source })?;
        // Only for its `accept`, which takes any Unix socket.
        Ok(Self { listener: listener.into(), _directory: locked })
    }

    /// The agent that has connected.
    pub fn accept(&self) -> io::Result<Result<LauncherEnd, LinkError>> {
        let (socket, _) = self.listener.accept()?;
        Ok(LauncherEnd::from_fd(OwnedFd::from(socket)))
    }
}

/// The directory, locked. The system unlocks it when the launcher ends, however it ends.
fn lock(directory: &Path) -> Result<File, DoorError> {
    let failed = |source| DoorError::Lock { path: directory.into(), source };
    let file = File::open(directory).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DoorError::Taken(directory.into())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

fn listening(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&listener, Backlog::new(8)?)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn socket_of_an_earlier_launcher_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        drop(Door::open(directory.path()).unwrap());
        Door::open(directory.path()).unwrap();
    }

    #[test]
    fn second_launcher_is_refused_and_the_first_is_still_found() {
        let directory = tempfile::tempdir().unwrap();
        let first = Door::open(directory.path()).unwrap();
        let inode = || fs::metadata(directory.path().join(SOCKET)).unwrap().ino();
        let before = inode();
        let second = Door::open(directory.path()).unwrap_err();
        assert!(matches!(second, DoorError::Taken(_)), "{second}");
        assert_eq!(inode(), before);
        drop(first);
    }

    #[test]
    fn missing_directory_is_named() {
        let error = Door::open(Path::new("/nonexistent/door")).unwrap_err().to_string();
        assert!(error.starts_with("cannot lock /nonexistent/door; is"), "{error}");
    }
}
