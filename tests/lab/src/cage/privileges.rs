//! From root to what a launcher is.

use std::io::{stderr, stdin, stdout};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context, Result};
use caps::CapSet;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Gid, Uid, fchown, setgroups, setresgid, setresuid};

use super::LAUNCHER_ID;

/// Makes the calling thread uid and gid 107 without groups and capabilities, for good.
pub(super) fn drop_all() -> Result<()> {
    let (uid, gid) = (Uid::from_raw(LAUNCHER_ID), Gid::from_raw(LAUNCHER_ID));
    // The bounding set first: dropping it takes a capability.
    clear(CapSet::Bounding)?;
    setgroups(&[]).context("cannot leave the supplementary groups")?;
    setresgid(gid, gid, gid).with_context(|| format!("cannot become gid {gid}"))?;
    setresuid(uid, uid, uid).with_context(|| format!("cannot become uid {uid}"))?;
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        clear(set)?;
    }
    prctl::set_no_new_privs().context("cannot set no_new_privs")
}

/// Makes stdio the launcher's, as runc does: else /dev/stderr and its like would not open.
pub(super) fn give_stdio() -> Result<()> {
    [stdin().as_fd(), stdout().as_fd(), stderr().as_fd()].into_iter().try_for_each(give)
}

/// Files and terminals stay whose they are.
fn give(fd: BorrowedFd<'_>) -> Result<()> {
    let number = fd.as_raw_fd();
    let status = fstat(fd).with_context(|| format!("descriptor {number} is not open"))?;
    let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    if kind != SFlag::S_IFIFO && kind != SFlag::S_IFSOCK {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(LAUNCHER_ID), Gid::from_raw(LAUNCHER_ID));
    match fchown(fd, Some(uid), Some(gid)) {
        // Of a user who is not mapped here: it can be used, just not opened again.
        Ok(()) | Err(Errno::EPERM) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot give descriptor {number} away")),
    }
}

fn clear(set: CapSet) -> Result<()> {
    caps::clear(None, set).with_context(|| format!("cannot clear capability set {set:?}"))
}

#[cfg(test)]
mod tests {
    use std::io::pipe;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn pipes_and_sockets_are_given_away_and_files_are_not() {
        let (pipe, _writer) = pipe().unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let own = Uid::effective().as_raw();
        for (fd, wanted) in
            [(pipe.as_fd(), LAUNCHER_ID), (socket.as_fd(), LAUNCHER_ID), (file.as_fd(), own)]
        {
            give(fd).unwrap();
            assert_eq!(fstat(fd).unwrap().st_uid, wanted);
        }
    }
}
