//! One volume -> a disk.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use corten_resources::machine::Source;
use corten_resources::types::{CloudInit, Disk, HostDisk, VirtualMachineInstance, Volume};
use corten_resources::{Quantity, QuantityError};
use thiserror::Error;

use super::seed::{self, SeedError};
use super::{ImagePlace, SourceError, VolumeSources};
use crate::volumes::cloud_init::{config_drive, no_cloud};
use crate::volumes::config_disk::{LABEL, SYSPREP_LABEL, config_disk};
use crate::volumes::disk_image::{self, Access, DiskContent, DiskImage, DiskImageError, Scratch};
use crate::volumes::downward_metrics::{self, MetricsDisk};
use crate::volumes::iso9660::IsoError;
use crate::volumes::sealed::sealed;

/// Why a volume gives no disk.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// It cannot be found.
    #[error(transparent)]
    Source(SourceError),
    /// A file that cannot be a disk.
    #[error(transparent)]
    Disk(#[from] DiskImageError),
    /// One file for two disks of a VM.
    #[error("disk {} is that of volume {other} too, and is written to", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The other volume.
        other: String,
    },
    /// Files that cannot be on a disk.
    #[error(transparent)]
    Iso(#[from] IsoError),
    /// Data for cloud-init.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// An amount that is none.
    #[error("the capacity cannot be read")]
    Capacity(#[from] QuantityError),
    /// No amount.
    #[error("it has no capacity: say how large the disk is to be")]
    NoCapacity,
    /// What it refers to is not there.
    #[error("it names nothing")]
    Missing,
    /// An object that is not there.
    #[error("{object} is not there, and it is not optional{hint}")]
    NoObject {
        /// Its kind and name.
        object: String,
        /// Where it may be.
        hint: &'static str,
    },
    /// A kind that no disk can be made of.
    #[error("no disk can be made of it")]
    Unknown,
    /// The host's memory.
    #[error("cannot keep it in memory")]
    Memory(#[from] io::Error),
}

/// A volume, and how it is to be opened.
pub(super) struct Wanted<'a> {
    pub(super) vmi: &'a VirtualMachineInstance,
    pub(super) volume: &'a Volume,
    pub(super) disk: &'a Disk,
    pub(super) scratch: &'a Scratch,
}

impl Wanted<'_> {
    /// Whether the disk is only read, by what it is or by what its user says.
    pub(super) fn is_read_only(&self) -> bool {
        let is_written = match self.volume.source() {
            Some(Source::PersistentVolumeClaim(claim)) => claim.read_only != Some(true),
            Some(
                Source::ContainerDisk(_)
                | Source::DataVolume(_)
                | Source::EmptyDisk(_)
                | Source::Ephemeral(_)
                | Source::HostDisk(_),
            ) => true,
            _ => false,
        };
        self.disk.is_read_only() || !is_written
    }

    fn access(&self) -> Access {
        match (self.is_read_only(), self.disk.shareable) {
            (true, _) => Access::Read,
            (false, Some(true)) => Access::Share,
            (false, _) => Access::Write,
        }
    }

    /// Opens or makes the disk.
    pub(super) fn open(
        &self,
        sources: &dyn VolumeSources,
        metrics: &mut Option<MetricsDisk>,
    ) -> Result<DiskImage, VolumeError> {
        self.open_source(sources, metrics).map_err(|error| match error {
            VolumeError::Disk(error) => name_holder(error, sources).into(),
            error => error,
        })
    }

    /// Where its claim is, and that as a descriptor, if it may not be opened as it has to be.
    pub(super) fn closed(&self, sources: &dyn VolumeSources) -> Option<(PathBuf, OwnedFd)> {
        let (claim, access) = match self.volume.source()? {
            Source::PersistentVolumeClaim(claim) => (&claim.claim_name, self.access()),
            Source::DataVolume(data) => (&data.name, self.access()),
            Source::Ephemeral(source) => {
                (&source.persistent_volume_claim.as_ref()?.claim_name, Access::Read)
            }
            _ => return None,
        };
        disk_image::closed_claim(&sources.claim(&self.volume.name, claim).ok()?.path, access)
    }

    fn open_source(
        &self,
        sources: &dyn VolumeSources,
        metrics: &mut Option<MetricsDisk>,
    ) -> Result<DiskImage, VolumeError> {
        let name = &self.volume.name;
        match self.volume.source().ok_or(VolumeError::Unknown)? {
            Source::PersistentVolumeClaim(claim) => {
                self.claim(&claim.claim_name, self.access(), sources)
            }
            // The claim that it fills has its name.
            Source::DataVolume(data) => self.claim(&data.name, self.access(), sources),
            Source::Ephemeral(source) => {
                let claim = source.persistent_volume_claim.as_ref().ok_or(VolumeError::Missing)?;
                let base = self.claim(&claim.claim_name, Access::Read, sources)?;
                if self.is_read_only() {
                    return Ok(base);
                }
                Ok(disk_image::ephemeral(base, self.scratch, name)?)
            }
            Source::HostDisk(disk) => self.host_disk(disk, sources),
            Source::ContainerDisk(disk) => {
                let place = sources.container_disk(name, disk).map_err(VolumeError::Source)?;
                let scratch = (!self.is_read_only()).then_some(self.scratch);
                Ok(match place {
                    ImagePlace::Root(root) => {
                        disk_image::container_disk(&root, disk.path.as_deref(), scratch, name)?
                    }
                    ImagePlace::Files(files) => {
                        let path = files.first().ok_or(VolumeError::Missing)?;
                        disk_image::unpacked_disk(path, scratch, name)?
                    }
                })
            }
            Source::EmptyDisk(disk) => {
                let capacity = bytes(disk.capacity.as_ref())?;
                Ok(disk_image::empty_disk(self.scratch, name, capacity)?)
            }
            Source::CloudInitNoCloud(source) => self.seed(source, sources, seed::Kind::NoCloud),
            Source::CloudInitConfigDrive(source) => {
                self.seed(source, sources, seed::Kind::ConfigDrive)
            }
            Source::DownwardMetrics(_) => {
                let disk = MetricsDisk::new()?;
                let content = DiskContent::Raw(disk.reader()?);
                *metrics = Some(disk);
                let size = downward_metrics::SIZE;
                Ok(DiskImage { content, size, origin: None, made: None })
            }
            Source::ConfigMap(map) => {
                self.files(map.volume_label.as_deref(), map.optional, sources)
            }
            Source::Secret(secret) => {
                self.files(secret.volume_label.as_deref(), secret.optional, sources)
            }
            Source::DownwardApi(api) => self.files(api.volume_label.as_deref(), None, sources),
            Source::ServiceAccount(_) => self.files(None, None, sources),
            Source::Sysprep(_) => self.files(Some(SYSPREP_LABEL), None, sources),
            Source::ContainerPath(_) | Source::MemoryDump(_) => Err(VolumeError::Unknown),
        }
    }

    fn claim(
        &self,
        claim: &str,
        access: Access,
        sources: &dyn VolumeSources,
    ) -> Result<DiskImage, VolumeError> {
        let place = sources.claim(&self.volume.name, claim).map_err(VolumeError::Source)?;
        Ok(disk_image::claim(&place.path, place.capacity, access)?)
    }

    fn host_disk(
        &self,
        disk: &HostDisk,
        sources: &dyn VolumeSources,
    ) -> Result<DiskImage, VolumeError> {
        let path = sources.host_disk(&self.volume.name, Path::new(&disk.path));
        let path = path.map_err(VolumeError::Source)?;
        let may_be_made = disk.kind == "DiskOrCreate";
        let capacity = may_be_made.then(|| bytes(disk.capacity.as_ref())).transpose()?;
        Ok(disk_image::host_disk(&path, capacity, self.access())?)
    }

    fn seed(
        &self,
        source: &CloudInit,
        sources: &dyn VolumeSources,
        kind: seed::Kind,
    ) -> Result<DiskImage, VolumeError> {
        let seed = seed::seed(source, sources)?;
        let instance = seed::instance(self.vmi, sources, kind)?;
        let image = match kind {
            seed::Kind::NoCloud => no_cloud(&instance, &seed),
            seed::Kind::ConfigDrive => config_drive(&instance, &seed),
        };
        self.in_memory(&image?)
    }

    /// A disk with the files of what the volume names.
    fn files(
        &self,
        label: Option<&str>,
        optional: Option<bool>,
        sources: &dyn VolumeSources,
    ) -> Result<DiskImage, VolumeError> {
        let files = match sources.files(self.volume).map_err(VolumeError::Source)? {
            Some(files) => files,
            None if optional == Some(true) => Vec::new(),
            None => {
                let object = named(self.volume).ok_or(VolumeError::Missing)?;
                return Err(VolumeError::NoObject { object, hint: sources.hint() });
            }
        };
        let label = label.filter(|label| !label.is_empty()).unwrap_or(LABEL);
        self.in_memory(&config_disk(label, files)?)
    }

    fn in_memory(&self, image: &[u8]) -> Result<DiskImage, VolumeError> {
        let file = sealed(&self.volume.name, image)?;
        let size = u64::try_from(image.len()).unwrap_or(u64::MAX);
        Ok(DiskImage { content: DiskContent::Raw(file), size, origin: None, made: None })
    }
}

/// The error with the name of the VM that has the disk, if it is known.
pub(super) fn name_holder(error: DiskImageError, sources: &dyn VolumeSources) -> DiskImageError {
    match error {
        DiskImageError::InUse { path, mut holder } => {
            holder.vm = holder.process.and_then(|process| sources.vm_of(process));
            DiskImageError::InUse { path, holder }
        }
        error => error,
    }
}

/// Kind and name of the object that a volume has its files of.
fn named(volume: &Volume) -> Option<String> {
    let object = |kind: &str, name: Option<&str>| {
        name.filter(|name| !name.is_empty()).map(|name| format!("{kind} {name}"))
    };
    match volume.source()? {
        Source::ConfigMap(map) => object("ConfigMap", map.name.as_deref()),
        Source::Secret(secret) => object("Secret", secret.secret_name.as_deref()),
        Source::ServiceAccount(account) => {
            object("service account", account.service_account_name.as_deref())
        }
        Source::Sysprep(files) => {
            let map = files.config_map.as_ref().and_then(|map| map.name.as_deref());
            let secret = files.secret.as_ref().and_then(|secret| secret.name.as_deref());
            object("ConfigMap", map).or_else(|| object("Secret", secret))
        }
        _ => None,
    }
}

fn bytes(capacity: Option<&Quantity>) -> Result<u64, VolumeError> {
    Ok(capacity.ok_or(VolumeError::NoCapacity)?.units()?)
}
