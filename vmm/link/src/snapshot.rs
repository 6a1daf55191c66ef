//! Snapshots in files: how to go on with one, and what it takes to fill memory in.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{DiskHost, EntropyHost, NetworkHost};

/// How to go on with a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Restoration {
    /// How to treat its disks, by name; the others by default.
    pub disks: BTreeMap<String, DiskHost>,
    /// How to treat its networks, by name; the others by default.
    pub networks: BTreeMap<String, NetworkHost>,
    /// How to give random numbers.
    pub entropy: EntropyHost,
    /// Disks whose content the control peer vouches for: they are not compared with what the snapshot says of them. A block
    /// device has to be among them, as it does not tell when it was written.
    pub force_disks: BTreeSet<String>,
    /// The machine that the snapshot is of never goes on elsewhere: its guest keeps its generation id, and its clock goes on
    /// as if it had never stopped. Otherwise it is a copy: it gets a new id, and its clock goes on from where it stopped.
    pub moved: bool,
    /// Whether to make huge pages of guest memory in the background.
    pub huge_pages: bool,
}

/// What it took to fill in the memory of a restored machine; all zero for one that was booted or loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FillCounters {
    /// Whether memory is still being filled in.
    pub filling: bool,
    /// Up to now.
    pub all: FillWork,
    /// Up to the moment when vCPUs were first told to run.
    pub before_run: FillWork,
}

/// Work on memory that is filled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FillWork {
    /// Times that somebody waited for a page.
    pub faults: u64,
    /// Pages that were copied from the file.
    pub pages: u64,
    /// Pages of zeros that were put in place because somebody waited for them.
    pub zero_pages: u64,
    /// Bytes that were read from the memory file.
    pub bytes_read: u64,
}
