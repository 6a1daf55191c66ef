//! The owner's part in snapshots: what belongs together, and what has to be so before a machine goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use corten_link::{Grant, Restoration, Role};
use thiserror::Error;

use super::devices::{Hosts, Parts};
use super::owner::FILL_LIMIT;
use super::{
    Blueprint, DeviceBlueprint, DiskBlueprint, End, Input, Machine, Owner, OwnerError,
    check_processor,
};
use crate::arch::x86_64::boot::BootSource;
use crate::ram::Ram;
use crate::sandbox;
use crate::snapshot::{
    BootSizes, DiskChange, DiskStamp, MemoryFile, MemoryFileError, RecordsFileError, Snapshot,
    SnapshotFileError, SnapshotId, check_empty, check_private, settle, write_memory,
};

/// Why there is no snapshot, or none to go on with.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// A file is not one for a snapshot.
    #[error("the file granted as {role} cannot be used")]
    File {
        /// Which one.
        role: Role,
        /// Why.
        #[source]
        source: SnapshotFileError,
    },
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryFileError),
    /// All else.
    #[error(transparent)]
    Records(#[from] RecordsFileError),
    /// No id.
    #[error("the host gives no random number")]
    Random(#[source] io::Error),
    /// The state of a disk.
    #[error("cannot tell the state of {role}")]
    Stamp {
        /// Which one.
        role: Role,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A disk is not what it was.
    #[error("the snapshot does not go on with this disk")]
    Disk(#[from] DiskChange),
    /// Another kernel or initial RAM disk than the one of the snapshot.
    #[error("{role} has {found:?} bytes, that of the snapshot had {expected:?}")]
    Boot {
        /// Which one.
        role: Role,
        /// Its size, if it was granted.
        found: Option<u64>,
        /// What it was, if there was one.
        expected: Option<u64>,
    },
}

impl Owner {
    /// Writes a paused machine to the two files that were granted. Both are on the disk when it returns, the records last:
    /// whatever goes wrong before, there is no snapshot.
    pub(super) fn snapshot(&self, machine: &Machine, granted: &Grant) -> Result<(), OwnerError> {
        let memory = snapshot_file(granted, Role::snapshot_memory())?;
        let file = snapshot_file(granted, Role::snapshot_records())?;
        machine.ram().finish_filling(FILL_LIMIT)?;
        let id = SnapshotId::random().map_err(SnapshotError::Random)?;
        // Before the memory: KVM may write to that when it is asked for the state of a vCPU.
        let records = machine.save()?;
        let mut snapshot = Snapshot {
            id,
            blueprint: machine.blueprint().clone(),
            records,
            command_line: self.command_line.clone(),
            boot: self.boot_source()?.as_ref().map(sizes).transpose()?,
            boot_order: self.boot_order.clone(),
            found: self.found.clone(),
            disks: Vec::new(),
        };
        let size = snapshot.memory_size();
        write_memory(&memory, id, machine.ram().file(), size).map_err(SnapshotError::Memory)?;
        snapshot.disks = self.disk_files.stamps(machine.blueprint())?;
        settle(&snapshot.disks);
        Ok(snapshot.write(&file).map_err(SnapshotError::Records)?)
    }

    /// Goes on with the snapshot in the files that were granted, paused at first, to its end.
    pub fn restore(mut self, how: &Restoration) -> Result<End, OwnerError> {
        let records =
            granted_file(self.descriptors.snapshot_records.take(), Role::snapshot_records())?;
        let memory =
            granted_file(self.descriptors.snapshot_memory.take(), Role::snapshot_memory())?;
        let read = sandbox::parse(|| read(&records, memory)).map_err(OwnerError::Parser)?;
        let (snapshot, memory) = read?;
        let Snapshot { blueprint, records, command_line, boot, disks: stamps, .. } = snapshot;
        self.command_line = command_line;
        (self.boot_order, self.found) = (snapshot.boot_order, snapshot.found);
        self.disk_files = DiskFiles::of(&self.descriptors.devices)?;
        let granted = self.boot_source()?.as_ref().map(sizes).transpose()?;
        check_boot(boot, granted)?;
        self.disk_files.check(&blueprint, &stamps, &how.force_disks)?;
        let vm = self.vm()?;
        check_processor(&vm, &blueprint)?;
        let ram = Ram::new(&blueprint.slots)?;
        let owner = self.sender.clone();
        let report = Box::new(move |why| drop(owner.send(Input::Broken(why))));
        // First of all: from the first vCPU on, KVM may touch it at any time.
        ram.fill(Box::new(memory), self.descriptors.userfaultfd.take().as_ref(), report)?;
        if how.huge_pages {
            ram.collapse()?;
        }
        let Restoration { disks, networks, entropy, .. } = how.clone();
        let hosts = Hosts { disks, networks, entropy };
        let parts = Parts::of_blueprint(&blueprint, &mut self.descriptors.devices, &hosts)?;
        let devices = parts.into_devices(&blueprint, &hosts, &self.sender)?;
        self.tell_addresses(&blueprint, &hosts)?;
        sandbox::lock_in();
        let mut machine = self.assemble(vm, blueprint, ram, devices)?;
        // Locked now, and looked at once more: from here on nobody else writes to them.
        machine.lock_disks()?;
        self.disk_files.check(machine.blueprint(), &stamps, &how.force_disks)?;
        machine.load(records)?;
        if !how.moved {
            machine.renew_generation(FILL_LIMIT)?;
        }
        self.advance.set(how.moved);
        self.run(machine)
    }
}

/// What the two files of a snapshot say, without the content of memory.
fn read(records: &File, memory: File) -> Result<(Snapshot, MemoryFile), SnapshotError> {
    let snapshot = Snapshot::read(records)?;
    let memory = MemoryFile::open(memory, snapshot.id, snapshot.memory_size())?;
    Ok((snapshot, memory))
}

/// Second descriptors of the files that disks are on, by role: the first ones are the devices'.
#[derive(Debug, Default)]
pub(super) struct DiskFiles(BTreeMap<Role, File>);

impl DiskFiles {
    /// Those among what was granted.
    pub(super) fn of(granted: &Grant) -> Result<Self, OwnerError> {
        let disks = granted.iter().filter(|(role, _)| role.content_of().is_some());
        let clone = |(role, fd): (&Role, &OwnedFd)| match fd.try_clone() {
            Ok(fd) => Ok((role.clone(), File::from(fd))),
            Err(source) => Err(OwnerError::Descriptor { role: role.clone(), source }),
        };
        Ok(Self(disks.map(clone).collect::<Result<_, _>>()?))
    }

    /// What the disks of the machine are now.
    fn stamps(&self, blueprint: &Blueprint) -> Result<Vec<DiskStamp>, SnapshotError> {
        let mut stamps = Vec::new();
        for (role, file) in &self.0 {
            let Some(disk) = disk_of(blueprint, role) else { continue };
            // Images are only read, whatever the disk is.
            let read_only = disk.read_only || role.as_str().starts_with("image/");
            let stamp = DiskStamp::take(role, read_only, file);
            let failed = |source| SnapshotError::Stamp { role: role.clone(), source };
            stamps.push(stamp.map_err(failed)?);
        }
        Ok(stamps)
    }

    /// Whether all are what they were, but for disks of these names.
    fn check(
        &self,
        blueprint: &Blueprint,
        stamps: &[DiskStamp],
        but: &BTreeSet<String>,
    ) -> Result<(), OwnerError> {
        let forced = |role: &Role| role.content_of().is_some_and(|name| but.contains(name));
        for stamp in stamps.iter().filter(|stamp| !forced(&stamp.role)) {
            let missing = || OwnerError::NotGranted(stamp.role.clone());
            let file = self.0.get(&stamp.role).ok_or_else(missing)?;
            stamp.check(file).map_err(SnapshotError::Disk)?;
        }
        let known = |role: &&Role| stamps.iter().any(|stamp| stamp.role == **role);
        let mut used = self.0.keys().filter(|role| disk_of(blueprint, role).is_some());
        match used.find(|role| !known(role) && !forced(role)) {
            Some(role) => Err(SnapshotError::Disk(DiskChange::Unknown(role.clone())).into()),
            None => Ok(()),
        }
    }
}

/// The disk of the machine that a file of this role is, or is a part of.
fn disk_of<'a>(blueprint: &'a Blueprint, role: &Role) -> Option<&'a DiskBlueprint> {
    blueprint.pci.functions.iter().find_map(|function| match &function.device {
        DeviceBlueprint::Disk(disk) if role.content_of() == Some(&disk.name) => Some(disk),
        _ => None,
    })
}

/// The file of this role for a snapshot to be written to.
fn snapshot_file(granted: &Grant, role: Role) -> Result<File, OwnerError> {
    let file = granted.get(&role).map(OwnedFd::try_clone).transpose();
    let file = file.map_err(|source| OwnerError::Descriptor { role: role.clone(), source })?;
    let file = granted_file(file.map(File::from), role.clone())?;
    check_empty(&file).map_err(|source| SnapshotError::File { role, source })?;
    Ok(file)
}

fn granted_file(file: Option<File>, role: Role) -> Result<File, OwnerError> {
    let file = file.ok_or_else(|| OwnerError::NotGranted(role.clone()))?;
    check_private(&file).map_err(|source| SnapshotError::File { role, source })?;
    Ok(file)
}

fn sizes(source: &BootSource) -> Result<BootSizes, OwnerError> {
    let size = |file: &File, role: Role| {
        let metadata = file.metadata();
        metadata
            .map(|metadata| metadata.len())
            .map_err(|source| OwnerError::Descriptor { role, source })
    };
    let initrd = source.initrd.as_ref().map(|initrd| size(initrd, Role::initrd())).transpose()?;
    Ok(BootSizes { kernel: size(&source.kernel, Role::kernel())?, initrd })
}

/// A machine that was booted from a disk had none of both.
fn check_boot(then: Option<BootSizes>, now: Option<BootSizes>) -> Result<(), SnapshotError> {
    let same = |role, found, expected| {
        if found == expected { Ok(()) } else { Err(SnapshotError::Boot { role, found, expected }) }
    };
    let kernel = |sizes: Option<BootSizes>| sizes.map(|sizes| sizes.kernel);
    let initrd = |sizes: Option<BootSizes>| sizes.and_then(|sizes| sizes.initrd);
    same(Role::kernel(), kernel(now), kernel(then))?;
    same(Role::initrd(), initrd(now), initrd(then))
}
