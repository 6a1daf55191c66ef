//! What the control peer asks of one device of a running machine.

use std::os::fd::OwnedFd;
use std::time::Duration;

use corten_devices::{console, vsock};
use corten_link::{Grant, Role};
use thiserror::Error;

use super::{DeviceBlueprint, Machine};

/// Why a device does not do what the control peer asked.
#[derive(Debug, Error)]
pub(super) enum PeerError {
    /// There is none.
    #[error("the machine has no {0}")]
    NoDevice(&'static str),
    /// A guest cannot give up what it does not have.
    #[error("a balloon of {wanted} bytes is more than the guest's memory of {memory}")]
    Balloon {
        /// What was asked for.
        wanted: u64,
        /// What there is.
        memory: u64,
    },
    /// Nothing to hand in came with the request.
    #[error("the descriptor {0} did not come with the request")]
    NotGranted(Role),
    /// The console device.
    #[error(transparent)]
    Attach(#[from] console::AttachError),
    /// The socket device.
    #[error(transparent)]
    Order(#[from] vsock::OrderError),
}

/// Attaches a socket to a port of the console device.
pub(super) fn attach(machine: &Machine, port: u32, granted: Grant) -> Result<(), PeerError> {
    let ports = machine.ports().ok_or(PeerError::NoDevice("console device"))?;
    let port = usize::try_from(port).unwrap_or(usize::MAX);
    Ok(ports.attach(port, socket(granted)?)?)
}

/// Streams of the console device that a program of the guest has open.
pub(super) fn open_ports(machine: &Machine) -> Vec<u32> {
    let streams = machine.blueprint().pci.functions.iter().find_map(|function| {
        let DeviceBlueprint::Console(console) = &function.device else { return None };
        u32::try_from(console.streams.len()).ok()
    });
    let (Some(streams), Some(ports)) = (streams, machine.ports()) else { return Vec::new() };
    (1..=streams).filter(|port| ports.is_open(*port as usize)).collect()
}

/// Connects a socket to a port of the guest's.
pub(super) fn connect(machine: &Machine, port: u32, granted: Grant) -> Result<(), PeerError> {
    Ok(sockets(machine)?.connect(socket(granted)?, port)?)
}

/// Gives the guest the connection that it asked for.
pub(super) fn grant(machine: &Machine, ticket: u64, granted: Grant) -> Result<(), PeerError> {
    Ok(sockets(machine)?.grant(ticket, socket(granted)?)?)
}

/// Tells the guest that it does not get the connection that it asked for.
pub(super) fn refuse(machine: &Machine, ticket: u64) -> Result<(), PeerError> {
    Ok(sockets(machine)?.refuse(ticket)?)
}

/// Has the guest give up this much of its memory.
pub(super) fn set_balloon(machine: &Machine, bytes: u64) -> Result<(), PeerError> {
    let memory = machine.blueprint().slots.iter().map(|slot| slot.size).sum();
    if bytes > memory {
        return Err(PeerError::Balloon { wanted: bytes, memory });
    }
    machine.set_balloon(bytes).then_some(()).ok_or(NO_BALLOON)
}

/// Asks the guest for the use of its memory again and again; every 0 seconds is never.
pub(super) fn poll_memory(machine: &Machine, seconds: u32) -> Result<(), PeerError> {
    let interval = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    machine.poll_memory(interval).then_some(()).ok_or(NO_BALLOON)
}

const NO_BALLOON: PeerError = PeerError::NoDevice("balloon");

fn sockets(machine: &Machine) -> Result<vsock::HostSide, PeerError> {
    machine.sockets().ok_or(PeerError::NoDevice("socket device"))
}

fn socket(mut granted: Grant) -> Result<OwnedFd, PeerError> {
    let role = Role::connection();
    granted.remove(&role).ok_or(PeerError::NotGranted(role))
}
