//! Disks of a VMI.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use corten_link::{DiskDescription, DiskEngine, DiskHost, OnDiskError, Role};
use corten_resources::machine::{Source, Topology};
use corten_resources::types::{Disk, VirtualMachineInstanceSpec, Volume};
use corten_resources::validate::Finding;

use super::{DiskPlace, queues, segment};

/// The blocks of a disk of which its user says nothing.
const SECTOR: u32 = 512;
/// The largest blocks.
const MAX_BLOCK: u32 = 64 << 10;

/// Disks in the order in which the guest finds them, each with the path of what asks for it.
pub fn disks(spec: &VirtualMachineInstanceSpec) -> Vec<(String, Cow<'_, Disk>)> {
    spec.guest_disks()
}

pub(super) fn describe(
    spec: &VirtualMachineInstanceSpec,
    topology: Topology,
    places: &BTreeMap<String, DiskPlace>,
) -> Result<Vec<DiskDescription>, Finding> {
    let is_multiple = spec.domain.devices.block_multi_queue == Some(true);
    let queues = if is_multiple { queues(topology) } else { 1 };
    let mut taken = BTreeSet::new();
    let mut describe = |(path, disk): (String, Cow<'_, Disk>)| {
        let name = segment(&path, &disk.name, &mut taken)?;
        let Some(place) = places.get(&disk.name) else {
            let message = format!("there is no volume of the name {:?}", disk.name);
            return Err(Finding::invalid(format!("{path}.name"), message));
        };
        let block_size = block_size(&path, &disk, place)?;
        Ok(DiskDescription {
            name,
            serial: serial(&path, &disk)?,
            read_only: place.read_only || disk.is_read_only(),
            queues,
            block_size: Some(block_size),
            host: host(&disk, place, block_size),
        })
    };
    disks(spec).into_iter().map(&mut describe).collect()
}

/// Names of disks that a system is looked for on: those with a place in the order, by it. If none has one, all in the order in
/// which the guest finds them, but for those that are made of files here.
pub(super) fn boot_order(spec: &VirtualMachineInstanceSpec) -> Vec<String> {
    if spec.domain.devices.disks.iter().any(|disk| disk.boot_order.is_some()) {
        return spec.boot_order().into_iter().map(Role::segment).collect();
    }
    let disks = disks(spec);
    let names = disks.iter().map(|(_, disk)| disk.name.as_str());
    names.filter(|name| may_hold_a_system(spec, name)).map(Role::segment).collect()
}

fn may_hold_a_system(spec: &VirtualMachineInstanceSpec, name: &str) -> bool {
    let source = spec.volume(name).and_then(Volume::source);
    matches!(
        source,
        Some(
            Source::ContainerDisk(_)
                | Source::DataVolume(_)
                | Source::Ephemeral(_)
                | Source::HostDisk(_)
                | Source::PersistentVolumeClaim(_)
        )
    )
}

/// What the guest knows it by. Of a longer one it sees as much as there is room for, as KubeVirt's guests do.
fn serial(path: &str, disk: &Disk) -> Result<String, Finding> {
    let serial = disk.guest_serial();
    if !serial.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        let message = format!("{serial:?} has characters that are no printable ASCII");
        return Err(Finding::invalid(format!("{path}.serial"), message));
    }
    Ok(serial.into())
}

fn block_size(path: &str, disk: &Disk, place: &DiskPlace) -> Result<u32, Finding> {
    let matched = disk.block_size.as_ref().and_then(|size| size.match_volume.as_ref());
    if matched.is_some_and(|matched| matched.enabled != Some(false)) {
        let size = place.direct.unwrap_or(place.block_size).max(place.block_size);
        return fitting(&format!("{path}.blockSize.matchVolume"), size, place);
    }
    let Some(size) = disk.logical_block_size() else { return Ok(place.block_size.max(SECTOR)) };
    let path = format!("{path}.blockSize.custom.logical");
    if !size.is_power_of_two() || !(SECTOR..=MAX_BLOCK).contains(&size) {
        let message = format!("{size} is no power of two between {SECTOR} and {MAX_BLOCK}");
        return Err(Finding::invalid(path, message));
    }
    if size < place.block_size {
        let message = format!("the volume has blocks of {} bytes", place.block_size);
        return Err(Finding::invalid(path, message));
    }
    fitting(&path, size, place)
}

/// Blocks of which the volume has a whole number: its guest would not see the rest.
fn fitting(path: &str, size: u32, place: &DiskPlace) -> Result<u32, Finding> {
    if place.size > 0 && place.size.is_multiple_of(size.into()) {
        return Ok(size);
    }
    let message =
        format!("the volume has {} bytes, which is no multiple of blocks of {size}", place.size);
    Err(Finding::invalid(path, message))
}

fn host(disk: &Disk, place: &DiskPlace, block_size: u32) -> DiskHost {
    // What is only read once need not be read from where it is each time; and its blocks may be smaller.
    let is_disk = place.images.is_empty() && disk.cdrom.is_none();
    let past_cache = disk.bypasses_page_cache().unwrap_or(true);
    let is_on_threads = disk.io.as_deref() == Some("threads");
    DiskHost {
        direct: past_cache && is_disk && place.direct.is_some_and(|least| least <= block_size),
        on_error: if disk.pauses_on_error() { OnDiskError::Pause } else { OnDiskError::Report },
        engine: if is_on_threads { DiskEngine::Pool } else { DiskEngine::Auto },
        shared: disk.shareable == Some(true),
        images: place.images.clone(),
        ..DiskHost::default()
    }
}
