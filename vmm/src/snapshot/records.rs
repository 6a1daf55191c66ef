//! What a records file says.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use corten_devices::{Record, Records};
use corten_link::BootOrigin;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::container::{self, ContainerError, Header, MAX_LENGTH};
use super::{DiskStamp, SnapshotId};
use crate::machine::{Blueprint, MACHINE_VERSION};

/// No guest has more memory: addresses have 52 bits at most.
const MOST_MEMORY: u64 = 1 << 52;

/// A machine without its memory, and what its surroundings were.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Which one.
    pub id: SnapshotId,
    /// What the guest sees.
    pub blueprint: Blueprint,
    /// What changes while it runs.
    pub records: Records,
    /// For a reset later on.
    pub command_line: String,
    /// What that boots from, if it was granted.
    pub boot: Option<BootSizes>,
    /// Where something to boot is looked for, if it was not.
    pub boot_order: Vec<String>,
    /// What was found there.
    pub found: Option<BootOrigin>,
    /// What its disks were.
    pub disks: Vec<DiskStamp>,
}

/// How large the files are that a machine boots from. They are no part of a snapshot, and are granted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootSizes {
    /// Bytes of the kernel.
    pub kernel: u64,
    /// Bytes of the initial RAM disk, if there is one.
    pub initrd: Option<u64>,
}

/// Why a records file cannot be written or used.
#[derive(Debug, Error)]
pub enum RecordsFileError {
    /// A system call failed.
    #[error("cannot {what} the records file")]
    Io {
        /// Which one.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Its form.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// A machine of another release.
    #[error("the snapshot is of machine version {0}, this build runs {MACHINE_VERSION}")]
    Machine(u32),
    /// A part cannot be written.
    #[error("cannot write {name:?} to the records file")]
    Write {
        /// Which one.
        name: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A part does not say what it must.
    #[error("{name:?} in the records file cannot be read")]
    Read {
        /// Which one.
        name: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A part is not there.
    #[error("{0:?} is missing in the records file")]
    Missing(&'static str),
    /// Its memory is none.
    #[error("the records file describes memory that cannot be: {0}")]
    Memory(&'static str),
}

const SURROUNDINGS: &str = "surroundings";
const BLUEPRINT: &str = "blueprint";

/// All that is neither blueprint nor record.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Surroundings {
    command_line: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<BootSizes>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    boot_order: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    found: Option<BootOrigin>,
    disks: Vec<DiskStamp>,
}

impl Snapshot {
    /// Bytes of guest memory.
    pub fn memory_size(&self) -> u64 {
        // Checked when it was read; a machine that runs has it.
        self.blueprint.slots.iter().map(|slot| slot.size).fold(0, u64::saturating_add)
    }

    /// The bytes of its records file.
    pub fn encode(&self) -> Result<Vec<u8>, RecordsFileError> {
        let surroundings = Surroundings {
            command_line: self.command_line.clone(),
            boot: self.boot,
            boot_order: self.boot_order.clone(),
            found: self.found.clone(),
            disks: self.disks.clone(),
        };
        let mut parts = vec![part(SURROUNDINGS, &surroundings)?, part(BLUEPRINT, &self.blueprint)?];
        for record in &self.records {
            parts.push(part(&record.name().to_string(), record)?);
        }
        let header = Header { machine_version: self.blueprint.version.into(), id: self.id };
        Ok(container::seal(header, &parts)?)
    }

    /// Reads the bytes of a records file. Whether the records fit the machine is found when they are loaded.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordsFileError> {
        let (header, parts) = container::open(bytes)?;
        if header.machine_version != u32::from(MACHINE_VERSION) {
            return Err(RecordsFileError::Machine(header.machine_version));
        }
        let mut parts = parts.into_iter();
        let surroundings: Surroundings = expect(SURROUNDINGS, parts.next())?;
        let blueprint: Blueprint = expect(BLUEPRINT, parts.next())?;
        check_memory(&blueprint)?;
        let records = parts.map(|(name, content)| read::<Record>(name, content));
        let Surroundings { command_line, boot, boot_order, found, disks } = surroundings;
        let records = records.collect::<Result<_, _>>()?;
        let id = header.id;
        Ok(Self { id, blueprint, records, command_line, boot, boot_order, found, disks })
    }

    /// Writes it to the empty `file`, and has it on the disk when it returns.
    pub fn write(&self, file: &File) -> Result<(), RecordsFileError> {
        let io = |what| move |source| RecordsFileError::Io { what, source };
        file.write_all_at(&self.encode()?, 0).map_err(io("write"))?;
        file.sync_all().map_err(io("sync"))
    }

    /// Reads it from `file`, which is not longer than what is ever written.
    pub fn read(file: &File) -> Result<Self, RecordsFileError> {
        let io = |what| move |source| RecordsFileError::Io { what, source };
        let length = file.metadata().map_err(io("look at"))?.len();
        if length > MAX_LENGTH {
            return Err(ContainerError::TooLong(length).into());
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_exact_at(&mut bytes, 0).map_err(io("read"))?;
        Self::decode(&bytes)
    }
}

fn part<T: Serialize>(name: &str, content: &T) -> Result<(String, Vec<u8>), RecordsFileError> {
    let bytes = serde_json::to_vec(content);
    let bytes = bytes.map_err(|source| RecordsFileError::Write { name: name.into(), source })?;
    Ok((name.into(), bytes))
}

fn expect<T: DeserializeOwned>(
    wanted: &'static str,
    part: Option<(&str, &[u8])>,
) -> Result<T, RecordsFileError> {
    match part {
        Some((name, content)) if name == wanted => read(name, content),
        _ => Err(RecordsFileError::Missing(wanted)),
    }
}

fn read<T: DeserializeOwned>(name: &str, content: &[u8]) -> Result<T, RecordsFileError> {
    serde_json::from_slice(content)
        .map_err(|source| RecordsFileError::Read { name: name.into(), source })
}

/// What is mapped before anything else is looked at.
fn check_memory(blueprint: &Blueprint) -> Result<(), RecordsFileError> {
    let wrong = |what| Err(RecordsFileError::Memory(what));
    let mut total = 0_u64;
    for slot in &blueprint.slots {
        if slot.size == 0 || !slot.size.is_multiple_of(4096) || !slot.start.is_multiple_of(4096) {
            return wrong("it is not in whole pages");
        }
        total = total.saturating_add(slot.size);
        if slot.start.saturating_add(slot.size) > MOST_MEMORY || total > MOST_MEMORY {
            return wrong("it ends beyond all addresses");
        }
    }
    if total == 0 { wrong("there is none") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use kvm_bindings::kvm_cpuid_entry2;

    use super::*;
    use crate::arch::x86_64::cpuid::ProcessorName;
    use crate::arch::x86_64::topology::Topology;
    use crate::machine::{HostProcessor, Identification, MachineSpec, plan};
    use crate::ram::Slot;

    fn snapshot() -> Snapshot {
        let leaf = |function, eax| kvm_cpuid_entry2 { function, eax, ..Default::default() };
        let cpuid = vec![leaf(0, 1), leaf(1, 0), leaf(0x8000_0008, 40)];
        let host = HostProcessor { cpuid, name: ProcessorName::default(), tsc_khz: 2_000_000 };
        let topology = Topology { sockets: 1, cores: 1, threads: 1 };
        let spec = MachineSpec {
            memory: 32 << 20,
            topology,
            identity: Identification::default(),
            devices: Vec::new(),
        };
        let records = r#"[{"kind":"lamp","instance":"hall","version":1,"payload":{"lit":true}}]"#;
        Snapshot {
            id: SnapshotId([5; 16]),
            blueprint: plan(&spec, &host).unwrap(),
            records: serde_json::from_str(records).unwrap(),
            command_line: "quiet".into(),
            boot: Some(BootSizes { kernel: 7, initrd: None }),
            boot_order: Vec::new(),
            found: None,
            disks: Vec::new(),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let file = tempfile::tempfile().unwrap();
        snapshot().write(&file).unwrap();
        assert_eq!(Snapshot::read(&file).unwrap(), snapshot());
        assert_eq!(snapshot().memory_size(), 32 << 20);
    }

    #[test]
    fn surroundings_of_a_granted_kernel_are_as_they_were_before_disks_were_booted_from() {
        let old = r#"{"command_line":"quiet","boot":{"kernel":7,"initrd":null},"disks":[]}"#;
        let surroundings: Surroundings = serde_json::from_str(old).unwrap();
        assert_eq!(serde_json::to_string(&surroundings).unwrap(), old);
        assert_eq!((surroundings.boot_order, surroundings.found), (Vec::new(), None));
    }

    #[test]
    fn what_was_found_on_a_disk_is_kept() {
        let found = Some(BootOrigin::Nothing { reasons: vec!["there is no disk".into()] });
        let boot_order = vec!["root".into()];
        let snapshot = Snapshot { boot: None, boot_order, found, ..snapshot() };
        assert_eq!(Snapshot::decode(&snapshot.encode().unwrap()).unwrap(), snapshot);
    }

    #[test]
    fn damaged_record_is_named() {
        let mut bytes = snapshot().encode().unwrap();
        let at = bytes.len() - 5;
        bytes[at] ^= 1;
        let error = Snapshot::decode(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("\"lamp hall\" in the records file is damaged"), "{error}");
    }

    #[test]
    fn other_machine_versions_are_refused_by_number() {
        let mut snapshot = snapshot();
        snapshot.blueprint.version = 9;
        let error = Snapshot::decode(&snapshot.encode().unwrap()).unwrap_err().to_string();
        assert_eq!(error, "the snapshot is of machine version 9, this build runs 1");
    }

    #[test]
    fn missing_parts_are_named() {
        let header = Header { machine_version: 1, id: SnapshotId([5; 16]) };
        let bytes = container::seal(header, &[]).unwrap();
        let error = Snapshot::decode(&bytes).unwrap_err().to_string();
        assert_eq!(error, "\"surroundings\" is missing in the records file");
    }

    #[test]
    fn memory_that_cannot_be_is_refused() {
        for slots in [
            vec![],
            vec![Slot { start: 0, size: 0 }],
            vec![Slot { start: 0, size: 100 }],
            vec![Slot { start: 1, size: 4096 }],
            vec![Slot { start: !4095, size: 4096 }],
            vec![Slot { start: 0, size: 1 << 52 }, Slot { start: 0, size: 1 << 52 }],
        ] {
            let mut snapshot = snapshot();
            snapshot.blueprint.slots = slots;
            let error = Snapshot::decode(&snapshot.encode().unwrap()).unwrap_err();
            assert!(matches!(error, RecordsFileError::Memory(_)), "{error}");
        }
    }

    #[test]
    fn file_over_the_limit_is_not_read() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(MAX_LENGTH + 1).unwrap();
        let error = Snapshot::read(&file).unwrap_err();
        assert!(matches!(error, RecordsFileError::Container(ContainerError::TooLong(_))));
    }
}
