//! The small devices that every machine has.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use corten_devices::legacy::{
    Acpi, GenerationId, GenerationIdError, I8042, Pvpanic, Rtc, Serial, system_clock,
};
use corten_devices::{BusError, Interrupt, RecordError, Records, Registers};
use vm_memory::Bytes;

use super::vcpus::Buses;
use crate::arch::x86_64::layout;
use crate::kvm::{KvmError, Vm};
use crate::ram::Ram;

/// Serial port, clock, power and panic.
pub struct Platform {
    /// COM1.
    pub serial: Arc<Serial>,
    /// Power button, events, hotplug.
    pub acpi: Arc<Acpi>,
    /// Changes whenever the guest may have been copied.
    pub generation_id: GenerationId,
    rtc: Arc<Rtc>,
    i8042: Arc<I8042>,
    pvpanic: Arc<Pvpanic>,
}

impl Platform {
    /// The devices, connected with the interrupt controllers of `vm`.
    pub(super) fn new(
        vm: &Vm,
        ram: &Ram,
        console: Box<dyn Write + Send>,
    ) -> Result<Self, PlatformError> {
        let line = |number: u32| -> Result<Interrupt, PlatformError> {
            let interrupt = Interrupt::new().map_err(PlatformError::Interrupt)?;
            vm.connect(&interrupt, number)?;
            Ok(interrupt)
        };
        let serial =
            Serial::new(line(layout::COM1_LINE)?, console).map_err(PlatformError::Interrupt)?;
        let memory = Arc::clone(ram.memory());
        let write = Box::new(move |address, bytes: &[u8]| memory.write_slice(bytes, address));
        Ok(Self {
            serial: Arc::new(serial),
            acpi: Arc::new(Acpi::new(line(layout::ACPI_LINE)?)),
            generation_id: GenerationId::new(layout::GENERATION_ID, write),
            rtc: Arc::new(Rtc::new(Box::new(system_clock), line(layout::RTC_LINE)?)),
            i8042: Arc::new(I8042),
            pvpanic: Arc::new(Pvpanic),
        })
    }

    /// Does what has become due by the clock, and says after how long to call again; not at all if nothing is due ever,
    /// until [`Effect::Rearm`](corten_devices::Effect::Rearm) says otherwise. For the owner, while the guest runs.
    pub fn tick(&self) -> Option<Duration> {
        self.rtc.tick()
    }

    /// Tells the guest that it is not the one it may have been copied from. No vCPU runs.
    pub(super) fn renew_generation_id(&self) -> Result<(), PlatformError> {
        let mut id = [0; 16];
        crate::entropy::fill(&mut id).map_err(PlatformError::Random)?;
        Ok(self.generation_id.renew(id)?)
    }

    /// Puts them on the bus.
    pub(super) fn attach(&self, buses: &mut Buses) -> Result<(), BusError> {
        let devices: [(_, Arc<dyn Registers>); 5] = [
            (layout::COM1, self.serial.clone()),
            (layout::RTC, self.rtc.clone()),
            (layout::I8042, self.i8042.clone()),
            (layout::PVPANIC, self.pvpanic.clone()),
            (layout::ACPI, self.acpi.clone()),
        ];
        devices.into_iter().try_for_each(|(range, device)| buses.ports.insert(range, device))
    }

    pub(super) fn save(&self, records: &mut Records) -> Result<(), RecordError> {
        records.put("", &self.serial.save())?;
        records.put("", &self.rtc.save())?;
        records.put("", &self.i8042.save())?;
        records.put("", &self.pvpanic.save())?;
        records.put("", &self.acpi.save())?;
        records.put("", &self.generation_id.save())
    }

    pub(super) fn load(&self, records: &mut Records) -> Result<(), RecordError> {
        self.serial.load(records.take("")?)?;
        self.rtc.load(records.take("")?)?;
        self.i8042.load(records.take("")?)?;
        self.pvpanic.load(records.take("")?)?;
        self.acpi.load(records.take("")?)?;
        self.generation_id.load(records.take("")?)
    }
}

/// Why there are no devices.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// No eventfd.
    #[error("cannot make an interrupt")]
    Interrupt(#[source] io::Error),
    /// No random number.
    #[error("the host gives no random number")]
    Random(#[source] io::Error),
    /// No place for the generation id.
    #[error(transparent)]
    GenerationId(#[from] GenerationIdError),
    /// KVM refused to listen.
    #[error("cannot connect an interrupt")]
    Connect(#[from] KvmError),
}
