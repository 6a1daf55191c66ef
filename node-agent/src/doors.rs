//! Device ids with their directories, and which of them are held by a Pod.
//!
//! The directory of a device is mounted into the container that got it. It is emptied when it is given to the next one,
//! never removed: a mount pins the directory itself, so a new one of the same name would be another one.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::watch;

/// How long kubelet may take to list a device that it has just asked for.
const SETTLED_AFTER: Duration = Duration::from_secs(60);
/// So often in a row kubelet must leave out a device before it counts as let go: one that has just restarted lists nothing for
/// a moment.
const LEFT_OUT_TIMES: u8 = 3;

/// One device of the plugin: `kvm-0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(String);

impl DeviceId {
    /// The n-th.
    pub fn new(number: u16) -> Self {
        Self(format!("kvm-{number}"))
    }

    /// As kubelet calls it. Whether there is such a device, [`Doors::find`] says.
    pub(crate) fn named(name: &str) -> Self {
        Self(name.into())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a door cannot be had.
#[derive(Debug, Error)]
pub enum DoorsError {
    /// kubelet asked for a device that does not exist.
    #[error("{0:?} is no device of this node")]
    Unknown(String),
    /// The directory cannot be prepared.
    #[error("cannot prepare the door {path}")]
    Prepare {
        /// The directory or what is in it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Whether a device is held, and for the how manieth time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Counts allocations that this agent knows of.
    pub generation: u64,
    /// Whether a Pod holds it now.
    pub held: bool,
    since: Instant,
    /// How often in a row kubelet has left it out since.
    left_out: u8,
}

/// All devices of this node.
#[derive(Debug)]
pub struct Doors {
    directory: PathBuf,
    owner: u32,
    devices: BTreeMap<DeviceId, watch::Sender<Holding>>,
}

impl Doors {
    /// `count` devices with directories below `directory`, for launchers of the user `owner`.
    pub fn new(directory: &Path, count: u16, owner: u32) -> Self {
        let since = Instant::now();
        let nobody = || Holding { generation: 0, held: false, since, left_out: 0 };
        let device = |number| (DeviceId::new(number), watch::Sender::new(nobody()));
        Self { directory: directory.into(), owner, devices: (0..count).map(device).collect() }
    }

    /// Every device.
    pub fn ids(&self) -> impl Iterator<Item = &DeviceId> {
        self.devices.keys()
    }

    /// The device of this name.
    pub fn find(&self, name: &str) -> Result<DeviceId, DoorsError> {
        let device = DeviceId(name.into());
        match self.devices.contains_key(&device) {
            true => Ok(device),
            false => Err(DoorsError::Unknown(name.chars().take(80).collect())),
        }
    }

    /// The directory of a device.
    pub fn path(&self, device: &DeviceId) -> PathBuf {
        self.directory.join(device.as_str())
    }

    /// Makes an empty directory for the next Pod that gets `device`.
    pub fn prepare(&self, device: &DeviceId) -> Result<PathBuf, DoorsError> {
        let path = self.path(device);
        let failed = |path: &Path, source| DoorsError::Prepare { path: path.into(), source };
        fs::create_dir_all(&path).map_err(|source| failed(&path, source))?;
        // What is on the way may be passed through, not read.
        let passage = Permissions::from_mode(0o711);
        fs::set_permissions(&self.directory, passage)
            .map_err(|source| failed(&self.directory, source))?;
        for entry in fs::read_dir(&path).map_err(|source| failed(&path, source))? {
            let entry = entry.map_err(|source| failed(&path, source))?;
            let left = entry.path();
            // A link to a directory is no directory here, so it is removed and not followed.
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed =
                if is_directory { fs::remove_dir_all(&left) } else { fs::remove_file(&left) };
            removed.map_err(|source| failed(&left, source))?;
        }
        fs::set_permissions(&path, Permissions::from_mode(0o700))
            .and_then(|()| chown(&path, Some(self.owner), Some(self.owner)))
            .map_err(|source| failed(&path, source))?;
        Ok(path)
    }

    /// kubelet gives `device` to a Pod.
    pub fn allocated(&self, device: &DeviceId) {
        self.change(device, |holding| {
            holding.generation += 1;
            holding.held = true;
        });
    }

    /// kubelet said which devices are held. One that was given away a moment ago may not be among them yet.
    pub fn reconcile(&self, is_held: impl Fn(&DeviceId) -> bool, now: Instant) -> Vec<DeviceId> {
        let mut released = Vec::new();
        for (device, sender) in &self.devices {
            let holding = *sender.borrow();
            let settled = now.saturating_duration_since(holding.since) >= SETTLED_AFTER;
            match (holding.held, is_held(device)) {
                (false, true) => self.allocated(device),
                (true, false) if settled && holding.left_out + 1 >= LEFT_OUT_TIMES => {
                    self.change(device, |holding| holding.held = false);
                    released.push(device.clone());
                }
                (true, false) if settled => note(sender, holding.left_out + 1),
                (true, true) => note(sender, 0),
                _ => {}
            }
        }
        released
    }

    /// Tells how a device is held, now and whenever that changes.
    pub fn watch(&self, device: &DeviceId) -> Option<watch::Receiver<Holding>> {
        self.devices.get(device).map(watch::Sender::subscribe)
    }

    fn change(&self, device: &DeviceId, change: impl FnOnce(&mut Holding)) {
        if let Some(sender) = self.devices.get(device) {
            sender.send_modify(|holding| {
                change(holding);
                holding.since = Instant::now();
                holding.left_out = 0;
            });
        }
    }
}

/// Notes how often a device was left out, which nobody waits for.
fn note(sender: &watch::Sender<Holding>, left_out: u8) {
    sender.send_if_modified(|holding| {
        holding.left_out = left_out;
        false
    });
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn doors(directory: &Path) -> Doors {
        Doors::new(directory, 2, nix::unistd::getuid().as_raw())
    }

    #[test]
    fn directory_is_emptied_for_the_next_pod_and_stays_the_same_one() {
        let directory = tempfile::tempdir().unwrap();
        let doors = doors(&directory.path().join("doors"));
        let kept = directory.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        let path = doors.prepare(&DeviceId::new(0)).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        fs::create_dir_all(path.join("deep/er")).unwrap();
        fs::write(path.join("launcher.sock"), "").unwrap();
        symlink(&kept, path.join("link")).unwrap();

        assert_eq!(doors.prepare(&DeviceId::new(0)).unwrap(), path);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.ino(), metadata.mode() & 0o7777), (inode, 0o700));
        assert!(kept.join("file").exists(), "a link was followed");
    }

    #[test]
    fn names_that_are_no_device_are_refused() {
        let doors = doors(Path::new("/nonexistent"));
        assert_eq!(doors.find("kvm-1").unwrap(), DeviceId::new(1));
        for name in ["kvm-2", "kvm-01", "../kvm-0", ""] {
            assert!(matches!(doors.find(name), Err(DoorsError::Unknown(_))), "{name}");
        }
    }

    #[test]
    fn kubelet_says_who_holds_a_device_except_for_one_just_given_away() {
        let doors = doors(Path::new("/nonexistent"));
        let (first, second) = (DeviceId::new(0), DeviceId::new(1));
        let holding = |device| *doors.watch(device).unwrap().borrow();
        let now = Instant::now();
        doors.allocated(&first);
        assert!(doors.reconcile(|device| *device == second, now).is_empty());
        assert!(holding(&first).held && holding(&second).held, "found after a restart");
        let later = now + 2 * SETTLED_AFTER;
        // A kubelet that restarts forgets them for a moment.
        assert!(doors.reconcile(|_| false, later).is_empty());
        assert!(doors.reconcile(|_| false, later).is_empty());
        assert!(doors.reconcile(|_| true, later).is_empty());
        for _ in 1..LEFT_OUT_TIMES {
            assert!(doors.reconcile(|device| *device == second, later).is_empty());
            assert!(holding(&first).held);
        }
        assert_eq!(doors.reconcile(|device| *device == second, later), vec![first.clone()]);
        assert!(!holding(&first).held);
        assert_eq!(holding(&second).generation, 1);
        doors.allocated(&second);
        assert_eq!(holding(&second).generation, 2, "a new Pod at the same door");
    }
}
