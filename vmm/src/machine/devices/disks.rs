//! Disks: from descriptors to devices that outlive a reset.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use corten_devices::block::{
    Block, BlockConfig, Disk, DiskFailure, DiskFile, Engine, ErrorPolicy, ImageDisk, ImageFile,
    ImageFormat,
};
use corten_link::{DiskCounters, DiskDescription, DiskEngine, DiskHost, Grant, OnDiskError, Role};

use super::{DeviceSetupError, DiskBlueprint, Input, QUEUE_SIZE, granted, limits};
use crate::sandbox::{self, ThreadKind};

/// The granted disk of this name.
pub(super) fn open(
    name: &str,
    grant: &mut Grant,
    host: &DiskHost,
) -> Result<Disk, DeviceSetupError> {
    if !host.images.is_empty() {
        return open_images(name, grant, host);
    }
    let fd = granted(Role::disk(name), name, grant)?;
    let file = DiskFile::new(fd, host.direct);
    Ok(file.map_err(|error| DeviceSetupError::File(name.into(), error))?.into())
}

fn open_images(name: &str, grant: &mut Grant, host: &DiskHost) -> Result<Disk, DeviceSetupError> {
    let mut image = |(number, format): (usize, &corten_link::ImageFormat)| {
        let fd = granted(Role::image(name, number), name, grant)?;
        let format = match format {
            corten_link::ImageFormat::Raw => ImageFormat::Raw,
            corten_link::ImageFormat::Qcow2 => ImageFormat::Qcow2,
        };
        Ok(ImageFile { fd, format })
    };
    let images = host.images.iter().enumerate().map(&mut image).collect::<Result<_, _>>()?;
    // A disk that is only read needs none. One that is written to says so itself.
    let role = Role::overlay(name);
    let overlay = role.map_err(|error| DeviceSetupError::Name(name.into(), error))?;
    let overlay = grant.remove(&overlay);
    let disk = sandbox::parse(|| ImageDisk::open(images, overlay));
    let disk = disk.map_err(|error| DeviceSetupError::Parser(name.into(), error))?;
    Ok(disk.map_err(|error| DeviceSetupError::Images(name.into(), error))?.into())
}

/// What is planned of a disk.
pub(super) fn blueprint(description: &DiskDescription, disk: Option<&Disk>) -> DiskBlueprint {
    let DiskDescription { name, serial, read_only, queues, block_size, .. } = description;
    DiskBlueprint {
        name: name.clone(),
        serial: serial.clone(),
        read_only: *read_only,
        queues: *queues,
        queue_size: QUEUE_SIZE,
        block_size: block_size.or_else(|| disk.map(Disk::block_size)).unwrap_or(512),
    }
}

/// The device that a guest finds. Makes all rings and threads that the disk will ever need; it is not locked yet.
pub(super) fn device(
    blueprint: &DiskBlueprint,
    disk: Disk,
    host: &DiskHost,
    owner: &Sender<Input>,
) -> Result<Block, DeviceSetupError> {
    let DiskBlueprint { name, serial, read_only, queues, queue_size, block_size } = blueprint;
    let config = BlockConfig {
        serial: serial.clone(),
        read_only: *read_only,
        queues: *queues,
        queue_size: *queue_size,
        block_size: Some(*block_size),
        on_error: match host.on_error {
            OnDiskError::Report => ErrorPolicy::Report,
            OnDiskError::Pause => ErrorPolicy::Stop,
        },
        limits: limits(host.bytes, host.requests),
        engine: match host.engine {
            DiskEngine::Auto => Engine::Auto,
            DiskEngine::Ring => Engine::Ring,
            DiskEngine::Pool => Engine::Pool,
        },
        lock: false,
        shared: host.shared,
        thread_start: Some(sandbox::thread_start(ThreadKind::Disk)),
    };
    let (owner, failed) = (owner.clone(), name.clone());
    let report = Arc::new(move |failure: DiskFailure| {
        // Without an owner the machine is being taken down.
        let _ = owner.send(Input::DiskFailed { disk: failed.clone(), failure });
    });
    let device = Block::new(disk, config, report);
    device.map_err(|error| DeviceSetupError::Disk(name.clone(), error))
}

/// What a disk counted, for the control peer.
pub(in crate::machine) fn disk_counters(block: &Block) -> DiskCounters {
    let counted = block.counters();
    DiskCounters {
        reads: counted.reads,
        read_bytes: counted.read_bytes,
        writes: counted.writes,
        written_bytes: counted.written_bytes,
        flushes: counted.flushes,
        discards: counted.discards,
        write_zeroes: counted.write_zeroes,
        errors: counted.errors,
        bad_requests: counted.bad_requests,
        throttled: counted.throttled,
    }
}
