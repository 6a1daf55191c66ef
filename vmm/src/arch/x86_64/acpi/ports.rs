//! The registers at [`layout::ACPI`]: what the tables tell the guest, and what the device behind them answers.
//! Part of the guest's ABI.
//!
//! ```text
//! offset  width  name
//! 0x00    u8     sleep control   SLP_TYP in bits 2-4, SLP_EN is bit 5; type 5 is power-off
//! 0x01    u8     sleep status    bit 7 is the wake status: nothing wakes, reads 0
//! 0x02    u8     reset           1 resets the machine
//! 0x04    u32    events          pending bits; a read clears them
//! 0x08    u32    slots added     one bit per PCI slot; a read clears them
//! 0x0c    u32    slots to remove one bit per PCI slot; a read clears them
//! 0x10    u32    eject           the guest is done with the slots whose bits it writes
//! ```
//!
//! The u32 registers are read and written whole. The interrupt [`layout::ACPI_LINE`] is an edge: the device sets bits
//! first and raises it afterwards, so that a read-and-clear loses none.

use crate::arch::x86_64::layout;

/// Sleep control, one byte.
pub const SLEEP_CONTROL: u16 = 0x00;
/// Sleep status, one byte.
pub const SLEEP_STATUS: u16 = 0x01;
/// Reset, one byte.
pub const RESET: u16 = 0x02;
/// Pending events.
pub const EVENTS: u16 = 0x04;
/// PCI slots that got a device.
pub const SLOTS_ADDED: u16 = 0x08;
/// PCI slots whose device the guest is asked to give up.
pub const SLOTS_TO_REMOVE: u16 = 0x0c;
/// PCI slots whose device the guest has given up.
pub const EJECT: u16 = 0x10;

/// What the guest writes to [`RESET`].
pub const RESET_VALUE: u8 = 1;
/// Sleep type of S5: off.
pub const POWER_OFF_TYPE: u8 = 5;
/// What the guest writes to [`SLEEP_CONTROL`] to power off: SLP_EN and the type of S5.
pub const POWER_OFF_VALUE: u8 = 1 << 5 | POWER_OFF_TYPE << 2;

/// Event: the power button was pressed.
pub const EVENT_POWER_BUTTON: u32 = 1 << 0;
/// Event: [`SLOTS_ADDED`] or [`SLOTS_TO_REMOVE`] has news.
pub const EVENT_PCI_HOTPLUG: u32 = 1 << 1;
/// Event: the generation id changed.
pub const EVENT_GENERATION_ID: u32 = 1 << 2;

/// The port of a register.
pub(super) fn port(register: u16) -> u16 {
    layout_port(layout::ACPI.base) + register
}

/// An address of the layout as a port.
pub(super) fn layout_port(address: u64) -> u16 {
    u16::try_from(address).expect("the layout keeps ports in 16 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_inside_the_range_and_aligned() {
        let wide = [EVENTS, SLOTS_ADDED, SLOTS_TO_REMOVE, EJECT];

        assert!(wide.iter().all(|&register| u64::from(register) + 4 <= layout::ACPI.size));
        assert!(wide.iter().all(|&register| port(register).is_multiple_of(4)));
    }

    #[test]
    fn power_off_is_type_five_with_the_enable_bit() {
        assert_eq!(POWER_OFF_VALUE, 0x34);
    }
}
