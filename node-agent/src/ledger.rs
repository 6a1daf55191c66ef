//! What was given to whom, on the node's disk.
//!
//! kubelet says which Pod has which device; but it may be restarting when the agent asks. The ledger answers then:
//! `Allocate` forgets the device's entry before anybody else can have it, so an entry is never another Pod's.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::doors::DeviceId;

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
        fs::create_dir_all(directory).map_err(failed)?;
        Ok(Self { directory: directory.into() })
    }

    /// Notes who has `device`.
    pub fn record(&self, device: &DeviceId, entry: &Entry) -> Result<(), LedgerError> {
        let path = self.path(device);
        let failed = |source| LedgerError { what: "write", path: path.clone(), source };
        let new = path.with_extension("new");
        let bytes = serde_json::to_vec(entry).map_err(io::Error::from).map_err(failed)?;
        // Renamed when it is on the disk: an entry is there whole or not at all.
        let written = fs::File::create(&new).and_then(|mut file| {
            io::Write::write_all(&mut file, &bytes)?;
            file.sync_all()
        });
        written.map_err(failed)?;
        fs::rename(&new, &path).map_err(failed)
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
    fn entry_that_cannot_be_read_is_none() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("kvm-0.json"), "{").unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        assert_eq!(ledger.entry(&DeviceId::new(0)), None);
    }
}
