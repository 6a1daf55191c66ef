//! The PCI bus of a machine and the functions on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use corten_devices::block::{Block, LockError};
use corten_devices::pci::{Doorbell, Ecam, Function, Ports, Root, RootError};
use corten_devices::virtio::{
    ActivateError, GuestRam, ReclaimError, Transport, VirtioPci, Wiring, WiringError,
};
use corten_devices::{BusError, Effect, Interrupt, RecordError, Records};
use corten_link::DiskCounters;
use thiserror::Error;
use vm_memory::GuestAddress;

use super::blueprint::{DeviceBlueprint, PciBlueprint};
use super::routes::FunctionRoutes;
use super::vcpus::Buses;
use super::workers::{Assigned, WorkerError, Workers};
use super::{Input, disks};
use crate::arch::x86_64::layout;
use crate::kvm::{KvmError, Vm};
use crate::ram::Ram;

/// What the functions of a machine are made of, by name. They outlive a reset of it.
pub type Devices = BTreeMap<String, Block>;

/// Why there are no functions, or why they cannot go on.
#[derive(Debug, Error)]
pub enum FunctionError {
    /// The blueprint has a device that was not lent.
    #[error("the machine has a disk {0:?}, which was not given")]
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

struct Disk {
    name: String,
    slot: u8,
    function: Arc<VirtioPci<Block>>,
}

impl Disk {
    /// Its name among records: the role of its descriptor.
    fn instance(&self) -> String {
        format!("disk/{}", self.name)
    }

    fn reclaim(&self, tasks: Vec<Assigned>) -> Result<(), FunctionError> {
        let tasks = tasks.into_iter().map(|assigned| assigned.task).collect();
        self.function.reclaim(tasks).map_err(|source| self.mixed_up(source))
    }

    fn mixed_up(&self, source: ReclaimError) -> FunctionError {
        FunctionError::Reclaim { name: self.name.clone(), source }
    }
}

/// The bus, its functions and the threads that serve them.
pub(super) struct Functions {
    root: Arc<Root>,
    disks: Vec<Disk>,
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
        let ram = GuestRam::from(Arc::clone(ram.memory()));
        let mut route = layout::LINES;
        let mut queues = 0;
        let mut disks = Vec::new();
        for planned in &blueprint.functions {
            let DeviceBlueprint::Disk(disk) = &planned.device;
            let name = disk.name.clone();
            let device =
                devices.remove(&name).ok_or_else(|| FunctionError::Missing(name.clone()))?;
            let interrupts: Vec<Interrupt> = (0..=disk.queues)
                .map(|_| Interrupt::new())
                .collect::<Result<_, _>>()
                .map_err(FunctionError::Interrupt)?;
            let routes = Arc::new(FunctionRoutes::new(vm, route, &interrupts, owner));
            route += u32::from(disk.queues) + 1;
            queues += usize::from(disk.queues);
            let wiring = Wiring {
                slot: planned.slot,
                bar: GuestAddress(planned.bar),
                ram: ram.clone(),
                interrupts,
                routes,
            };
            let function = VirtioPci::new(device, wiring)
                .map_err(|source| FunctionError::Wiring { name: name.clone(), source })?;
            root.insert(planned.slot, Arc::clone(&function) as Arc<dyn Function>)?;
            disks.push(Disk { name, slot: planned.slot, function });
        }
        // More threads than processors of the guest would serve it no faster.
        let workers = Workers::start(queues.min(most_workers))?;
        Ok(Self { root, disks, workers, doorbells: Vec::new() })
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
        for disk in &self.disks {
            let locked = disk.function.device(Block::lock);
            locked.map_err(|source| FunctionError::Lock { name: disk.name.clone(), source })?;
        }
        Ok(())
    }

    /// Sets every function to work that has a driver.
    pub(super) fn start(&mut self) -> Result<(), FunctionError> {
        for disk in &self.disks {
            match disk.function.pending() {
                Effect::Activate { .. } => activate(disk, &mut self.workers),
                Effect::Deactivate { .. } => {
                    disk.function.deactivated().map_err(|source| disk.mixed_up(source))?;
                }
                _ => {}
            }
            disk.function.resumed();
        }
        Ok(())
    }

    /// Takes all queues back, drained. If that fails in time, all functions work on.
    pub(super) fn stop(&self, limit: Duration) -> Result<(), FunctionError> {
        let mut back = self.workers.give_back(None, limit)?;
        for disk in &self.disks {
            let (own, others) = back.into_iter().partition(|task| task.slot == disk.slot);
            back = others;
            disk.reclaim(own)?;
        }
        Ok(())
    }

    /// The driver of the function in `slot` is ready.
    pub(super) fn activate(&mut self, slot: u8) {
        if let Some(disk) = self.disks.iter().find(|disk| disk.slot == slot) {
            activate(disk, &mut self.workers);
        }
    }

    /// The driver of the function in `slot` gave up its queues.
    pub(super) fn deactivate(&self, slot: u8, limit: Duration) -> Result<(), FunctionError> {
        let Some(disk) = self.disks.iter().find(|disk| disk.slot == slot) else { return Ok(()) };
        // It may have changed its mind meanwhile, or a pause may have come between.
        if !matches!(disk.function.pending(), Effect::Deactivate { .. }) {
            return Ok(());
        }
        disk.reclaim(self.workers.give_back(Some(slot), limit)?)?;
        disk.function.deactivated().map_err(|source| disk.mixed_up(source))
    }

    pub(super) fn save(&self, records: &mut Records) -> Result<(), RecordError> {
        self.root.save(records)?;
        self.disks.iter().try_for_each(|disk| disk.function.save(&disk.instance(), records))
    }

    pub(super) fn load(&self, records: &mut Records) -> Result<(), RecordError> {
        self.root.load(records)?;
        self.disks.iter().try_for_each(|disk| disk.function.load(&disk.instance(), records))
    }

    /// What each disk counted.
    pub(super) fn counters(&self) -> BTreeMap<String, DiskCounters> {
        let counted = |disk: &Disk| (disk.name.clone(), disk.function.device(disks::counters));
        self.disks.iter().map(counted).collect()
    }

    /// Gives up the functions and gives back what they were made of, without memory of their drivers. All are stopped,
    /// and nothing can reach them any more: the buses are gone.
    pub(super) fn into_devices(self) -> Result<Devices, FunctionError> {
        let Self { root, disks, .. } = self;
        let slots: Vec<u8> = disks.iter().map(|disk| disk.slot).collect();
        slots.into_iter().for_each(|slot| drop(root.remove(slot)));
        let device = |disk: Disk| match VirtioPci::into_device(disk.function) {
            Some(device) => Ok((disk.name, device)),
            None => Err(FunctionError::InUse(disk.name)),
        };
        disks.into_iter().map(device).collect()
    }
}

fn activate(disk: &Disk, workers: &mut Workers) {
    let slot = disk.slot;
    match disk.function.activate() {
        Ok(tasks) => {
            workers.take(tasks.into_iter().map(|task| Assigned { slot, task }).collect());
        }
        // The device asks its driver for a reset, which is all that can be done.
        Err(ActivateError::MissingQueue { .. } | ActivateError::InFlight { .. }) => {}
        Err(ActivateError::Backend(error)) => {
            eprintln!("corten-vmm: the disk {:?} cannot start: {error}", disk.name);
        }
    }
}
