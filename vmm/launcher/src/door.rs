//! The launcher's side of the device directory.

use std::fs;
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
    #[error(
        "cannot listen on {path}; is the device directory mounted (resource devices.kubevirt.io/kvm)?"
    )]
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
pub struct Door(UnixListener);

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Door {
    /// Listens in `directory`.
    pub fn open(directory: &Path) -> Result<Self, DoorError> {
        let path = directory.join(SOCKET);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(DoorError::Remove { path, source });
            }
            _ => {}
        }
        let listener = listening(&path).map_err(|source| DoorError::Listen { path, source })?;
        // Only for its `accept`, which takes any Unix socket.
        Ok(Self(listener.into()))
    }

    /// The agent that has connected.
    pub fn accept(&self) -> io::Result<Result<LauncherEnd, LinkError>> {
        let (socket, _) = self.0.accept()?;
        Ok(LauncherEnd::from_fd(OwnedFd::from(socket)))
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
    use super::*;

    #[test]
    fn socket_of_an_earlier_launcher_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        drop(Door::open(directory.path()).unwrap());
        Door::open(directory.path()).unwrap();
    }

    #[test]
    fn missing_directory_is_named() {
        let error = Door::open(Path::new("/nonexistent/door")).unwrap_err().to_string();
        assert!(error.starts_with("cannot listen on /nonexistent/door/launcher.sock"), "{error}");
    }
}
