//! Network namespaces, held by descriptors.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::fstat;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
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
    /// What was handed in as one is something else.
    #[error("what was handed in is no network namespace")]
    NotOne,
    /// Rules and bridges of a VM have no place there.
    #[error("the network namespace that was handed in is the caller's own")]
    Own,
    /// No thread to enter it on.
    #[error("cannot start a thread for the network namespace")]
    Thread(#[source] io::Error),
}

// ioctl_ns(2): _IO(0xb7, 0x3).
nix::ioctl_none_bad!(namespace_type, 0xb703);

/// Which namespace it is, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
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

    /// What somebody handed in, once it has proved to be a network namespace and not our own. On a descriptor of any other
    /// kind nothing is done.
    pub fn of_stranger(descriptor: OwnedFd) -> Result<Self, NamespaceError> {
        let file_system =
            fstatfs(&descriptor).map_err(|errno| NamespaceError::Open(errno.into()))?;
        // First of all: what the request below would mean to a device of its owner's choice, nobody knows.
        if file_system.filesystem_type() != NSFS_MAGIC {
            return Err(NamespaceError::NotOne);
        }
        // SAFETY: NS_GET_NSTYPE takes no argument; it is a file of nsfs.
        let kind = unsafe { namespace_type(descriptor.as_raw_fd()) };
        if kind != Ok(libc::CLONE_NEWNET) {
            return Err(NamespaceError::NotOne);
        }
        if Self::is_current(descriptor.as_fd())? {
            return Err(NamespaceError::Own);
        }
        Ok(Self(descriptor))
    }

    /// Another descriptor of it.
    pub fn try_clone(&self) -> Result<Self, NamespaceError> {
        self.0.try_clone().map(Self).map_err(NamespaceError::Open)
    }

    /// Tells it from all others that there are at the same time.
    pub fn id(&self) -> Result<NamespaceId, NamespaceError> {
        id_of(self.0.as_fd())
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
        Ok(id_of(namespace)? == Self::current()?.id()?)
    }
}

fn id_of(namespace: BorrowedFd<'_>) -> Result<NamespaceId, NamespaceError> {
    let status = fstat(namespace).map_err(|errno| NamespaceError::Open(errno.into()))?;
    Ok(NamespaceId { device: status.st_dev, inode: status.st_ino })
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
    fn stranger_s_namespace_is_taken_and_nothing_else() {
        let made = Namespace::create().unwrap();
        let id = made.id().unwrap();
        assert_eq!(Namespace::of_stranger(made.into()).unwrap().id().unwrap(), id);

        let own = Namespace::current().unwrap();
        assert!(matches!(Namespace::of_stranger(own.into()), Err(NamespaceError::Own)));
        for path in ["/dev/null", "/proc/self/ns/uts", "/proc/self/ns", "/proc/self/maps"] {
            let file = File::open(path).unwrap();
            let refused = Namespace::of_stranger(file.into());
            assert!(matches!(refused, Err(NamespaceError::NotOne)), "{path}: {refused:?}");
        }
    }

    #[test]
    fn what_is_no_namespace_is_not_entered() {
        let file = File::open("/dev/null").unwrap();
        let error = Namespace::enter(file.as_fd(), || ()).unwrap_err();
        assert!(matches!(error, NamespaceError::Enter(Errno::EINVAL)));
    }
}
