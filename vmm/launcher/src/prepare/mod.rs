//! A VMI -> open descriptors, and what the planner has to know of them.
//!
//! The same code in a Pod and on a host without a cluster: where a volume is says a [`VolumeSources`], in a Pod the mount points
//! ([`PodMounts`]). Nothing is opened for a VMI that [`machine::check`](crate::machine::check) refuses; ask it first.
//!
//! What each kind of volume becomes is in [`volumes`](crate::volumes), and for users in `docs/volumes.md`.

mod closed;
mod fault;
mod seed;
mod sources;
mod together;
mod volume;

#[cfg(test)]
mod served;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use corten_link::{Role, RoleError};
use corten_resources::machine::Source;
use corten_resources::types::{VirtualMachineInstance, Volume};
use thiserror::Error;

pub use self::closed::{Closed, closed};
pub use self::seed::hostname;
pub use self::sources::{ClaimPlace, ImagePlace, PodMounts, SourceError, VolumeSources};
use self::together::Together;
pub use self::volume::VolumeError;
use crate::image::{Image, ImageError};
use crate::machine::{DiskPlace, disks};
use crate::volumes::direct::blocks;
use crate::volumes::disk_image::{DiskContent, DiskImage, MadeFiles, Scratch};
use crate::volumes::downward_metrics::MetricsDisk;
use crate::volumes::probe::looks_like_qcow2;

/// What a VM process gets, and what is to be planned with.
#[derive(Debug, Default)]
pub struct Prepared {
    /// Open descriptors by role.
    pub descriptors: Vec<(Role, OwnedFd)>,
    /// What the volumes turned out to be, by name.
    pub disks: BTreeMap<String, DiskPlace>,
    /// To be written anew from time to time, if the VMI has such a volume.
    pub metrics: Option<MetricsDisk>,
    /// What its user may not have meant.
    pub warnings: Vec<String>,
    /// Files that were made for it, to be kept once it runs.
    pub made: MadeFiles,
}

/// Why a VMI cannot be prepared.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// Something about a volume.
    #[error("{path}: volume {name} cannot be used")]
    Volume {
        /// The field.
        path: String,
        /// Name of the volume.
        name: String,
        /// Why.
        #[source]
        source: Box<VolumeError>,
    },
    /// Kernel or initial RAM disk.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The image with them.
    #[error("spec.domain.firmware.kernelBoot.container.image: the image cannot be used")]
    Kernel(#[source] SourceError),
    /// A name that no role can have.
    #[error(transparent)]
    Role(#[from] RoleError),
}

impl PrepareError {
    /// About a volume of the object, by its number.
    fn of(number: usize, volume: &Volume, source: VolumeError) -> Self {
        let field = volume.source().map_or("name", Source::field);
        let path = format!("spec.volumes[{number}].{field}");
        Self::Volume { path, name: volume.name.clone(), source: Box::new(source) }
    }
}

/// Opens and makes what `vmi` needs. Files that live no longer than the machine go to `scratch`.
pub fn prepare(
    vmi: &VirtualMachineInstance,
    sources: &dyn VolumeSources,
    scratch: &Scratch,
) -> Result<Prepared, PrepareError> {
    let mut prepared = Prepared::default();
    prepared.add_kernel(vmi, sources)?;
    let mut together = Together::default();
    for (_, disk) in disks(&vmi.spec) {
        let found =
            vmi.spec.volumes.iter().enumerate().find(|(_, volume)| volume.name == disk.name);
        // A disk without a volume is the planner's to refuse.
        let Some((number, volume)) = found else { continue };
        let failed = |source: VolumeError| PrepareError::of(number, volume, source);
        let wanted = volume::Wanted { vmi, volume, disk: &disk, scratch };
        let mut image = wanted.open(sources, &mut prepared.metrics).map_err(failed)?;
        prepared.made.add(image.made.take());
        together.add(&volume.name, &image).map_err(failed)?;
        let read_only = wanted.is_read_only();
        prepared.add_disk(volume, image, read_only).map_err(|error| match error {
            AddError::Role(error) => error.into(),
            AddError::Ask(error) => failed(error.into()),
        })?;
    }
    together.hold().map_err(|(name, error)| {
        let error = volume::name_holder(error, sources).into();
        match vmi.spec.volumes.iter().enumerate().find(|(_, volume)| volume.name == name) {
            Some((number, volume)) => PrepareError::of(number, volume, error),
            None => {
                PrepareError::Volume { path: "spec.volumes".into(), name, source: Box::new(error) }
            }
        }
    })?;
    Ok(prepared)
}

enum AddError {
    Role(RoleError),
    Ask(io::Error),
}

impl Prepared {
    fn add_kernel(
        &mut self,
        vmi: &VirtualMachineInstance,
        sources: &dyn VolumeSources,
    ) -> Result<(), PrepareError> {
        const CONTAINER: &str = "spec.domain.firmware.kernelBoot.container";
        let Some(container) = vmi.spec.kernel_container() else { return Ok(()) };
        let paths = [
            (Role::kernel(), "kernelPath", &container.kernel_path),
            (Role::initrd(), "initrdPath", &container.initrd_path),
        ];
        let wanted = paths.into_iter().filter_map(|(role, field, path)| {
            Some((role, field, path.as_deref().filter(|path| !path.is_empty())?))
        });
        match sources.kernel(container).map_err(PrepareError::Kernel)? {
            ImagePlace::Root(root) => {
                let image = Image::open(&root)?;
                for (role, field, path) in wanted {
                    let file = image.file(&format!("{CONTAINER}.{field}"), path)?;
                    self.descriptors.push((role, file.into()));
                }
            }
            ImagePlace::Files(files) => {
                for ((role, ..), path) in wanted.zip(files) {
                    let file =
                        File::open(path).map_err(|error| PrepareError::Kernel(error.into()))?;
                    self.descriptors.push((role, file.into()));
                }
            }
        }
        Ok(())
    }

    fn add_disk(
        &mut self,
        volume: &Volume,
        disk: DiskImage,
        read_only: bool,
    ) -> Result<(), AddError> {
        let name = Role::segment(&volume.name);
        let mut place = DiskPlace {
            images: Vec::new(),
            read_only,
            size: disk.size,
            block_size: 512,
            direct: None,
        };
        let mut give = |role: Result<Role, RoleError>, file: File| {
            self.descriptors.push((role.map_err(AddError::Role)?, file.into()));
            Ok(())
        };
        match disk.content {
            DiskContent::Raw(file) => {
                let blocks = blocks(&file).map_err(AddError::Ask)?;
                (place.block_size, place.direct) = (blocks.cached, blocks.direct);
                if looks_like_qcow2(&file) {
                    self.warnings.push(format!(
                        "volume {} begins like a qcow2 image and is used as a raw disk: what is written in place always is",
                        volume.name
                    ));
                }
                give(Role::disk(&name), file)?;
            }
            DiskContent::Image { image, format, overlay } => {
                place.images = vec![format];
                give(Role::image(&name, 0), image)?;
                if let Some(overlay) = overlay {
                    give(Role::overlay(&name), overlay)?;
                }
            }
        }
        self.disks.insert(volume.name.clone(), place);
        Ok(())
    }
}

/// The files of a volume that is mounted at `path`; none if it is not there.
fn mounted(
    path: &Path,
) -> Result<Option<Vec<crate::volumes::config_disk::NamedFile>>, SourceError> {
    if !path.try_exists()? {
        return Ok(None);
    }
    Ok(Some(crate::volumes::config_disk::mounted_files(path)?))
}
