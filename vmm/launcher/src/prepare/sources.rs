//! Where volumes are.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use corten_resources::types::{ContainerDisk, KernelBootContainer, Volume};

use super::mounted;
use crate::volumes::config_disk::NamedFile;

/// Why a source does not give what it should. The volume is named around it.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// Where a claim is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPlace {
    /// The directory that it is mounted at, the block device that it is, or its file.
    pub path: PathBuf,
    /// Bytes that its disk is to have where it has to be made; none if it has to exist.
    pub capacity: Option<u64>,
}

/// Where files of an image are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImagePlace {
    /// All of them, below this directory.
    Root(PathBuf),
    /// Those that are wanted, in their order: they were taken out of the image.
    Files(Vec<PathBuf>),
}

/// Where the volumes of one VMI are.
pub trait VolumeSources {
    /// The claim of a volume.
    fn claim(&self, volume: &str, claim: &str) -> Result<ClaimPlace, SourceError>;

    /// The file that is `path` on the node.
    fn host_disk(&self, volume: &str, path: &Path) -> Result<PathBuf, SourceError>;

    /// The image that holds a disk, or that disk.
    fn container_disk(&self, volume: &str, disk: &ContainerDisk)
    -> Result<ImagePlace, SourceError>;

    /// The image that holds a kernel, or that kernel and its initial RAM disk, if it has one.
    fn kernel(&self, container: &KernelBootContainer) -> Result<ImagePlace, SourceError>;

    /// The files of a ConfigMap, Secret, service account, downward API or sysprep volume; none if what it names is not there.
    fn files(&self, volume: &Volume) -> Result<Option<Vec<NamedFile>>, SourceError>;

    /// The files of a Secret that a cloud-init volume or an access credential names; none if it is not there.
    fn secret(&self, name: &str) -> Result<Option<Vec<NamedFile>>, SourceError>;

    /// What to do about an object that is not there, to be put behind that it is not.
    fn hint(&self) -> &'static str {
        ""
    }

    /// The name of the VM that a process runs, for messages.
    fn vm_of(&self, process: i32) -> Option<String> {
        let _ = process;
        None
    }
}

/// Mount points of a launcher Pod.
///
/// | path | holds |
/// |---|---|
/// | `VOLUMES/NAME` | the volume of that name: a claim's file system or block device, an image, the directory of a hostDisk, the files of a ConfigMap and the like |
/// | `SECRETS/NAME` | the Secret of that name, for cloud-init and access credentials |
#[derive(Clone, Debug)]
pub struct PodMounts {
    /// `VOLUMES`.
    pub volumes: PathBuf,
    /// `SECRETS`.
    pub secrets: PathBuf,
    /// Where the image with kernel and initrd is mounted.
    pub kernel_boot: PathBuf,
    /// Bytes of claims, by the names of their volumes.
    pub capacities: BTreeMap<String, u64>,
}

impl VolumeSources for PodMounts {
    fn claim(&self, volume: &str, _: &str) -> Result<ClaimPlace, SourceError> {
        let capacity = self.capacities.get(volume).copied();
        Ok(ClaimPlace { path: self.volumes.join(volume), capacity })
    }

    fn host_disk(&self, volume: &str, path: &Path) -> Result<PathBuf, SourceError> {
        // Its directory is mounted.
        let name = path.file_name().ok_or("the path names no file")?;
        Ok(self.volumes.join(volume).join(name))
    }

    fn container_disk(&self, volume: &str, _: &ContainerDisk) -> Result<ImagePlace, SourceError> {
        Ok(ImagePlace::Root(self.volumes.join(volume)))
    }

    fn kernel(&self, _: &KernelBootContainer) -> Result<ImagePlace, SourceError> {
        Ok(ImagePlace::Root(self.kernel_boot.clone()))
    }

    fn files(&self, volume: &Volume) -> Result<Option<Vec<NamedFile>>, SourceError> {
        mounted(&self.volumes.join(&volume.name))
    }

    fn secret(&self, name: &str) -> Result<Option<Vec<NamedFile>>, SourceError> {
        mounted(&self.secrets.join(name))
    }
}
