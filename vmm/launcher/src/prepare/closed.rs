//! What is a VMI's own and may not be opened all the same.
//!
//! kubelet makes the node of a claim's block device root's, and does not change whose a file is on NFS. Somebody with more rights
//! can see by a descriptor what it is, and make it the launcher's.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use corten_link::Role;
use corten_resources::types::{Disk, VirtualMachineInstance};

use super::{VolumeSources, volume};
use crate::machine::disks;
use crate::volumes::disk_image::Scratch;

/// The disk of a claim that may not be opened.
#[derive(Debug)]
pub struct Closed {
    /// The volume's name.
    pub volume: String,
    /// Where it is.
    pub path: PathBuf,
    /// What its disk will be called.
    pub role: Role,
    /// It, but nothing can be read or written by this.
    pub place: OwnedFd,
}

/// Claims of `vmi` that are there and may not be opened as its disks need it. Whatever else is the matter with them is told when
/// they are opened.
pub fn closed(vmi: &VirtualMachineInstance, sources: &dyn VolumeSources) -> Vec<Closed> {
    // Nothing is made.
    let scratch = Scratch::Nameless(PathBuf::new());
    let disks = disks(&vmi.spec);
    let of = |disk: &Disk| {
        let volume = vmi.spec.volumes.iter().find(|volume| volume.name == disk.name)?;
        let wanted = volume::Wanted { vmi, volume, disk, scratch: &scratch };
        let (path, place) = wanted.closed(sources)?;
        let role = Role::disk(&Role::segment(&volume.name)).ok()?;
        Some(Closed { volume: volume.name.clone(), path, role, place })
    };
    disks.iter().filter_map(|(_, disk)| of(disk)).collect()
}
