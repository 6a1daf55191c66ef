//! Device files of the node, which come and go with modules of the kernel.
//!
//! The kernel tells of changes in the directory. Whether a file can be used is more than whether it is there, so it is tried
//! each time, and now and then without being told.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// Looked at at least so often.
const LOOK_EACH: Duration = Duration::from_secs(30);
/// And no more often, whatever happens in the directory.
const SETTLES_WITHIN: Duration = Duration::from_millis(100);

/// Keeps `usable` at what `is_usable` says of the file at `path`, without end.
pub async fn follow(path: PathBuf, is_usable: impl Fn(&Path) -> bool, usable: watch::Sender<bool>) {
    loop {
        // From here on no change is missed; the one before is seen by the look.
        let changes = changes_around(&path);
        let now = is_usable(&path);
        let changed = usable.send_if_modified(|before| std::mem::replace(before, now) != now);
        if changed {
            warn!(usable = now, path = %path.display(), "a device of the node has changed");
        }
        match changes {
            Ok(changes) => {
                let _ = timeout(LOOK_EACH, changes.readable()).await;
            }
            Err(error) => {
                warn!(path = %path.display(), "changes are not told, it is looked for them: {error}");
                sleep(LOOK_EACH).await;
            }
        }
        sleep(SETTLES_WITHIN).await;
    }
}

/// Whether the file is there and is a device.
pub fn is_there(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device())
}

/// Becomes readable when something happens in the directory of `path`, or, as long as there is none, where it would be made.
fn changes_around(path: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let directory = path.ancestors().skip(1).find(|directory| directory.is_dir());
    let directory = directory.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    let all = AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_DELETE_SELF;
    inotify.add_watch(directory, all)?;
    // SAFETY: a descriptor that is owned stays the same one, and is closed with its owner, the one that is made here.
    let changes =
        unsafe { AsyncFd::register_with_interest(OwnedFd::from(inotify), Interest::READABLE) };
    changes.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    /// Long, for a machine under load.
    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn change_where_the_file_would_be_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("net/tun");
        let told = async |change: &dyn Fn()| {
            let changes = changes_around(&path).unwrap();
            change();
            timeout(SOON, changes.readable()).await.unwrap().unwrap().retain_ready();
        };
        // Its directory comes with it.
        told(&|| fs::create_dir(path.parent().unwrap()).unwrap()).await;
        told(&|| drop(File::create(&path).unwrap())).await;
        told(&|| fs::remove_file(&path).unwrap()).await;
        told(&|| fs::remove_dir(path.parent().unwrap()).unwrap()).await;
    }

    #[tokio::test]
    async fn file_is_as_usable_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kvm");
        let usable = watch::Sender::new(false);
        let mut told = usable.subscribe();
        let following = tokio::spawn(follow(path.clone(), Path::exists, usable));
        File::create(&path).unwrap();
        timeout(SOON, told.wait_for(|usable| *usable)).await.unwrap().unwrap();
        fs::remove_file(&path).unwrap();
        timeout(SOON, told.wait_for(|usable| !*usable)).await.unwrap().unwrap();
        following.abort();
    }

    #[test]
    fn only_devices_are_devices() {
        assert!(is_there(Path::new("/dev/null")));
        assert!(!is_there(Path::new("/etc/passwd")));
        assert!(!is_there(Path::new("/nonexistent/tun")));
    }
}
