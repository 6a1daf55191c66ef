//! ACPI's registers of a hardware-reduced machine: sleep, reset, events and PCI hotplug.
//!
//! Sleep and reset registers are the FADT's (ACPI 6.5, 4.8.3.7 and 4.8.3.6). The rest is our own, read by the DSDT's
//! methods: the interrupt makes the guest read [`offsets::EVENTS`], which clears them, and for a hotplug event the two
//! slot registers. An event that comes after the read raises the interrupt again, so that none is lost; the line is
//! edge triggered.
//!
//! A register is reached by one access of its own width at its own offset. Any other access (part of a register,
//! several at once, in between) reads all ones, clears nothing and writes nothing: half an event can be neither seen
//! nor lost.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::impossible;
use crate::{Effect, Interrupt, RecordError, Registers, State, read_nothing};

/// Where the registers are, from the first port on.
pub mod offsets {
    /// Sleep control, 8 bits: type in bits 2 to 4, bit 5 enters it. Reads 0.
    pub const SLEEP_CONTROL: u64 = 0x00;
    /// Sleep status, 8 bits. Reads 0: nothing ever wakes up here.
    pub const SLEEP_STATUS: u64 = 0x01;
    /// Reset, 8 bits: [`RESET_VALUE`] resets. Reads 0.
    pub const RESET: u64 = 0x02;
    /// What has to be written to [`RESET`].
    pub const RESET_VALUE: u8 = 1;
    /// Events, 32 bits, cleared by a read.
    pub const EVENTS: u64 = 0x04;
    /// PCI slots that have a new device, 32 bits, cleared by a read.
    pub const SLOTS_ADDED: u64 = 0x08;
    /// PCI slots whose device is to go, 32 bits, cleared by a read.
    pub const SLOTS_TO_REMOVE: u64 = 0x0c;
    /// Slots written here are let go by the guest, 32 bits. Reads 0.
    pub const EJECT: u64 = 0x10;
    /// The sleep type (of `\_S5`) that powers off.
    pub const SLEEP_TYPE_OFF: u8 = 5;
}

/// Bits of [`offsets::EVENTS`].
pub mod events {
    /// The power button was pressed.
    pub const POWER_BUTTON: u32 = 1 << 0;
    /// One of the slot registers has something.
    pub const PCI_HOTPLUG: u32 = 1 << 1;
    /// The generation id has changed.
    pub const GENERATION: u32 = 1 << 2;
    pub(super) const ALL: u32 = POWER_BUTTON | PCI_HOTPLUG | GENERATION;
}

const SLEEP_ENABLE: u8 = 1 << 5;
const SLEEP_TYPE_SHIFT: u32 = 2;
const SLEEP_TYPE_MASK: u8 = 0b111;

/// The device.
#[derive(Debug)]
pub struct Acpi {
    interrupt: Interrupt,
    state: Mutex<AcpiState>,
}

/// State of an [`Acpi`]: what the guest has not read yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcpiState {
    events: u32,
    slots_added: u32,
    slots_to_remove: u32,
}

impl State for AcpiState {
    const KIND: &'static str = "acpi";
    const VERSION: u16 = 1;
}

impl Acpi {
    /// A device without events.
    pub fn new(interrupt: Interrupt) -> Self {
        Self { interrupt, state: Mutex::default() }
    }

    /// Tells the guest that the power button was pressed.
    pub fn press_power_button(&self) {
        self.tell(|state| state.events |= events::POWER_BUTTON);
    }

    /// Whether the guest was told of the power button and has not looked yet: nothing in it listens, or not now.
    pub fn power_button_waits(&self) -> bool {
        self.state().events & events::POWER_BUTTON != 0
    }

    /// Tells the guest that there are new devices in these slots, one bit for each.
    pub fn slots_added(&self, slots: u32) {
        self.tell(|state| {
            state.slots_added |= slots;
            state.events |= events::PCI_HOTPLUG;
        });
    }

    /// Asks the guest to let go of the devices in these slots, one bit for each. It answers by [`Effect::Eject`], or
    /// not at all.
    pub fn slots_to_remove(&self, slots: u32) {
        self.tell(|state| {
            state.slots_to_remove |= slots;
            state.events |= events::PCI_HOTPLUG;
        });
    }

    /// Tells the guest that its generation id has changed. Called after the new one is in its memory.
    pub fn generation_changed(&self) {
        self.tell(|state| state.events |= events::GENERATION);
    }

    /// Its state.
    pub fn save(&self) -> AcpiState {
        self.state().clone()
    }

    /// Takes a state. Events that wait in it are told again.
    pub fn load(&self, state: AcpiState) -> Result<(), RecordError> {
        if state.events & !events::ALL != 0 {
            return Err(impossible::<AcpiState>(format!("events {:#x}", state.events)));
        }
        let waiting = state.events != 0;
        *self.state() = state;
        if waiting {
            self.interrupt.raise();
        }
        Ok(())
    }

    fn tell(&self, change: impl FnOnce(&mut AcpiState)) {
        change(&mut self.state());
        self.interrupt.raise();
    }

    fn state(&self) -> MutexGuard<'_, AcpiState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registers for Acpi {
    fn read(&self, offset: u64, data: &mut [u8]) {
        match (offset, data.len()) {
            (offsets::SLEEP_CONTROL | offsets::SLEEP_STATUS | offsets::RESET, 1)
            | (offsets::EJECT, 4) => data.fill(0),
            (offsets::EVENTS, 4) => take(&mut self.state().events, data),
            (offsets::SLOTS_ADDED, 4) => take(&mut self.state().slots_added, data),
            (offsets::SLOTS_TO_REMOVE, 4) => take(&mut self.state().slots_to_remove, data),
            _ => read_nothing(data),
        }
    }

    /// The slots of [`Effect::Eject`] are what the guest wrote, also slots that are empty or were not asked for.
    fn write(&self, offset: u64, data: &[u8]) -> Effect {
        match (offset, data) {
            (offsets::SLEEP_CONTROL, &[value]) if is_power_off(value) => Effect::PowerOff,
            (offsets::RESET, &[offsets::RESET_VALUE]) => Effect::Reset,
            (offsets::EJECT, &[a, b, c, d]) => match u32::from_le_bytes([a, b, c, d]) {
                0 => Effect::None,
                slots => Effect::Eject { slots },
            },
            _ => Effect::None,
        }
    }
}

fn take(register: &mut u32, data: &mut [u8]) {
    data.copy_from_slice(&std::mem::take(register).to_le_bytes());
}

fn is_power_off(sleep_control: u8) -> bool {
    let sleep_type = (sleep_control >> SLEEP_TYPE_SHIFT) & SLEEP_TYPE_MASK;
    sleep_control & SLEEP_ENABLE != 0 && sleep_type == offsets::SLEEP_TYPE_OFF
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{accesses, apply, read};
    use super::offsets::*;
    use super::*;

    fn acpi() -> Acpi {
        Acpi::new(Interrupt::new().unwrap())
    }

    fn raised(acpi: &Acpi) -> bool {
        acpi.interrupt.eventfd().read().is_ok()
    }

    fn read_u32(acpi: &Acpi, offset: u64) -> u32 {
        u32::from_le_bytes(read(acpi, offset, 4).try_into().unwrap())
    }

    #[test]
    fn sleep_type_5_with_enable_powers_off_and_nothing_else_does() {
        let off: Vec<u8> = (0..=0xff)
            .filter(|value| acpi().write(SLEEP_CONTROL, &[*value]) == Effect::PowerOff)
            .collect();
        assert_eq!(
            off,
            [
                0x34, 0x35, 0x36, 0x37, 0x74, 0x75, 0x76, 0x77, 0xb4, 0xb5, 0xb6, 0xb7, 0xf4, 0xf5,
                0xf6, 0xf7
            ]
        );
    }

    #[test]
    fn reset_value_resets_and_nothing_else_does() {
        for value in 0..=0xff {
            let wanted = if value == 1 { Effect::Reset } else { Effect::None };
            assert_eq!(acpi().write(RESET, &[value]), wanted, "{value}");
        }
    }

    #[test]
    fn sleep_and_reset_registers_read_zero() {
        for offset in [SLEEP_CONTROL, SLEEP_STATUS, RESET] {
            assert_eq!(read(&acpi(), offset, 1), [0]);
        }
    }

    #[test]
    fn each_call_sets_its_bits_and_raises_the_interrupt() {
        let acpi = acpi();
        let event = |call: &dyn Fn()| {
            call();
            (raised(&acpi), read_u32(&acpi, EVENTS))
        };
        assert_eq!(event(&|| acpi.press_power_button()), (true, 1));
        assert_eq!(event(&|| acpi.slots_added(0b110)), (true, 2));
        assert_eq!(event(&|| acpi.slots_to_remove(1 << 31)), (true, 2));
        assert_eq!(event(&|| acpi.generation_changed()), (true, 4));
        assert_eq!(read_u32(&acpi, SLOTS_ADDED), 0b110);
        assert_eq!(read_u32(&acpi, SLOTS_TO_REMOVE), 1 << 31);
    }

    #[test]
    fn read_clears_and_events_add_up_until_then() {
        let acpi = acpi();
        acpi.slots_added(1);
        acpi.slots_added(2);
        acpi.press_power_button();
        for (offset, wanted) in [(EVENTS, 3), (SLOTS_ADDED, 3), (SLOTS_TO_REMOVE, 0)] {
            assert_eq!(read_u32(&acpi, offset), wanted);
            assert_eq!(read_u32(&acpi, offset), 0);
        }
    }

    #[test]
    fn power_button_waits_until_the_guest_has_looked() {
        let acpi = acpi();
        acpi.generation_changed();
        assert!(!acpi.power_button_waits());
        acpi.press_power_button();
        assert!(acpi.power_button_waits());
        read_u32(&acpi, SLOTS_ADDED);
        assert!(acpi.power_button_waits());
        read_u32(&acpi, EVENTS);
        assert!(!acpi.power_button_waits());
    }

    #[test]
    fn access_of_another_width_reads_ones_and_clears_nothing() {
        let acpi = acpi();
        acpi.press_power_button();
        acpi.slots_added(1);
        acpi.slots_to_remove(1);
        let before = acpi.save();
        for (offset, size) in
            [(4, 1), (4, 2), (4, 8), (5, 1), (3, 4), (6, 4), (0, 4), (8, 2), (12, 8)]
        {
            assert_eq!(read(&acpi, offset, size), vec![0xff; size], "{offset} {size}");
        }
        assert_eq!(acpi.save(), before);
    }

    #[test]
    fn write_of_another_width_does_nothing() {
        let acpi = acpi();
        for (offset, data) in [
            (SLEEP_CONTROL, &[0x34, 0][..]),
            (RESET, &[1, 0]),
            (1, &[0, 1]),
            (EJECT, &[1]),
            (EJECT, &[1, 0]),
            (EJECT, &[1, 0, 0, 0, 0, 0, 0, 0]),
            (EJECT + 1, &[1, 0, 0, 0]),
        ] {
            assert_eq!(acpi.write(offset, data), Effect::None, "{offset} {data:?}");
        }
    }

    #[test]
    fn eject_names_the_slots() {
        let slots = 0x8000_0006;
        assert_eq!(acpi().write(EJECT, &u32::to_le_bytes(slots)), Effect::Eject { slots });
        assert_eq!(acpi().write(EJECT, &[0; 4]), Effect::None);
    }

    const GOLDEN: &str = r#"{"events":5,"slots_added":6,"slots_to_remove":2147483648}"#;

    #[test]
    fn state_of_version_1_is_golden() {
        let acpi = acpi();
        acpi.load(serde_json::from_str(GOLDEN).unwrap()).unwrap();
        assert!(raised(&acpi));
        assert_eq!(serde_json::to_string(&acpi.save()).unwrap(), GOLDEN);
        assert_eq!(read_u32(&acpi, EVENTS), 5);
        assert_eq!(read_u32(&acpi, SLOTS_ADDED), 6);
        assert_eq!(read_u32(&acpi, SLOTS_TO_REMOVE), 1 << 31);
    }

    #[test]
    fn unknown_events_are_refused_and_change_nothing() {
        let acpi = acpi();
        acpi.press_power_button();
        let state = AcpiState { events: 8, slots_added: 1, slots_to_remove: 1 };
        let error = acpi.load(state).unwrap_err();
        assert_eq!(error.to_string(), "the record acpi is impossible: events 0x8");
        assert_eq!(acpi.save(), AcpiState { events: 1, ..AcpiState::default() });
    }

    #[test]
    fn state_without_events_raises_nothing() {
        let acpi = acpi();
        acpi.load(AcpiState::default()).unwrap();
        assert!(!raised(&acpi));
    }

    proptest! {
        #[test]
        fn save_load_save_is_equal(
            calls in proptest::collection::vec((0..4_u8, any::<u32>()), 0..4),
            accesses in accesses(0x20),
        ) {
            let acpi = acpi();
            for (call, slots) in calls {
                match call {
                    0 => acpi.press_power_button(),
                    1 => acpi.slots_added(slots),
                    2 => acpi.slots_to_remove(slots),
                    _ => acpi.generation_changed(),
                }
            }
            apply(&acpi, &accesses);
            let other = self::acpi();
            other.load(acpi.save()).unwrap();
            prop_assert_eq!(other.save(), acpi.save());
            prop_assert_eq!(apply(&other, &accesses), apply(&acpi, &accesses));
        }
    }
}
