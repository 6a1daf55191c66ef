//! What was given to whom, on the node's disk.
//!
//! kubelet says which Pod has which device; but it may be restarting when the agent asks. The ledger answers then:
//! `Allocate` forgets the device's entry before anybody else can have it, so an entry is never another Pod's.
//!
//! A start is noted by itself, by the Pod's uid, and before it is sent: a Pod is handed its VMI once. Entries come and
//! go with devices, which kubelet may for a moment not list; the note of a start stays as long as there is the Pod.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::doors::DeviceId;

/// Below the ledger's directory: one file for each Pod that was handed its VMI.
const STARTS: &str = "started";
/// A note is kept at least this long. Whoever says that there is no such Pod may not have heard of it yet.
const START_KEPT: Duration = Duration::from_secs(60 * 60);

/// Who has a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The launcher Pod.
    pub pod_uid: String,
    /// Namespace of the VMI.
    pub vmi_namespace: String,
    /// Its name.
    pub vmi_name: String,
    /// Its uid.
    pub vmi_uid: String,
}

/// Why the ledger cannot be kept.
#[derive(Debug, Error)]
#[error("cannot {what} {path} of the ledger")]
pub struct LedgerError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// A directory with one file for each device that was given to somebody.
#[derive(Clone, Debug)]
pub struct Ledger {
    directory: PathBuf,
}

impl Ledger {
    /// Opens the ledger in `directory`, which is made if need be.
    pub fn open(directory: &Path) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError { what: "make", path: directory.into(), source };
        fs::create_dir_all(directory.join(STARTS)).map_err(failed)?;
        sync(directory).map_err(failed)?;
        Ok(Self { directory: directory.into() })
    }

    /// Notes who has `device`.
    pub fn record(&self, device: &DeviceId, entry: &Entry) -> Result<(), LedgerError> {
        let path = self.path(device);
        let failed = |source| LedgerError { what: "write", path: path.clone(), source };
        let new = path.with_extension("new");
        let bytes = serde_json::to_vec(entry).map_err(io::Error::from).map_err(failed)?;
        // Renamed when it is on the disk: an entry is there whole or not at all.
        let written = File::create(&new).and_then(|file| write(file, &bytes));
        written.map_err(failed)?;
        fs::rename(&new, &path).map_err(failed)
    }

    /// Notes for good that the Pod of `entry` is handed its VMI. Whether it is the first time: then it is on the disk.
    pub fn start_once(&self, device: &DeviceId, entry: &Entry) -> Result<bool, LedgerError> {
        // Releases before this note made an entry, and then handed over.
        let recorded = self.entry(device).is_some_and(|known| known.pod_uid == entry.pod_uid);
        let path = self.start_path(&entry.pod_uid)?;
        let failed = |source| LedgerError { what: "write", path: path.clone(), source };
        let bytes = serde_json::to_vec(entry).map_err(io::Error::from).map_err(failed)?;
        let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        write(file, &bytes).and_then(|()| sync(&self.directory.join(STARTS))).map_err(failed)?;
        Ok(!recorded)
    }

    /// Whether it is noted that the Pod of this uid was handed its VMI.
    pub fn was_started(&self, pod_uid: &str) -> Result<bool, LedgerError> {
        let path = self.start_path(pod_uid)?;
        path.try_exists().map_err(|source| LedgerError { what: "look for", path, source })
    }

    /// Forgets starts of Pods that there are no longer: neither on the node, nor at any of `devices`.
    pub fn forget_starts<'a>(
        &self,
        is_there: impl Fn(&str) -> bool,
        devices: impl Iterator<Item = &'a DeviceId>,
    ) -> Result<(), LedgerError> {
        let directory = self.directory.join(STARTS);
        let failed = |source| LedgerError { what: "clear", path: directory.clone(), source };
        let recorded = self.entries(devices);
        let holds = |uid: &str| recorded.values().any(|entry| entry.pod_uid == uid);
        for file in fs::read_dir(&directory).map_err(failed)? {
            let file = file.map_err(failed)?;
            let noted = file.metadata().and_then(|metadata| metadata.modified()).map_err(failed)?;
            let old = noted.elapsed().is_ok_and(|age| age >= START_KEPT);
            let name = file.file_name();
            let is_over = |uid: &str| !is_there(uid) && !holds(uid);
            if old && name.to_str().is_none_or(is_over) {
                fs::remove_file(file.path()).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Who has `device`, as far as was noted. What cannot be read is as good as nothing.
    pub fn entry(&self, device: &DeviceId) -> Option<Entry> {
        serde_json::from_slice(&fs::read(self.path(device)).ok()?).ok()
    }

    /// Forgets who had `device`.
    pub fn forget(&self, device: &DeviceId) -> Result<(), LedgerError> {
        let path = self.path(device);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(LedgerError { what: "remove", path, source })
            }
            _ => Ok(()),
        }
    }

    /// All entries, of the devices that there are.
    pub fn entries<'a>(
        &self,
        devices: impl Iterator<Item = &'a DeviceId>,
    ) -> BTreeMap<DeviceId, Entry> {
        devices.filter_map(|device| Some((device.clone(), self.entry(device)?))).collect()
    }

    fn path(&self, device: &DeviceId) -> PathBuf {
        self.directory.join(format!("{device}.json"))
    }

    fn start_path(&self, pod_uid: &str) -> Result<PathBuf, LedgerError> {
        let path = self.directory.join(STARTS);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if pod_uid.is_empty() || !pod_uid.bytes().all(is_name) {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "the Pod's uid is no name");
            return Err(LedgerError { what: "note a start in", path, source });
        }
        Ok(path.join(pod_uid))
    }
}

fn write(mut file: File, bytes: &[u8]) -> io::Result<()> {
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()
}

/// Until then the names in a directory may be lost with the node's power.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pod: &str) -> Entry {
        Entry {
            pod_uid: pod.into(),
            vmi_namespace: "default".into(),
            vmi_name: "first".into(),
            vmi_uid: "u".into(),
        }
    }

    #[test]
    fn entries_outlive_the_agent_and_are_forgotten_on_demand() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (DeviceId::new(0), DeviceId::new(1));
        let ledger = Ledger::open(directory.path()).unwrap();
        ledger.record(&first, &entry("a")).unwrap();
        ledger.record(&first, &entry("b")).unwrap();
        let again = Ledger::open(directory.path()).unwrap();
        assert_eq!(
            again.entries([&first, &second].into_iter()),
            [(first.clone(), entry("b"))].into()
        );
        again.forget(&first).unwrap();
        again.forget(&first).unwrap();
        assert_eq!(again.entry(&first), None);
    }

    #[test]
    fn entry_as_recorded_by_the_first_release_reads() {
        let directory = tempfile::tempdir().unwrap();
        let recorded = r#"{"podUid":"a","vmiNamespace":"default","vmiName":"first","vmiUid":"u"}"#;
        fs::write(directory.path().join("kvm-3.json"), recorded).unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        assert_eq!(ledger.entry(&DeviceId::new(3)), Some(entry("a")));
    }

    #[test]
    fn pod_is_started_once_whatever_becomes_of_the_agent_and_the_device() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (DeviceId::new(0), DeviceId::new(1));
        let ledger = Ledger::open(directory.path()).unwrap();
        assert!(!ledger.was_started("a").unwrap());
        assert!(ledger.start_once(&first, &entry("a")).unwrap());
        assert!(ledger.was_started("a").unwrap() && !ledger.was_started("b").unwrap());
        assert!(!ledger.start_once(&first, &entry("a")).unwrap());
        ledger.forget(&first).unwrap();
        let again = Ledger::open(directory.path()).unwrap();
        assert!(!again.start_once(&second, &entry("a")).unwrap());
        assert!(again.start_once(&first, &entry("b")).unwrap(), "the next Pod");
    }

    #[test]
    fn pod_that_a_release_without_notes_recorded_was_started_by_it() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        let device = DeviceId::new(0);
        ledger.record(&device, &entry("a")).unwrap();
        assert!(!ledger.start_once(&device, &entry("a")).unwrap());
        assert!(ledger.start_once(&device, &entry("b")).unwrap());
    }

    #[test]
    fn start_whose_note_was_cut_off_counts() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        fs::write(directory.path().join("started/a"), "").unwrap();
        assert!(!ledger.start_once(&DeviceId::new(0), &entry("a")).unwrap());
    }

    #[test]
    fn uid_that_is_a_path_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        for uid in ["", "..", "../kvm-0.json", "a/b"] {
            assert!(ledger.start_once(&DeviceId::new(0), &entry(uid)).is_err(), "{uid:?}");
        }
    }

    #[test]
    fn starts_are_forgotten_when_pod_and_entry_are_long_gone() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        let device = DeviceId::new(0);
        let noted = || {
            let names = fs::read_dir(directory.path().join("started")).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        for pod in ["gone", "new", "recorded", "there"] {
            assert!(ledger.start_once(&DeviceId::new(9), &entry(pod)).unwrap());
            let file = File::open(directory.path().join("started").join(pod)).unwrap();
            let age = if pod == "new" { Duration::ZERO } else { 2 * START_KEPT };
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
        }
        ledger.record(&device, &entry("recorded")).unwrap();
        ledger.forget_starts(|uid| uid == "there", [&device].into_iter()).unwrap();
        assert_eq!(noted(), ["new", "recorded", "there"]);
    }

    #[test]
    fn entry_that_cannot_be_read_is_none() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("kvm-0.json"), "{").unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        assert_eq!(ledger.entry(&DeviceId::new(0)), None);
    }
}
