//! Reaches the launcher behind a door.
//!
//! The directory belongs to the container: what lies in it may be a link to somebody else's socket. So the socket is
//! opened first, without following anything, and connected to through that descriptor.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use corten_link::LinkError;
use corten_link::launcher::{AgentEnd, SOCKET};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect as connect_to, socket,
};
use nix::sys::stat::Mode;
use thiserror::Error;

/// Why a launcher is not reached.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// It does not listen yet, or no longer.
    #[error("no launcher listens in {0}")]
    NotThere(PathBuf),
    /// Something else is there.
    #[error("cannot connect to the launcher in {path}")]
    Failed {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// What was connected is no link.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Connects to the launcher that listens in `directory`.
pub fn connect(directory: &Path) -> Result<AgentEnd, ConnectError> {
    match connected(directory) {
        Ok(socket) => Ok(AgentEnd::from_fd(socket)?),
        Err(Errno::ENOENT | Errno::ECONNREFUSED) => Err(ConnectError::NotThere(directory.into())),
        Err(source) => Err(ConnectError::Failed { path: directory.into(), source }),
    }
}

fn connected(directory: &Path) -> Result<std::os::fd::OwnedFd, Errno> {
    let path = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = openat(AT_FDCWD, directory, path | OFlag::O_DIRECTORY, Mode::empty())?;
    let listener = openat(&directory, SOCKET, path, Mode::empty())?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let link = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    let through = format!("/proc/self/fd/{}", listener.as_raw_fd());
    connect_to(link.as_raw_fd(), &UnixAddr::new(through.as_str())?)?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;

    fn launcher(directory: &Path) -> OwnedFd {
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        let address = UnixAddr::new(&directory.join(SOCKET)).unwrap();
        bind(listener.as_raw_fd(), &address).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        listener
    }

    #[test]
    fn launcher_that_listens_is_reached_and_one_that_ended_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(connect(directory.path()), Err(ConnectError::NotThere(_))));
        let listener = launcher(directory.path());
        connect(directory.path()).unwrap();
        drop(listener);
        assert!(matches!(connect(directory.path()), Err(ConnectError::NotThere(_))));
    }

    #[test]
    fn link_to_another_launcher_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (own, other) = (directory.path().join("own"), directory.path().join("other"));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&other).unwrap();
        let _listener = launcher(&other);
        symlink(other.join(SOCKET), own.join(SOCKET)).unwrap();
        assert!(matches!(
            connect(&own),
            Err(ConnectError::NotThere(_) | ConnectError::Failed { .. })
        ));
    }

    #[test]
    fn directories_files_and_other_sockets_are_no_launchers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SOCKET);
        fs::create_dir(&path).unwrap();
        assert!(connect(directory.path()).is_err());
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(connect(directory.path()).is_err());
        fs::remove_file(&path).unwrap();
        let _stream = UnixListener::bind(&path).unwrap();
        assert!(matches!(connect(directory.path()), Err(ConnectError::Failed { .. })));
    }
}
