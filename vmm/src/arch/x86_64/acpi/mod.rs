//! ACPI tables: what the guest learns about its machine. Pure functions from a description to bytes.
//!
//! ```text
//! layout::FIRMWARE  RSDP -> XSDT -> FADT -> DSDT
//!                                -> MADT
//!                                -> MCFG
//! ```
//!
//! The machine is hardware-reduced (ACPI 6.4, chapter 4.1): no fixed registers, no SCI. Events come by a generic event
//! device that reads the registers of [`corten_devices::legacy::Acpi`]. Tables cannot be added to a running guest, so all that may ever
//! be plugged in is in them from the start.
//!
//! Bytes depend on the input alone: they are stored in the Blueprint and never made again for the same guest.

mod dsdt;
mod fadt;
#[cfg(test)]
mod iasl;
mod madt;
mod pci;
mod ports;

use acpi_tables::Aml;
use acpi_tables::mcfg::MCFG;
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;
use corten_devices::Range;
use thiserror::Error;
use vm_memory::{Address, GuestAddress};

use crate::arch::x86_64::layout;

const OEM_ID: [u8; 6] = *b"CORTEN";
const OEM_TABLE_ID: [u8; 8] = *b"CORTENVM";
const OEM_REVISION: u32 = 1;

/// All slots of bus 0 but the first, where the host bridge is.
pub const HOTPLUG_SLOTS: u32 = 0xffff_fffe;

/// Most CPUs that the tables can describe below [`layout::SMBIOS`].
pub const MAX_CPUS: usize = 1024;

/// Where tables may begin: a multiple of this, as the RSDP's own place has to be.
const ALIGNMENT: u64 = 16;
const SDT_HEADER_SIZE: u32 = 36;

/// One CPU of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its local APIC's id; beyond 254 only x2APIC reaches it.
    pub apic_id: u32,
    /// Whether it is there. One that is not keeps its place in the numbering.
    pub enabled: bool,
}

/// What of the tables differs between machines.
#[derive(Clone, Copy, Debug)]
pub struct AcpiInput<'a> {
    /// CPUs in ascending order of their APIC ids; the position is the ACPI `_UID`.
    pub cpus: &'a [Cpu],
    /// PCI BARs of 64 bits, above all RAM.
    pub pci_window_64: Option<Range>,
    /// Slots of bus 0 that devices come to and leave from, a bit each: usually [`HOTPLUG_SLOTS`].
    pub hotplug_slots: u32,
}

/// Tables for the guest's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcpiTables {
    /// To be placed at [`layout::FIRMWARE`].
    pub bytes: Vec<u8>,
    /// Where the guest begins to read.
    pub rsdp: GuestAddress,
}

/// Why there are no tables for a machine.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AcpiError {
    /// A machine without a CPU, or the first is not there.
    #[error("the machine has no CPU to boot from")]
    NoBootCpu,
    /// Ids are to ascend: twice the same id, or a wrong order.
    #[error("the CPU with APIC id {second} follows the one with {first}")]
    CpuOrder {
        /// The earlier one's id.
        first: u32,
        /// The later one's id.
        second: u32,
    },
    /// A window that is empty, begins below 4 GiB or goes beyond the last address.
    #[error("{:#x} bytes at {:#x} are no 64-bit PCI window", .0.size, .0.base)]
    Window(Range),
    /// More CPUs than [`MAX_CPUS`].
    #[error("{0} CPUs are more than {MAX_CPUS}")]
    TooManyCpus(usize),
}

/// Makes all tables.
pub fn build(input: &AcpiInput<'_>) -> Result<AcpiTables, AcpiError> {
    check(input)?;
    Ok(place(layout::FIRMWARE, input))
}

fn check(input: &AcpiInput<'_>) -> Result<(), AcpiError> {
    if !input.cpus.first().is_some_and(|cpu| cpu.enabled) {
        return Err(AcpiError::NoBootCpu);
    }
    if input.cpus.len() > MAX_CPUS {
        return Err(AcpiError::TooManyCpus(input.cpus.len()));
    }
    if let Some(pair) = input.cpus.windows(2).find(|pair| pair[0].apic_id >= pair[1].apic_id) {
        return Err(AcpiError::CpuOrder { first: pair[0].apic_id, second: pair[1].apic_id });
    }
    match input.pci_window_64 {
        Some(window)
            if window.base < layout::HIGH_RAM.raw_value()
                || window.size == 0
                || window.base.checked_add(window.size).is_none() =>
        {
            Err(AcpiError::Window(window))
        }
        _ => Ok(()),
    }
}

/// All tables in a row from `base` on, the RSDP first.
fn place(base: GuestAddress, input: &AcpiInput<'_>) -> AcpiTables {
    // The RSDP says where the XSDT is and is written last; its size does not depend on that.
    let mut bytes = vec![0; Rsdp::len()];
    let dsdt = append(&mut bytes, base, &dsdt::dsdt(input));
    let fadt = append(&mut bytes, base, &fadt::fadt(dsdt));
    let madt = append(&mut bytes, base, &madt::madt(input.cpus));
    let mcfg = append(&mut bytes, base, &mcfg());
    let xsdt = append(&mut bytes, base, &xsdt(&[fadt, madt, mcfg]));
    let rsdp = to_bytes(&Rsdp::new(OEM_ID, xsdt.raw_value()));
    bytes[..rsdp.len()].copy_from_slice(&rsdp);
    AcpiTables { bytes, rsdp: base }
}

/// Appends a table at an aligned place and says where that is.
fn append(bytes: &mut Vec<u8>, base: GuestAddress, table: &[u8]) -> GuestAddress {
    let offset = (bytes.len() as u64).next_multiple_of(ALIGNMENT);
    let padding = offset - bytes.len() as u64;
    bytes.extend((0..padding).map(|_| 0));
    bytes.extend_from_slice(table);
    base.unchecked_add(offset)
}

/// ECAM of bus 0.
fn mcfg() -> Vec<u8> {
    let mut table = MCFG::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    table.add_ecam(layout::PCI_CONFIGURATION.base, 0, 0, 0);
    to_bytes(&table)
}

fn xsdt(tables: &[GuestAddress]) -> Vec<u8> {
    let mut table = XSDT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    for address in tables {
        table.add_entry(address.raw_value());
    }
    to_bytes(&table)
}

/// A table of our own: header and body.
fn table(signature: [u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let mut table =
        Sdt::new(signature, SDT_HEADER_SIZE, revision, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    table.append_slice(body);
    table.as_slice().to_vec()
}

fn to_bytes(object: &dyn Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    object.to_aml_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(super) fn cpus(number: u32) -> Vec<Cpu> {
        (0..number).map(|apic_id| Cpu { apic_id, enabled: true }).collect()
    }

    pub(super) fn input(cpus: &[Cpu]) -> AcpiInput<'_> {
        AcpiInput {
            cpus,
            pci_window_64: Some(Range::new(0x40_0000_0000, 0x40_0000_0000)),
            hotplug_slots: HOTPLUG_SLOTS,
        }
    }

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    fn u32_at(bytes: &[u8], offset: usize) -> usize {
        u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap()) as usize
    }

    /// What is behind an address in a table.
    fn follow(tables: &AcpiTables, pointer: &[u8]) -> Vec<u8> {
        let address = GuestAddress(u64::from_le_bytes(pointer.try_into().unwrap()));
        let offset = usize::try_from(address.unchecked_offset_from(layout::FIRMWARE)).unwrap();
        let table = &tables.bytes[offset..];
        table[..u32_at(table, 4)].to_vec()
    }

    /// All tables as a guest finds them, beginning at the RSDP.
    pub(super) fn walk(tables: &AcpiTables) -> Vec<Vec<u8>> {
        let xsdt = follow(tables, &tables.bytes[24..32]);
        let mut found: Vec<_> =
            xsdt[36..].chunks(8).map(|pointer| follow(tables, pointer)).collect();
        // X_DSDT of the FADT, which is the first.
        found.push(follow(tables, &found[0][140..148]));
        found.push(xsdt);
        found
    }

    #[test]
    fn guest_finds_every_table_with_a_right_checksum() {
        for number in [1, 4, 32, 300] {
            let tables = build(&input(&cpus(number))).unwrap();

            let found = walk(&tables);
            let signatures: Vec<_> = found.iter().map(|table| &table[..4]).collect();
            assert_eq!(signatures, [b"FACP", b"APIC", b"MCFG", b"DSDT", b"XSDT"]);
            assert!(found.iter().all(|table| sum(table) == 0));
        }
    }

    #[test]
    fn rsdp_is_of_revision_two_with_both_checksums() {
        let tables = build(&input(&cpus(1))).unwrap();

        assert_eq!(tables.rsdp, layout::FIRMWARE);
        assert_eq!(&tables.bytes[..8], b"RSD PTR ");
        assert_eq!(tables.bytes[15], 2);
        assert_eq!(sum(&tables.bytes[..20]), 0);
        assert_eq!(sum(&tables.bytes[..36]), 0);
    }

    #[test]
    fn mcfg_tells_of_bus_zero_only() {
        let table = mcfg();

        assert_eq!(table.len(), 60);
        assert_eq!(table[44..52], 0xe800_0000_u64.to_le_bytes());
        // Segment, first bus, last bus.
        assert_eq!(table[52..56], [0, 0, 0, 0]);
    }

    #[test]
    fn same_input_gives_same_bytes() {
        let cpus = cpus(6);

        assert_eq!(build(&input(&cpus)), build(&input(&cpus)));
    }

    #[test]
    fn machine_without_boot_cpu_is_refused() {
        let off = [Cpu { apic_id: 0, enabled: false }];

        assert_eq!(build(&input(&[])), Err(AcpiError::NoBootCpu));
        assert_eq!(build(&input(&off)), Err(AcpiError::NoBootCpu));
    }

    #[test]
    fn same_apic_id_twice_is_refused() {
        let twice = [Cpu { apic_id: 2, enabled: true }, Cpu { apic_id: 2, enabled: true }];

        assert_eq!(build(&input(&twice)), Err(AcpiError::CpuOrder { first: 2, second: 2 }));
    }

    #[test]
    fn window_that_is_none_is_refused() {
        let cpus = cpus(1);
        for window in
            [Range::new(0x1_0000_0000, 0), Range::new(0xc000_0000, 0x1000), Range::new(u64::MAX, 2)]
        {
            let input = AcpiInput { pci_window_64: Some(window), ..input(&cpus) };

            assert_eq!(build(&input), Err(AcpiError::Window(window)));
        }
    }

    #[test]
    fn largest_machine_fits() {
        let cpus: Vec<_> =
            (0..1024).map(|cpu| Cpu { apic_id: cpu << 20, enabled: cpu == 0 }).collect();
        let input = AcpiInput { hotplug_slots: u32::MAX, ..input(&cpus) };

        let size = build(&input).unwrap().bytes.len() as u64;

        assert!(size <= layout::SMBIOS.unchecked_offset_from(layout::FIRMWARE), "{size} bytes");
    }

    #[test]
    fn more_cpus_than_there_is_room_for_are_refused() {
        assert_eq!(build(&input(&cpus(1025))), Err(AcpiError::TooManyCpus(1025)));
    }
}
