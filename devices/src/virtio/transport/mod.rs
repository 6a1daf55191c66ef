//! A virtio device as a PCI function.

mod common;
mod layout;
mod owner;
mod state;

use std::any::Any;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;
use vm_memory::GuestAddress;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use self::common::{Common, Phase, Request};
pub use self::layout::{BAR, BAR_SIZE, MAX_QUEUES};
use self::layout::{NOTIFY, NOTIFY_STEP, Part, Places, part_at, queue_of_doorbell};
pub use self::owner::{ReclaimError, Transport};
pub use self::state::{QueueState, TransportState, WindowState};
use super::signals::Signals;
use super::{ActivateError, Activation, Device, Faults, GuestRam, QueueTask, VirtQueue};
use crate::pci::{
    Configuration, ConfigurationError, Doorbell, Function, MappedBar, Msix, MsixState,
    VectorRoutes, lock,
};
use crate::{Effect, Interrupt, RecordError, RecordName, Records, Registers, State, read_nothing};

/// What a function is connected to.
pub struct Wiring {
    /// Device number on bus 0.
    pub slot: u8,
    /// Where its BAR is at the start: [`BAR_SIZE`] bytes, aligned to that.
    pub bar: GuestAddress,
    /// The guest's memory.
    pub ram: GuestRam,
    /// One for each vector: as many as the device has queues, and one more.
    pub interrupts: Vec<Interrupt>,
    /// Connects the interrupts.
    pub routes: Arc<dyn VectorRoutes>,
}

/// Why there can be no such function.
#[derive(Debug, Error)]
pub enum WiringError {
    /// A queue's size is no power of two, or there are too many.
    #[error("no device has queues of sizes {0:?}")]
    Queues(Vec<u16>),
    /// Not one interrupt for each queue and one more.
    #[error("{found} interrupts for {queues} queues and the configuration")]
    Interrupts {
        /// How many there are.
        found: usize,
        /// How many queues the device has.
        queues: usize,
    },
    /// The BAR cannot be there.
    #[error("the configuration space cannot be laid out")]
    Configuration(#[source] ConfigurationError),
    /// No more descriptors.
    #[error("cannot make a doorbell")]
    Doorbell(#[source] io::Error),
}

/// The PCI function around a device.
pub struct VirtioPci<D: Device> {
    slot: u8,
    ram: GuestRam,
    signals: Arc<Signals>,
    doorbells: Vec<Arc<EventFd>>,
    places: Places,
    inner: Mutex<Inner<D>>,
}

/// What a vCPU that reaches the function has for itself.
struct Inner<D> {
    device: D,
    configuration: Configuration,
    common: Common,
    /// The queues that are in tasks.
    out: Vec<u16>,
}

impl<D: Device> VirtioPci<D> {
    /// The function around `device`: with its BAR assigned, but not decoded, and no driver.
    pub fn new(device: D, wiring: Wiring) -> Result<Arc<Self>, WiringError> {
        let Wiring { slot, bar, ram, interrupts, routes } = wiring;
        let sizes = device.queue_sizes();
        let size_can_be = |size: &u16| size.is_power_of_two();
        if sizes.len() > MAX_QUEUES || !sizes.iter().all(size_can_be) {
            return Err(WiringError::Queues(sizes));
        }
        if interrupts.len() != sizes.len() + 1 {
            let (found, queues) = (interrupts.len(), sizes.len());
            return Err(WiringError::Interrupts { found, queues });
        }
        let msix = Msix::new(interrupts, routes);
        let (configuration, places) = layout::configuration(device.device_type(), &msix, bar)
            .map_err(WiringError::Configuration)?;
        let doorbell = |_| EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK).map(Arc::new);
        let doorbells: io::Result<_> = sizes.iter().map(doorbell).collect();
        let common = Common::new(device.features(), &sizes);
        Ok(Arc::new(Self {
            slot,
            ram,
            signals: Signals::new(msix, sizes.len()),
            doorbells: doorbells.map_err(WiringError::Doorbell)?,
            places,
            inner: Mutex::new(Inner { device, configuration, common, out: Vec::new() }),
        }))
    }

    /// Takes the function apart: the device, without memory of its driver. None if somebody else still has the function,
    /// or if tasks are out.
    pub fn into_device(this: Arc<Self>) -> Option<D> {
        let inner = Arc::into_inner(this)?.inner.into_inner();
        let Inner { mut device, common, .. } = inner.unwrap_or_else(PoisonError::into_inner);
        if matches!(common.phase, Phase::Working | Phase::Leaving { out: true }) {
            return None;
        }
        device.reset();
        Some(device)
    }

    /// Looks at the device. Called by the machine's owner.
    pub fn device<R>(&self, look: impl FnOnce(&D) -> R) -> R {
        look(&lock(&self.inner).device)
    }

    /// Changes the device in a way that its configuration shows, and tells the driver. Called by the machine's owner.
    pub fn change_config<R>(&self, change: impl FnOnce(&mut D) -> R) -> R {
        let mut inner = lock(&self.inner);
        let result = change(&mut inner.device);
        inner.common.generation = inner.common.generation.wrapping_add(1);
        if inner.common.driver_ready() {
            self.signals.raise_config();
        }
        result
    }

    fn read_bar(&self, inner: &Inner<D>, offset: u64, data: &mut [u8]) {
        match part_at(offset, data.len()) {
            Some((Part::Common, offset)) => inner.common.read(&self.signals, offset, data),
            Some((Part::Isr, 0)) => {
                data.fill(0);
                if let Some(first) = data.first_mut() {
                    *first = self.signals.take_isr();
                }
            }
            Some((Part::Device, offset)) => inner.device.read_config(offset, data),
            Some((Part::Notify, _)) => data.fill(0),
            Some((Part::MsixTable, offset)) => self.signals.msix.read_table(offset, data),
            Some((Part::MsixPending, offset)) => self.signals.msix.read_pending(offset, data),
            Some((Part::Isr, _)) | None => read_nothing(data),
        }
    }

    fn write_bar(&self, inner: &mut Inner<D>, offset: u64, data: &[u8]) -> Effect {
        match part_at(offset, data.len()) {
            Some((Part::Common, offset)) => {
                match inner.common.write(&self.signals, &self.ram, offset, data) {
                    Request::Nothing => {}
                    Request::Activate => return Effect::Activate { slot: self.slot },
                    Request::Deactivate => return Effect::Deactivate { slot: self.slot },
                    Request::Reset => self.reset(inner),
                }
            }
            Some((Part::Device, offset)) => inner.device.write_config(offset, data),
            Some((Part::Notify, offset)) => self.ring(offset),
            Some((Part::MsixTable, offset)) => self.signals.msix.write_table(offset, data),
            Some((Part::Isr | Part::MsixPending, _)) | None => {}
        }
        Effect::None
    }

    /// What the doorbell's eventfd does by itself where the machine bound it to the address.
    fn ring(&self, offset: u64) {
        match queue_of_doorbell(offset).and_then(|queue| self.doorbells.get(queue)) {
            // The only failure is a count of 2^64 - 1, at which it rings already.
            Some(doorbell) => drop(doorbell.write(1)),
            None => self.signals.count_register(),
        }
    }

    /// No task is out.
    fn reset(&self, inner: &mut Inner<D>) {
        inner.common.reset();
        inner.device.reset();
        self.signals.reset();
        for doorbell in &self.doorbells {
            // It fails if nobody rang.
            let _ = doorbell.read();
        }
    }

    /// Offset and length of the BAR access that the window in configuration space stands for.
    fn window(&self, configuration: &Configuration) -> Option<(u64, usize)> {
        let [bar, _] = configuration.u16_at(self.places.window_bar).to_le_bytes();
        let offset = u64::from(configuration.u32_at(self.places.window_offset));
        let length = configuration.u32_at(self.places.window_length);
        let can_be =
            bar == BAR && matches!(length, 1 | 2 | 4) && offset.is_multiple_of(length.into());
        can_be.then_some((offset, usize::try_from(length).ok()?))
    }

    fn queues(&self, common: &Common) -> Option<Vec<VirtQueue>> {
        let enabled = (0..).zip(&common.queues).filter(|(_, queue)| queue.enabled);
        let queues = enabled.map(|(index, queue)| {
            let ring = queue.ring(&self.ram, common.driver_features)?;
            let doorbell = Arc::clone(self.doorbells.get(usize::from(index))?);
            let signals = Arc::clone(&self.signals);
            Some(VirtQueue::new(index, ring, self.ram.clone(), signals, doorbell))
        });
        queues.collect()
    }

    fn state(&self, inner: &Inner<D>) -> TransportState {
        let Inner { device, configuration, common, .. } = inner;
        TransportState {
            device_type: device.device_type(),
            configuration: configuration.save(),
            window: WindowState {
                bar: configuration.u16_at(self.places.window_bar).to_le_bytes()[0],
                offset: configuration.u32_at(self.places.window_offset),
                length: configuration.u32_at(self.places.window_length),
            },
            offered_features: common.offered,
            driver_features: common.driver_features,
            device_feature_select: common.device_feature_select,
            driver_feature_select: common.driver_feature_select,
            status: common.status,
            needs_reset: self.signals.needs_reset(),
            leaving: matches!(common.phase, Phase::Leaving { .. }),
            isr: self.signals.isr(),
            generation: common.generation,
            config_vector: self.signals.config_vector(),
            queue_select: common.queue_select,
            queues: state::save_queues(common, &self.signals),
        }
    }

    /// The configuration space that a state is of.
    fn load_configuration(
        &self,
        configuration: &Configuration,
        state: &TransportState,
        msix: &MsixState,
    ) -> Result<Configuration, ConfigurationError> {
        let mut loaded = configuration.clone();
        loaded.load(&state.configuration)?;
        loaded.restore(self.places.window_bar, &[state.window.bar])?;
        loaded.restore(self.places.window_offset, &state.window.offset.to_le_bytes())?;
        loaded.restore(self.places.window_length, &state.window.length.to_le_bytes())?;
        let control = self.signals.msix.control_of(msix);
        loaded.restore(self.places.msix_control, &control.to_le_bytes())?;
        Ok(loaded)
    }
}

impl<D: Device> Registers for VirtioPci<D> {
    fn read(&self, offset: u64, data: &mut [u8]) {
        self.read_bar(&lock(&self.inner), offset, data);
    }

    fn write(&self, offset: u64, data: &[u8]) -> Effect {
        self.write_bar(&mut lock(&self.inner), offset, data)
    }
}

impl<D: Device> Function for VirtioPci<D> {
    fn read_configuration(&self, register: usize, data: &mut [u8]) {
        let inner = lock(&self.inner);
        inner.configuration.read(register, data);
        let Some(skip) = register.checked_sub(self.places.window_data).filter(|skip| *skip < 4)
        else {
            return;
        };
        let mut seen = [0xff; 4];
        if let Some((offset, length)) = self.window(&inner.configuration) {
            self.read_bar(&inner, offset, &mut seen[..length]);
        }
        for (byte, seen) in data.iter_mut().zip(&seen[skip..]) {
            *byte = *seen;
        }
    }

    fn write_configuration(&self, register: usize, data: &[u8]) -> Effect {
        let mut inner = lock(&self.inner);
        if register == self.places.window_data {
            return match self.window(&inner.configuration) {
                Some((offset, length)) if length <= data.len() => {
                    self.write_bar(&mut inner, offset, &data[..length])
                }
                _ => Effect::None,
            };
        }
        let moved = inner.configuration.write(register, data);
        self.signals.msix.set_control(inner.configuration.u16_at(self.places.msix_control));
        if moved { Effect::MoveBars { slot: self.slot } } else { Effect::None }
    }

    fn bars(self: Arc<Self>) -> Vec<MappedBar> {
        let decoded = lock(&self.inner).configuration.decoded();
        let map = |(bar, range): (u8, crate::Range)| {
            let first = range.base.saturating_add(u64::from(NOTIFY));
            let doorbell = |(queue, eventfd): (u16, &Arc<EventFd>)| Doorbell {
                address: GuestAddress(
                    first.saturating_add(u64::from(queue) * u64::from(NOTIFY_STEP)),
                ),
                queue,
                eventfd: Arc::clone(eventfd),
            };
            let doorbells = (0..).zip(&self.doorbells).map(doorbell).collect();
            let registers = Arc::clone(&self) as Arc<dyn Registers>;
            MappedBar { slot: self.slot, bar, range, registers, doorbells }
        };
        decoded.into_iter().map(map).collect()
    }
}

impl<D: Device> Transport for VirtioPci<D> {
    fn pending(&self) -> Effect {
        match lock(&self.inner).common.phase {
            Phase::Waiting => Effect::Activate { slot: self.slot },
            Phase::Leaving { .. } => Effect::Deactivate { slot: self.slot },
            Phase::Setup | Phase::Working => Effect::None,
        }
    }

    fn activate(&self) -> Result<Vec<Box<dyn QueueTask>>, ActivateError> {
        let mut inner = lock(&self.inner);
        if inner.common.phase != Phase::Waiting {
            return Ok(Vec::new());
        }
        inner.common.phase = Phase::Working;
        if self.signals.needs_reset() {
            return Ok(Vec::new());
        }
        let Some(queues) = self.queues(&inner.common) else {
            // Each was checked when it was enabled.
            self.signals.break_ring();
            return Ok(Vec::new());
        };
        let out = queues.iter().map(VirtQueue::index).collect();
        let features = inner.common.driver_features;
        let tasks = inner
            .device
            .activate(Activation { queues, features })
            .inspect_err(|_| self.signals.request_reset())?;
        inner.out = out;
        Ok(tasks.into_iter().map(|task| Box::new(task) as Box<dyn QueueTask>).collect())
    }

    fn reclaim(&self, tasks: Vec<Box<dyn QueueTask>>) -> Result<(), ReclaimError> {
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        let phase = match inner.common.phase {
            Phase::Working => Phase::Waiting,
            Phase::Leaving { out: true } => Phase::Leaving { out: false },
            _ if tasks.is_empty() => return Ok(()),
            _ => return Err(ReclaimError::NotOut),
        };
        let own = |task: Box<dyn QueueTask>| {
            let task: Box<dyn Any> = task;
            task.downcast::<D::Task>().map(|task| *task).map_err(|_| ReclaimError::Foreign)
        };
        let tasks = tasks.into_iter().map(own).collect::<Result<Vec<_>, _>>()?;
        let mut queues = inner.device.reclaim(tasks);
        queues.sort_by_key(VirtQueue::index);
        let back: Vec<u16> = queues.iter().map(VirtQueue::index).collect();
        if back != inner.out {
            return Err(ReclaimError::Queues { given: inner.out.clone(), back });
        }
        for queue in &queues {
            if let Some(setup) = inner.common.queues.get_mut(usize::from(queue.index())) {
                (setup.next_available, setup.next_used) = queue.position();
            }
        }
        inner.out.clear();
        inner.common.phase = phase;
        Ok(())
    }

    fn deactivated(&self) -> Result<(), ReclaimError> {
        let mut inner = lock(&self.inner);
        match inner.common.phase {
            Phase::Leaving { out: true } => Err(ReclaimError::StillOut),
            Phase::Leaving { out: false } => {
                self.reset(&mut inner);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn resumed(&self) {
        let inner = lock(&self.inner);
        let told = inner.common.generation != 0 || self.signals.needs_reset();
        if inner.common.driver_ready() && told {
            self.signals.raise_config();
        }
    }

    fn save(&self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        let inner = lock(&self.inner);
        if matches!(inner.common.phase, Phase::Working | Phase::Leaving { out: true }) {
            return Err(impossible::<TransportState>(instance, "its queues are at work"));
        }
        records.put(instance, &self.state(&inner))?;
        records.put(instance, &self.signals.msix.save())?;
        inner.device.save(instance, records)
    }

    fn load(&self, instance: &str, records: &mut Records) -> Result<(), RecordError> {
        let wrong = |reason: &str| impossible::<TransportState>(instance, reason);
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        if inner.common.phase != Phase::Setup {
            return Err(wrong("this device has a driver already"));
        }
        let state: TransportState = records.take(instance)?;
        let msix: MsixState = records.take(instance)?;
        let check_msix = |result: Result<(), String>| {
            result.map_err(|reason| impossible::<MsixState>(instance, &reason))
        };
        // Everything is checked before anything changes.
        if state.device_type != inner.device.device_type() {
            return Err(wrong("it is of another device type"));
        }
        check_msix(self.signals.msix.check(&msix))?;
        let configuration = self
            .load_configuration(&inner.configuration, &state, &msix)
            .map_err(|error| wrong(&error.to_string()))?;
        let mut fresh = inner.common.clone();
        fresh.reset();
        let common = state::load_common(&state, &fresh, &self.signals, &self.ram)
            .map_err(|reason| wrong(&reason))?;
        inner.device.load(instance, records)?;
        inner.configuration = configuration;
        inner.common = common;
        self.signals.set_config_vector(state.config_vector);
        for (index, queue) in (0..).zip(&state.queues) {
            self.signals.set_queue_vector(index, queue.vector);
        }
        self.signals.load(state.isr, state.needs_reset);
        check_msix(self.signals.msix.load(&msix))
    }

    fn faults(&self) -> Faults {
        self.signals.faults()
    }
}

fn impossible<S: State>(instance: &str, reason: &str) -> RecordError {
    let name = RecordName { kind: S::KIND.into(), instance: instance.into() };
    RecordError::Impossible { name, reason: reason.into() }
}

#[cfg(test)]
mod tests;
