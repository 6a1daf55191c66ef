//! Network namespaces, held by descriptors.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::fstat;
use thiserror::Error;

/// Why a namespace was not made or entered.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// There is none.
    #[error("cannot make a network namespace")]
    Create(#[source] Errno),
    /// It is no network namespace, or not for us.
    #[error("cannot enter the network namespace")]
    Enter(#[source] Errno),
    /// The one that a thread is in.
    #[error("cannot open a thread's network namespace")]
    Open(#[source] io::Error),
    /// No thread to enter it on.
    #[error("cannot start a thread for the network namespace")]
    Thread(#[source] io::Error),
}

/// A network namespace without a name. It goes when nothing holds it any more: no descriptor, thread or socket.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// Makes one. Needs CAP_SYS_ADMIN.
    pub fn create() -> Result<Self, NamespaceError> {
        on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(NamespaceError::Create)?;
            Self::current()
        })
    }

    /// The one that the calling thread is in.
    pub fn current() -> Result<Self, NamespaceError> {
        // Not /proc/self: that is the process's first thread.
        let file = File::open("/proc/thread-self/ns/net").map_err(NamespaceError::Open)?;
        Ok(Self(file.into()))
    }

    /// Does `work` on a thread that is in the namespace, and ends it.
    pub fn enter<T: Send>(
        namespace: BorrowedFd<'_>,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, NamespaceError> {
        on_thread(|| {
            setns(namespace, CloneFlags::CLONE_NEWNET).map_err(NamespaceError::Enter)?;
            Ok(work())
        })
    }

    /// Whether `namespace` is the one that the calling thread is in.
    pub fn is_current(namespace: BorrowedFd<'_>) -> Result<bool, NamespaceError> {
        let current = Self::current()?;
        let identity = |descriptor: BorrowedFd<'_>| {
            let status = fstat(descriptor).map_err(|errno| NamespaceError::Open(errno.into()))?;
            Ok((status.st_dev, status.st_ino))
        };
        Ok(identity(namespace)? == identity(current.as_fd())?)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Namespace> for OwnedFd {
    fn from(namespace: Namespace) -> Self {
        namespace.0
    }
}

/// Does `work` on a thread of its own, so that no other is left in a namespace it did not ask for.
fn on_thread<T: Send>(
    work: impl FnOnce() -> Result<T, NamespaceError> + Send,
) -> Result<T, NamespaceError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("net".into())
            .spawn_scoped(scope, work)
            .map_err(NamespaceError::Thread)?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_namespace_has_only_a_loopback_and_the_caller_stays() {
        let namespace = Namespace::create().unwrap();
        assert!(!Namespace::is_current(namespace.as_fd()).unwrap());
        let (inside, links) = Namespace::enter(namespace.as_fd(), || {
            let links = crate::rtnl::Rtnl::open().unwrap().links().unwrap();
            (Namespace::current().unwrap(), links)
        })
        .unwrap();
        assert!(!Namespace::is_current(inside.as_fd()).unwrap());
        assert!(links.iter().any(|link| link.name == "lo"));
        assert!(links.iter().all(|link| link.name != "eth0"));
    }

    #[test]
    fn what_is_no_namespace_is_not_entered() {
        let file = File::open("/dev/null").unwrap();
        let error = Namespace::enter(file.as_fd(), || ()).unwrap_err();
        assert!(matches!(error, NamespaceError::Enter(Errno::EINVAL)));
    }
}
