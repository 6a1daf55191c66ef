//! Ports as tables name them. The registers behind [`layout::ACPI`] are defined by the device that answers them,
//! [`corten_devices::legacy::acpi_offsets`]: the tables use the same constants.

use crate::arch::x86_64::layout;

/// The port of one of the device's registers.
pub(super) fn register_port(offset: u64) -> u16 {
    layout_port(layout::ACPI.base + offset)
}

/// An address of the layout as a port.
pub(super) fn layout_port(address: u64) -> u16 {
    u16::try_from(address).expect("the layout keeps ports in 16 bits")
}

#[cfg(test)]
mod tests {
    use corten_devices::legacy::acpi_offsets::{EJECT, EVENTS, SLOTS_ADDED, SLOTS_TO_REMOVE};

    use super::*;

    #[test]
    fn registers_are_inside_the_range_aligned_and_in_the_order_of_the_fields() {
        let wide = [EVENTS, SLOTS_ADDED, SLOTS_TO_REMOVE, EJECT];

        assert!(wide.iter().all(|&register| register + 4 <= layout::ACPI.size));
        assert!(wide.iter().all(|&register| register_port(register).is_multiple_of(4)));
        assert!(wide.windows(2).all(|pair| pair[1] == pair[0] + 4));
    }
}
