//! Disks: from descriptors to devices that outlive a reset.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use corten_devices::block::{
    Block, BlockConfig, BlockError, DiskError, DiskFailure, DiskFile, Engine, ErrorPolicy,
};
use corten_devices::{RateLimit, RateLimits};
use corten_link::{DiskCounters, DiskEngine, DiskHost, DiskRate, OnDiskError, Role, RoleError};
use thiserror::Error;

use super::{DiskBlueprint, Input};

/// Why a disk cannot be used.
#[derive(Debug, Error)]
pub enum DiskSetupError {
    /// Its name.
    #[error("a disk cannot be named {0:?}")]
    Name(String, #[source] RoleError),
    /// Its descriptor was not granted.
    #[error("the descriptor disk/{0} was not granted")]
    NotGranted(String),
    /// Its descriptor cannot be duplicated.
    #[error("cannot use the descriptor disk/{0}")]
    Descriptor(String, #[source] io::Error),
    /// It is no disk.
    #[error("the disk {0:?} cannot be used")]
    File(String, #[source] DiskError),
    /// It cannot be as it is wanted.
    #[error("the disk {0:?} cannot be used")]
    Device(String, #[source] BlockError),
}

/// The granted disk of this name.
pub(super) fn open(
    name: &str,
    fd: Option<&OwnedFd>,
    host: &DiskHost,
) -> Result<DiskFile, DiskSetupError> {
    Role::disk(name).map_err(|error| DiskSetupError::Name(name.into(), error))?;
    let fd = fd.ok_or_else(|| DiskSetupError::NotGranted(name.into()))?;
    let fd = fd.try_clone().map_err(|error| DiskSetupError::Descriptor(name.into(), error))?;
    DiskFile::new(fd, host.direct).map_err(|error| DiskSetupError::File(name.into(), error))
}

/// The device that a guest finds. Makes all rings and threads that the disk will ever need; it is not locked yet.
pub(super) fn device(
    blueprint: &DiskBlueprint,
    file: DiskFile,
    host: &DiskHost,
    owner: &Sender<Input>,
) -> Result<Block, DiskSetupError> {
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
        limits: RateLimits { bytes: limit(host.bytes), operations: limit(host.requests) },
        engine: match host.engine {
            DiskEngine::Auto => Engine::Auto,
            DiskEngine::Ring => Engine::Ring,
            DiskEngine::Pool => Engine::Pool,
        },
        lock: false,
        thread_start: None,
    };
    let (owner, disk) = (owner.clone(), name.clone());
    let report = Arc::new(move |failure: DiskFailure| {
        // Without an owner the machine is being taken down.
        let _ = owner.send(Input::DiskFailed { disk: disk.clone(), failure });
    });
    Block::new(file, config, report).map_err(|error| DiskSetupError::Device(name.clone(), error))
}

/// No rate at all is no limit: zero would stop the disk for good.
fn limit(rate: Option<DiskRate>) -> Option<RateLimit> {
    let rate = rate?;
    let per_second = NonZeroU64::new(rate.per_second)?;
    Some(RateLimit { per_second, burst: NonZeroU64::new(rate.burst).unwrap_or(per_second) })
}

/// What a disk counted, for the control peer.
pub(super) fn counters(block: &Block) -> DiskCounters {
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
