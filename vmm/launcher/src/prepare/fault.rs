//! What was at fault that a VMI could not be prepared, in one word for whoever tells users what to do.

use std::error::Error;
use std::io;

use corten_link::StartFault;

use super::{PrepareError, VolumeError};
use crate::image::ImageError;
use crate::volumes::disk_image::DiskImageError;

impl PrepareError {
    /// The word; none for what is no user's matter.
    pub fn fault(&self) -> Option<StartFault> {
        match self {
            Self::Volume { path, source, .. } => Some(match of_volume(source) {
                // It is there, and what should be in it is not.
                StartFault::DiskMissing if path.ends_with(".containerDisk") => {
                    StartFault::ImageWithoutDisk
                }
                fault => fault,
            }),
            Self::Image(error) => Some(of_image(error)),
            Self::Kernel(_) => Some(StartFault::KernelMissing),
            Self::Role(_) => None,
        }
    }
}

fn of_image(error: &ImageError) -> StartFault {
    match error {
        ImageError::Path { .. } => StartFault::InvalidSpec,
        _ => StartFault::KernelMissing,
    }
}

fn of_volume(error: &VolumeError) -> StartFault {
    match error {
        VolumeError::Disk(error) => of_disk(error),
        VolumeError::Source(error) if is_not_found(error.as_ref()) => StartFault::DiskMissing,
        VolumeError::NoObject { .. } => StartFault::DiskMissing,
        VolumeError::Capacity(_)
        | VolumeError::NoCapacity
        | VolumeError::Missing
        | VolumeError::Twice { .. }
        | VolumeError::Unknown => StartFault::InvalidSpec,
        _ => StartFault::VolumeUnusable,
    }
}

fn of_disk(error: &DiskImageError) -> StartFault {
    match error {
        DiskImageError::Missing(_) | DiskImageError::NoDirectory(_) => StartFault::DiskMissing,
        DiskImageError::Open(_, error) if is_not_found(error) => StartFault::DiskMissing,
        DiskImageError::NotOne { .. } => StartFault::ImageWithoutDisk,
        DiskImageError::InUse { .. } => StartFault::DiskInUse,
        DiskImageError::NoRoom { .. } | DiskImageError::Make { .. } => StartFault::NoRoomForDisk,
        DiskImageError::Path(_) | DiskImageError::TooSmall(_) => StartFault::InvalidSpec,
        _ => StartFault::VolumeUnusable,
    }
}

/// Somewhere down its chain the system said that there is nothing of that name.
fn is_not_found(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(io::ErrorKind::NotFound) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn volume(source: VolumeError) -> Option<StartFault> {
        let (path, name) = ("spec.volumes[0].persistentVolumeClaim".into(), "root".into());
        PrepareError::Volume { path, name, source: Box::new(source) }.fault()
    }

    #[test]
    fn what_a_user_can_do_something_about_has_its_word() {
        let path = || PathBuf::from("/var/run/corten/volumes/root");
        let system = |kind: io::ErrorKind| io::Error::from(kind);
        let disk = |error: DiskImageError| volume(error.into());
        let table = [
            (disk(DiskImageError::Missing(path())), StartFault::DiskMissing),
            (disk(DiskImageError::NoDirectory(path())), StartFault::DiskMissing),
            (
                disk(DiskImageError::Open(path(), system(io::ErrorKind::NotFound))),
                StartFault::DiskMissing,
            ),
            (
                disk(DiskImageError::Open(path(), system(io::ErrorKind::PermissionDenied))),
                StartFault::VolumeUnusable,
            ),
            (disk(DiskImageError::NotOne { count: 0 }), StartFault::ImageWithoutDisk),
            (disk(DiskImageError::NotOne { count: 2 }), StartFault::ImageWithoutDisk),
            (disk(DiskImageError::Empty(path())), StartFault::VolumeUnusable),
            (
                disk(DiskImageError::NoRoom { path: path(), free: 1, wanted: 2 }),
                StartFault::NoRoomForDisk,
            ),
            (disk(DiskImageError::TooSmall(1)), StartFault::InvalidSpec),
            (
                volume(VolumeError::NoObject { object: "Secret keys".into(), hint: "" }),
                StartFault::DiskMissing,
            ),
            (volume(VolumeError::NoCapacity), StartFault::InvalidSpec),
            (
                volume(VolumeError::Source(Box::new(system(io::ErrorKind::NotFound)))),
                StartFault::DiskMissing,
            ),
            (volume(VolumeError::Source("no such claim".into())), StartFault::VolumeUnusable),
        ];
        for (number, (found, fault)) in table.into_iter().enumerate() {
            assert_eq!(found, Some(fault), "{number}");
        }
        let (path, name) = ("spec.volumes[0].containerDisk".into(), "root".into());
        let source = Box::new(DiskImageError::Missing("/disk".into()).into());
        let image = PrepareError::Volume { path, name, source };
        assert_eq!(image.fault(), Some(StartFault::ImageWithoutDisk));
        let kernel = PrepareError::Kernel("no image".into());
        assert_eq!(kernel.fault(), Some(StartFault::KernelMissing));
    }
}
