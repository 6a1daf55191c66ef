//! FADT: a hardware-reduced machine, its reset and sleep registers.

use acpi_tables::Aml;
use acpi_tables::fadt::{FADTBuilder, Flags, PmProfile};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use corten_devices::legacy::{RTC_CENTURY, acpi_offsets};
use vm_memory::{Address, GuestAddress};

use super::{OEM_ID, OEM_REVISION, OEM_TABLE_ID, ports};

/// IA-PC boot flag: no VGA, do not probe for it.
///
/// The other flags stay 0, which says: no devices but those of the namespace; no keyboard controller (only its reset
/// line works, and probing it costs boot time); MSI works; there is an RTC.
const VGA_NOT_PRESENT: u16 = 1 << 2;

/// Made for ACPI 6.4: the crate says 6.
const MINOR_VERSION: u8 = 4;

fn byte_register(register: u64) -> GAS {
    let port = u64::from(ports::register_port(register));
    GAS::new(AddressSpace::SystemIo, 8, 0, AccessSize::ByteAccess, port)
}

/// The table, with the DSDT at `dsdt`.
pub(super) fn fadt(dsdt: GuestAddress) -> Vec<u8> {
    let mut table = FADTBuilder::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION)
        .dsdt_64(dsdt.raw_value())
        .preferred_pm_profile(PmProfile::EnterpriseServer)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup)
        .flag(Flags::Wbinvd)
        .flag(Flags::Headless)
        // Set means: not in fixed hardware, which a reduced machine has none of.
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton)
        .flag(Flags::FixRtc);
    table.fadt_minor_version = MINOR_VERSION;
    table.century = RTC_CENTURY;
    table.iapc_boot_arch = VGA_NOT_PRESENT.into();
    table.reset_reg = byte_register(acpi_offsets::RESET);
    table.reset_value = acpi_offsets::RESET_VALUE;
    table.sleep_control_reg = byte_register(acpi_offsets::SLEEP_CONTROL);
    table.sleep_status_reg = byte_register(acpi_offsets::SLEEP_STATUS);
    table.hypervisor_vendor_identity = u64::from_le_bytes(*b"CORTEN\0\0").into();

    let mut bytes = Vec::new();
    table.finalize().to_aml_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    // Offsets of ACPI 6.4, table 5.9.
    const CENTURY: usize = 108;
    const BOOT_FLAGS: usize = 109;
    const FLAGS: usize = 112;
    const RESET_REGISTER: usize = 116;
    const X_DSDT: usize = 140;
    const SLEEP_CONTROL_REGISTER: usize = 244;
    const SLEEP_STATUS_REGISTER: usize = 256;

    #[test]
    fn length_is_that_of_revision_six() {
        assert_eq!(fadt(GuestAddress(0)).len(), 276);
    }

    #[test]
    fn boot_flags_deny_vga_and_keyboard_controller_and_keep_the_rtc() {
        let table = fadt(GuestAddress(0));

        assert_eq!(table[CENTURY], 0x32);
        assert_eq!(table[BOOT_FLAGS..BOOT_FLAGS + 2], [0x04, 0x00]);
    }

    #[test]
    fn machine_is_hardware_reduced_with_a_reset_register() {
        let table = fadt(GuestAddress(0));

        // Bit 20 and bit 10.
        assert_eq!(table[FLAGS + 2] & 0x10, 0x10);
        assert_eq!(table[FLAGS + 1] & 0x04, 0x04);
        assert_eq!(
            table[RESET_REGISTER..RESET_REGISTER + 13],
            [1, 8, 0, 1, 0x02, 6, 0, 0, 0, 0, 0, 0, 1]
        );
    }

    #[test]
    fn sleep_registers_are_bytes_at_their_ports() {
        let table = fadt(GuestAddress(0));

        let control = &table[SLEEP_CONTROL_REGISTER..SLEEP_CONTROL_REGISTER + 12];
        let status = &table[SLEEP_STATUS_REGISTER..SLEEP_STATUS_REGISTER + 12];
        assert_eq!(control, [1, 8, 0, 1, 0x00, 6, 0, 0, 0, 0, 0, 0]);
        assert_eq!(status, [1, 8, 0, 1, 0x01, 6, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn dsdt_address_is_the_long_one() {
        let table = fadt(GuestAddress(0xe_1234));

        assert_eq!(table[X_DSDT..X_DSDT + 8], 0xe_1234_u64.to_le_bytes());
    }
}
