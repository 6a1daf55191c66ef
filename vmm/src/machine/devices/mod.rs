//! Devices on the PCI bus: from descriptors to what a function is made of.
//!
//! A machine is planned with what its parts say of themselves (a disk's block size, what a TAP can do), so the parts come
//! first: [`Parts`] of a description or of a blueprint, then the blueprint, then [`Devices`] of both. Everything that a
//! device will ever need of the host is made here, before the process is locked in.

mod balloon;
mod console;
mod disks;
mod entropy;
mod networks;
mod vsock;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use corten_devices::balloon::Balloon;
use corten_devices::block::{Block, BlockError, Disk, DiskError, ImageError};
use corten_devices::console::{Console, ConsoleError};
use corten_devices::net::{Net, NetError};
use corten_devices::rng::Rng;
use corten_devices::virtio::{Device, Transport, VirtioPci, Wiring, WiringError};
use corten_devices::vsock::{Vsock, VsockError};
use corten_devices::{RateLimit, RateLimits};
use corten_link::{
    DiskDescription, DiskHost, EntropyHost, Grant, MachineDescription, NetworkDescription,
    NetworkHost, Rate, Role, RoleError,
};
use thiserror::Error;

use super::{
    BalloonBlueprint, Blueprint, ConsoleBlueprint, DeviceBlueprint, DiskBlueprint, Input,
    NetworkBlueprint, VsockBlueprint,
};

pub(super) use balloon::{MemoryUse, balloon_counters};
pub(super) use console::console_counters;
pub(super) use disks::disk_counters;
pub(super) use entropy::entropy_counters;
pub(super) use networks::{addressed, network_counters};
pub(super) use vsock::vsock_counters;

/// What a queue of a disk or a network holds at most: enough for any driver's depth.
const QUEUE_SIZE: u16 = 256;

/// What the functions of a machine are made of, by instance. They outlive a reset of it.
pub type Devices = BTreeMap<String, AnyDevice>;

/// How the host treats devices, by name; those that are not named by default.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Disks.
    pub disks: BTreeMap<String, DiskHost>,
    /// Networks.
    pub networks: BTreeMap<String, NetworkHost>,
    /// Random numbers.
    pub entropy: EntropyHost,
}

impl Hosts {
    /// As a description wants it.
    pub fn of(description: &MachineDescription) -> Self {
        let disks = description.disks.iter().map(|disk| (disk.name.clone(), disk.host.clone()));
        let networks = description.networks.iter();
        let networks = networks.map(|network| (network.name.clone(), network.host.clone()));
        let entropy = description.entropy.unwrap_or_default();
        Self { disks: disks.collect(), networks: networks.collect(), entropy }
    }

    fn disk(&self, name: &str) -> DiskHost {
        self.disks.get(name).cloned().unwrap_or_default()
    }

    fn network(&self, name: &str) -> NetworkHost {
        self.networks.get(name).cloned().unwrap_or_default()
    }
}

/// Why a device cannot be made.
#[derive(Debug, Error)]
pub enum DeviceSetupError {
    /// Its name.
    #[error("a device cannot be named {0:?}")]
    Name(String, #[source] RoleError),
    /// A descriptor of it was not granted.
    #[error("the descriptor {0} was not granted")]
    NotGranted(Role),
    /// It is no disk.
    #[error("the disk {0:?} cannot be used")]
    File(String, #[source] DiskError),
    /// Its images are no disk.
    #[error("the disk {0:?} cannot be used")]
    Images(String, #[source] ImageError),
    /// No thread to read its images by.
    #[error("cannot start the thread that reads the images of the disk {0:?}")]
    Parser(String, #[source] io::Error),
    /// It cannot be as it is wanted.
    #[error("the disk {0:?} cannot be used")]
    Disk(String, #[source] BlockError),
    /// No interface.
    #[error("the network {0:?} cannot be used")]
    Network(String, #[source] NetError),
    /// No console device.
    #[error("cannot make the console device")]
    Console(#[source] ConsoleError),
    /// No entropy device.
    #[error("cannot make the entropy device")]
    Entropy(#[source] io::Error),
    /// No balloon.
    #[error("cannot make the balloon")]
    Balloon(#[source] io::Error),
    /// No socket device.
    #[error("cannot make the socket device")]
    Vsock(#[source] VsockError),
    /// The blueprint has a device of which there are no parts.
    #[error("the machine has a device {0:?} that was not given")]
    Missing(String),
}

/// What devices are made of, as far as the plan of the machine depends on it.
#[derive(Default)]
pub(super) struct Parts {
    disks: BTreeMap<String, Disk>,
    networks: BTreeMap<String, Net>,
    console: Option<Console>,
}

impl Parts {
    /// Those that a machine is planned with.
    pub(super) fn of_description(
        description: &MachineDescription,
        granted: &mut Grant,
    ) -> Result<Self, DeviceSetupError> {
        let mut parts = Self::default();
        for disk in &description.disks {
            parts.disks.insert(disk.name.clone(), disks::open(&disk.name, granted, &disk.host)?);
        }
        for network in &description.networks {
            let interface = networks::planned(network, granted)?;
            parts.networks.insert(network.name.clone(), interface);
        }
        if let Some(console) = &description.console {
            parts.console = Some(console::device(&console.streams, granted)?);
        }
        Ok(parts)
    }

    /// Those of a machine that was planned before.
    pub(super) fn of_blueprint(
        blueprint: &Blueprint,
        granted: &mut Grant,
        hosts: &Hosts,
    ) -> Result<Self, DeviceSetupError> {
        let mut parts = Self::default();
        for function in &blueprint.pci.functions {
            match &function.device {
                DeviceBlueprint::Disk(disk) => {
                    let opened = disks::open(&disk.name, granted, &hosts.disk(&disk.name))?;
                    parts.disks.insert(disk.name.clone(), opened);
                }
                DeviceBlueprint::Network(network) => {
                    let host = hosts.network(&network.name);
                    let interface = networks::pinned(network, &host, granted)?;
                    parts.networks.insert(network.name.clone(), interface);
                }
                DeviceBlueprint::Console(plan) => {
                    parts.console = Some(console::device(&plan.streams, granted)?);
                }
                DeviceBlueprint::Entropy
                | DeviceBlueprint::Balloon(_)
                | DeviceBlueprint::Vsock(_) => {}
            }
        }
        Ok(parts)
    }

    /// What the plan says of the devices of `description`, in the order in which the guest finds them: what it calls
    /// its disks and interfaces follows from that.
    pub(super) fn blueprints(&self, description: &MachineDescription) -> Vec<DeviceBlueprint> {
        let disk = |disk: &DiskDescription| {
            DeviceBlueprint::Disk(disks::blueprint(disk, self.disks.get(&disk.name)))
        };
        let network = |network: &NetworkDescription| {
            let interface = self.networks.get(&network.name);
            DeviceBlueprint::Network(networks::blueprint(network, interface))
        };
        let console = description.console.as_ref();
        let console = console.map(|wanted| ConsoleBlueprint { streams: wanted.streams.clone() });
        let balloon = description.balloon.map(|wanted| BalloonBlueprint {
            deflate_on_oom: wanted.deflate_on_oom,
            reporting: wanted.reporting,
        });
        let vsock = description.vsock.map(|wanted| VsockBlueprint { guest_cid: wanted.guest_cid });
        let disks = description.disks.iter().map(disk);
        let networks = description.networks.iter().map(network);
        disks
            .chain(networks)
            .chain(console.map(DeviceBlueprint::Console))
            .chain(description.entropy.map(|_| DeviceBlueprint::Entropy))
            .chain(balloon.map(DeviceBlueprint::Balloon))
            .chain(vsock.map(DeviceBlueprint::Vsock))
            .collect()
    }

    /// The devices of the machine that was planned with these parts.
    pub(super) fn into_devices(
        mut self,
        blueprint: &Blueprint,
        hosts: &Hosts,
        owner: &Sender<Input>,
    ) -> Result<Devices, DeviceSetupError> {
        let mut devices = Devices::new();
        for function in &blueprint.pci.functions {
            let instance = function.device.instance();
            let missing = || DeviceSetupError::Missing(instance.clone());
            let device = match &function.device {
                DeviceBlueprint::Disk(plan) => {
                    let disk = self.disks.remove(&plan.name).ok_or_else(missing)?;
                    AnyDevice::Disk(disks::device(plan, disk, &hosts.disk(&plan.name), owner)?)
                }
                DeviceBlueprint::Network(plan) => {
                    let network = self.networks.remove(&plan.name).ok_or_else(missing)?;
                    AnyDevice::Network(network)
                }
                DeviceBlueprint::Console(_) => {
                    AnyDevice::Console(self.console.take().ok_or_else(missing)?)
                }
                DeviceBlueprint::Entropy => AnyDevice::Entropy(entropy::device(hosts.entropy)?),
                DeviceBlueprint::Balloon(plan) => AnyDevice::Balloon(balloon::device(plan)?),
                DeviceBlueprint::Vsock(plan) => AnyDevice::Vsock(vsock::device(plan, owner)?),
            };
            devices.insert(instance, device);
        }
        Ok(devices)
    }
}

/// A device of any type.
pub enum AnyDevice {
    /// A disk.
    Disk(Block),
    /// A network interface.
    Network(Net),
    /// Terminal and streams.
    Console(Console),
    /// Random numbers.
    Entropy(Rng),
    /// A balloon.
    Balloon(Balloon),
    /// A socket device.
    Vsock(Vsock),
}

impl AnyDevice {
    /// How many queues it has.
    pub(super) fn queues(&self) -> usize {
        match self {
            Self::Disk(device) => device.queue_sizes(),
            Self::Network(device) => device.queue_sizes(),
            Self::Console(device) => device.queue_sizes(),
            Self::Entropy(device) => device.queue_sizes(),
            Self::Balloon(device) => device.queue_sizes(),
            Self::Vsock(device) => device.queue_sizes(),
        }
        .len()
    }

    /// The function around it.
    pub(super) fn wire(self, wiring: Wiring) -> Result<AnyFunction, WiringError> {
        Ok(match self {
            Self::Disk(device) => AnyFunction::Disk(VirtioPci::new(device, wiring)?),
            Self::Network(device) => AnyFunction::Network(VirtioPci::new(device, wiring)?),
            Self::Console(device) => AnyFunction::Console(VirtioPci::new(device, wiring)?),
            Self::Entropy(device) => AnyFunction::Entropy(VirtioPci::new(device, wiring)?),
            Self::Balloon(device) => AnyFunction::Balloon(VirtioPci::new(device, wiring)?),
            Self::Vsock(device) => AnyFunction::Vsock(VirtioPci::new(device, wiring)?),
        })
    }
}

/// The PCI function around a device of any type.
pub(super) enum AnyFunction {
    Disk(Arc<VirtioPci<Block>>),
    Network(Arc<VirtioPci<Net>>),
    Console(Arc<VirtioPci<Console>>),
    Entropy(Arc<VirtioPci<Rng>>),
    Balloon(Arc<VirtioPci<Balloon>>),
    Vsock(Arc<VirtioPci<Vsock>>),
}

impl AnyFunction {
    /// What all of them have in common.
    pub(super) fn transport(&self) -> &dyn Transport {
        match self {
            Self::Disk(function) => &**function,
            Self::Network(function) => &**function,
            Self::Console(function) => &**function,
            Self::Entropy(function) => &**function,
            Self::Balloon(function) => &**function,
            Self::Vsock(function) => &**function,
        }
    }

    /// As the bus has it.
    pub(super) fn shared(&self) -> Arc<dyn corten_devices::pci::Function> {
        match self {
            Self::Disk(function) => Arc::clone(function) as _,
            Self::Network(function) => Arc::clone(function) as _,
            Self::Console(function) => Arc::clone(function) as _,
            Self::Entropy(function) => Arc::clone(function) as _,
            Self::Balloon(function) => Arc::clone(function) as _,
            Self::Vsock(function) => Arc::clone(function) as _,
        }
    }

    /// The device, without memory of its driver; none if somebody else still has the function.
    pub(super) fn into_device(self) -> Option<AnyDevice> {
        Some(match self {
            Self::Disk(function) => AnyDevice::Disk(VirtioPci::into_device(function)?),
            Self::Network(function) => AnyDevice::Network(VirtioPci::into_device(function)?),
            Self::Console(function) => AnyDevice::Console(VirtioPci::into_device(function)?),
            Self::Entropy(function) => AnyDevice::Entropy(VirtioPci::into_device(function)?),
            Self::Balloon(function) => AnyDevice::Balloon(VirtioPci::into_device(function)?),
            Self::Vsock(function) => AnyDevice::Vsock(VirtioPci::into_device(function)?),
        })
    }
}

/// The descriptor of this role, which is the device's from now on.
fn granted(
    role: Result<Role, RoleError>,
    name: &str,
    grant: &mut Grant,
) -> Result<OwnedFd, DeviceSetupError> {
    let role = role.map_err(|error| DeviceSetupError::Name(name.into(), error))?;
    grant.remove(&role).ok_or(DeviceSetupError::NotGranted(role))
}

fn limits(bytes: Option<Rate>, operations: Option<Rate>) -> RateLimits {
    RateLimits { bytes: limit(bytes), operations: limit(operations) }
}

/// No rate at all is no limit: zero would stop the device for good.
fn limit(rate: Option<Rate>) -> Option<RateLimit> {
    use std::num::NonZeroU64;
    let rate = rate?;
    let per_second = NonZeroU64::new(rate.per_second)?;
    Some(RateLimit { per_second, burst: NonZeroU64::new(rate.burst).unwrap_or(per_second) })
}
