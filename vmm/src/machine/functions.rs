//! The PCI bus of a machine and the functions on it.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use corten_devices::balloon::{Balloon, PAGE_SIZE};
use corten_devices::block::{Block, LockError};
use corten_devices::console::{self, Console};
use corten_devices::net::Net;
use corten_devices::pci::{Doorbell, Ecam, Ports, Root, RootError};
use corten_devices::rng::Rng;
use corten_devices::virtio::{
    ActivateError, ReclaimError, Transport, VirtioPci, Wiring, WiringError,
};
use corten_devices::vsock::{HostSide, Vsock};
use corten_devices::{BusError, Effect, Interrupt, RecordError, Records};
use corten_link::Counters;
use thiserror::Error;
use vm_memory::GuestAddress;

use super::Input;
use super::blueprint::PciBlueprint;
use super::devices::{
    AnyFunction, Devices, MemoryUse, balloon_counters, console_counters, disk_counters,
    entropy_counters, network_counters, vsock_counters,
};
use super::routes::FunctionRoutes;
use super::vcpus::Buses;
use super::workers::{Assigned, WorkerError, Workers};
use crate::arch::x86_64::layout;
use crate::kvm::{KvmError, Vm};
use crate::ram::Ram;
use crate::say::say;

/// Why there are no functions, or why they cannot go on.
#[derive(Debug, Error)]
pub enum FunctionError {
    /// The blueprint has a device that was not lent.
    #[error("the machine has a device {0:?}, which was not given")]
    Missing(String),
    /// It cannot be a PCI function.
    #[error("the device {name:?} cannot be made")]
    Wiring {
        /// Which one.
        name: String,
        /// Why.
        #[source]
        source: WiringError,
    },
    /// Its place on the bus.
    #[error(transparent)]
    Root(#[from] RootError),
    /// Its BAR.
    #[error("cannot put a device on the bus")]
    Bus(#[from] BusError),
    /// No more eventfds.
    #[error("cannot make an interrupt")]
    Interrupt(#[source] std::io::Error),
    /// KVM refused a doorbell.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// I/O threads.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// Tasks were mixed up.
    #[error("the device {name:?} lost its queues")]
    Reclaim {
        /// Which one.
        name: String,
        /// How.
        #[source]
        source: ReclaimError,
    },
    /// Somebody else writes to the disk.
    #[error("the disk {name:?} cannot be taken")]
    Lock {
        /// Which one.
        name: String,
        /// Why.
        #[source]
        source: LockError,
    },
    /// Something still holds a device that its machine gave up.
    #[error("the device {0:?} is still in use")]
    InUse(String),
}

struct Member {
    /// Its name among records: that of its descriptors' role, or of the only one of its kind.
    instance: String,
    slot: u8,
    function: AnyFunction,
}

impl Member {
    fn transport(&self) -> &dyn Transport {
        self.function.transport()
    }

    fn reclaim(&self, tasks: Vec<Assigned>) -> Result<(), FunctionError> {
        let tasks = tasks.into_iter().map(|assigned| assigned.task).collect();
        self.transport().reclaim(tasks).map_err(|source| self.mixed_up(source))
    }

    /// Its own name, without what it is.
    fn name(&self) -> &str {
        self.instance.split_once('/').map_or(&*self.instance, |(_, name)| name)
    }

    fn mixed_up(&self, source: ReclaimError) -> FunctionError {
        FunctionError::Reclaim { name: self.instance.clone(), source }
    }
}

/// The bus, its functions and the threads that serve them.
pub(super) struct Functions {
    root: Arc<Root>,
    members: Vec<Member>,
    workers: Workers,
    /// Those bound in KVM.
    doorbells: Vec<Doorbell>,
}

impl Functions {
    /// The functions of `blueprint`, made of `devices`, each in its slot. None works yet.
    pub(super) fn new(
        blueprint: &PciBlueprint,
        most_workers: usize,
        (vm, ram): (&Arc<Vm>, &Ram),
        mut devices: Devices,
        owner: &Sender<Input>,
    ) -> Result<Self, FunctionError> {
        let root = Root::new(blueprint.windows.clone());
        let ram = ram.for_devices();
        let mut route = layout::LINES;
        let mut queues = 0;
        let mut members = Vec::new();
        for planned in &blueprint.functions {
            let instance = planned.device.instance();
            let missing = || FunctionError::Missing(instance.clone());
            let device = devices.remove(&instance).ok_or_else(missing)?;
            // One for each queue, and one for the configuration.
            let interrupts: Vec<Interrupt> = (0..=device.queues())
                .map(|_| Interrupt::new())
                .collect::<Result<_, _>>()
                .map_err(FunctionError::Interrupt)?;
            let routes = Arc::new(FunctionRoutes::new(vm, route, &interrupts, owner));
            route += u32::try_from(interrupts.len()).unwrap_or(u32::MAX);
            queues += device.queues();
            let wiring = Wiring {
                slot: planned.slot,
                bar: GuestAddress(planned.bar),
                ram: ram.clone(),
                interrupts,
                routes,
            };
            let function = device
                .wire(wiring)
                .map_err(|source| FunctionError::Wiring { name: instance.clone(), source })?;
            root.insert(planned.slot, function.shared())?;
            members.push(Member { instance, slot: planned.slot, function });
        }
        // More threads than processors of the guest would serve it no faster.
        let workers = Workers::start(queues.min(most_workers))?;
        Ok(Self { root, members, workers, doorbells: Vec::new() })
    }

    /// Puts the ways to the configuration space on the bus.
    pub(super) fn attach(&self, buses: &mut Buses) -> Result<(), BusError> {
        let (ecam, ports) = (Ecam(Arc::clone(&self.root)), Ports(Arc::clone(&self.root)));
        buses.memory.insert(layout::PCI_CONFIGURATION, Arc::new(ecam))?;
        buses.ports.insert(layout::PCI_PORTS, Arc::new(ports))
    }

    /// `fixed` with every BAR at its place of now, and doorbells with them. No vCPU runs.
    pub(super) fn place_bars(&mut self, fixed: &Buses, vm: &Vm) -> Result<Buses, FunctionError> {
        let mut buses = fixed.clone();
        let mut doorbells = Vec::new();
        for bar in self.root.bars() {
            buses.memory.insert(bar.range, bar.registers)?;
            doorbells.extend(bar.doorbells);
        }
        let same = |one: &Doorbell, other: &Doorbell| {
            one.address == other.address && Arc::ptr_eq(&one.eventfd, &other.eventfd)
        };
        let among = |one: &Doorbell, list: &[Doorbell]| list.iter().any(|other| same(one, other));
        // Released first: two may have changed places.
        for gone in self.doorbells.iter().filter(|old| !among(old, &doorbells)) {
            vm.unbind(gone)?;
        }
        for new in doorbells.iter().filter(|new| !among(new, &self.doorbells)) {
            vm.bind(new)?;
        }
        self.doorbells = doorbells;
        Ok(buses)
    }

    /// Takes every writable disk for this machine.
    pub(super) fn lock(&self) -> Result<(), FunctionError> {
        for (name, disk) in self.disks() {
            let locked = disk.device(Block::lock);
            locked.map_err(|source| FunctionError::Lock { name: name.into(), source })?;
        }
        Ok(())
    }

    /// Sets every function to work that has a driver.
    pub(super) fn start(&mut self) -> Result<(), FunctionError> {
        for member in &self.members {
            match member.transport().pending() {
                Effect::Activate { .. } => activate(member, &mut self.workers),
                Effect::Deactivate { .. } => {
                    member.transport().deactivated().map_err(|source| member.mixed_up(source))?;
                }
                _ => {}
            }
            member.transport().resumed();
        }
        Ok(())
    }

    /// Has every interface tell the network where it is now. After [`Self::start`].
    pub(super) fn announce(&self) {
        for (_, network) in self.networks() {
            // A driver that cannot is no failure: its next packet tells as much.
            if network.device(Net::can_announce) {
                network.change_config(Net::announce);
            }
        }
    }

    /// Takes all queues back, drained. If that fails in time, all functions work on.
    pub(super) fn stop(&self, limit: Duration) -> Result<(), FunctionError> {
        let mut back = self.workers.give_back(None, limit)?;
        for member in &self.members {
            let (own, others) = back.into_iter().partition(|task| task.slot == member.slot);
            back = others;
            member.reclaim(own)?;
        }
        Ok(())
    }

    /// The driver of the function in `slot` is ready.
    pub(super) fn activate(&mut self, slot: u8) {
        if let Some(member) = self.members.iter().find(|member| member.slot == slot) {
            activate(member, &mut self.workers);
        }
    }

    /// The driver of the function in `slot` gave up its queues.
    pub(super) fn deactivate(&self, slot: u8, limit: Duration) -> Result<(), FunctionError> {
        let Some(member) = self.members.iter().find(|member| member.slot == slot) else {
            return Ok(());
        };
        // It may have changed its mind meanwhile, or a pause may have come between.
        if !matches!(member.transport().pending(), Effect::Deactivate { .. }) {
            return Ok(());
        }
        member.reclaim(self.workers.give_back(Some(slot), limit)?)?;
        member.transport().deactivated().map_err(|source| member.mixed_up(source))
    }

    pub(super) fn save(&self, records: &mut Records) -> Result<(), RecordError> {
        self.root.save(records)?;
        self.members
            .iter()
            .try_for_each(|member| member.transport().save(&member.instance, records))
    }

    pub(super) fn load(&self, records: &mut Records) -> Result<(), RecordError> {
        self.root.load(records)?;
        self.members
            .iter()
            .try_for_each(|member| member.transport().load(&member.instance, records))
    }

    /// Adds what each device counted.
    pub(super) fn count(&self, counters: &mut Counters) {
        let disks = self.disks();
        counters.disks =
            disks.map(|(name, disk)| (name.into(), disk.device(disk_counters))).collect();
        let networks = self.networks();
        counters.networks = networks
            .map(|(name, network)| (name.into(), network.device(network_counters)))
            .collect();
        counters.console =
            self.console().map(|console| console.device(console_counters)).unwrap_or_default();
        counters.entropy =
            self.entropy().map(|entropy| entropy.device(entropy_counters)).unwrap_or_default();
        counters.balloon =
            self.balloon().map(|balloon| balloon.device(balloon_counters)).unwrap_or_default();
        counters.vsock = self.vsock().map(|vsock| vsock.device(vsock_counters)).unwrap_or_default();
    }

    /// Has the guest give up this much memory. False if there is no balloon.
    pub(super) fn set_balloon(&self, bytes: u64) -> bool {
        let pages = u32::try_from(bytes / PAGE_SIZE).unwrap_or(u32::MAX);
        let set = |balloon: &mut Balloon| balloon.set_target_pages(pages);
        self.balloon().map(|balloon| balloon.change_config(set)).is_some()
    }

    /// Asks the guest for statistics at this interval. False if there is no balloon.
    pub(super) fn poll_memory(&self, interval: Option<Duration>) -> bool {
        let set = |balloon: &Balloon| balloon.set_statistics_interval(interval);
        self.balloon().map(|balloon| balloon.device(set)).is_some()
    }

    /// What the balloon knows; nothing without one.
    pub(super) fn memory_use(&self) -> MemoryUse {
        self.balloon().map(|balloon| balloon.device(MemoryUse::of)).unwrap_or_default()
    }

    /// Where sockets for ports of the console device are handed in, if there is one.
    pub(super) fn ports(&self) -> Option<console::HostSide> {
        self.console().map(|console| console.device(Console::host_side))
    }

    /// Where connections are handed in, if there is a socket device.
    pub(super) fn sockets(&self) -> Option<HostSide> {
        self.vsock().map(|vsock| vsock.device(Vsock::host_side))
    }

    fn disks(&self) -> impl Iterator<Item = (&str, &Arc<VirtioPci<Block>>)> {
        self.members.iter().filter_map(|member| match &member.function {
            AnyFunction::Disk(disk) => Some((member.name(), disk)),
            _ => None,
        })
    }

    fn networks(&self) -> impl Iterator<Item = (&str, &Arc<VirtioPci<Net>>)> {
        self.members.iter().filter_map(|member| match &member.function {
            AnyFunction::Network(network) => Some((member.name(), network)),
            _ => None,
        })
    }

    fn console(&self) -> Option<&Arc<VirtioPci<Console>>> {
        self.members.iter().find_map(|member| match &member.function {
            AnyFunction::Console(console) => Some(console),
            _ => None,
        })
    }

    fn entropy(&self) -> Option<&Arc<VirtioPci<Rng>>> {
        self.members.iter().find_map(|member| match &member.function {
            AnyFunction::Entropy(entropy) => Some(entropy),
            _ => None,
        })
    }

    fn balloon(&self) -> Option<&Arc<VirtioPci<Balloon>>> {
        self.members.iter().find_map(|member| match &member.function {
            AnyFunction::Balloon(balloon) => Some(balloon),
            _ => None,
        })
    }

    fn vsock(&self) -> Option<&Arc<VirtioPci<Vsock>>> {
        self.members.iter().find_map(|member| match &member.function {
            AnyFunction::Vsock(vsock) => Some(vsock),
            _ => None,
        })
    }

    /// Gives up the functions and gives back what they were made of, without memory of their drivers. All are stopped,
    /// and nothing can reach them any more: the buses are gone.
    pub(super) fn into_devices(self) -> Result<Devices, FunctionError> {
        let Self { root, members, .. } = self;
        members.iter().for_each(|member| drop(root.remove(member.slot)));
        let device = |Member { instance, function, .. }| match function.into_device() {
            Some(device) => Ok((instance, device)),
            None => Err(FunctionError::InUse(instance)),
        };
        members.into_iter().map(device).collect()
    }
}

fn activate(member: &Member, workers: &mut Workers) {
    let slot = member.slot;
    match member.transport().activate() {
        Ok(tasks) => {
            workers.take(tasks.into_iter().map(|task| Assigned { slot, task }).collect());
        }
        // The device asks its driver for a reset, which is all that can be done.
        Err(ActivateError::MissingQueue { .. } | ActivateError::InFlight { .. }) => {}
        Err(ActivateError::Backend(error)) => {
            say(format_args!("{} cannot start: {error}", member.instance));
        }
    }
}
