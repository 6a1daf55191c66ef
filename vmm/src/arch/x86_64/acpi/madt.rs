//! MADT: the local APICs, the IOAPIC and how its lines behave.

use vm_memory::{Address, GuestAddress};

use super::{Cpu, table};
use crate::arch::x86_64::layout;

/// ACPI 6.3 and later: the flag "online capable" exists, and is 0 for a CPU that cannot come later.
const REVISION: u8 = 5;

const TYPE_LOCAL_APIC: u8 = 0;
const TYPE_IOAPIC: u8 = 1;
const TYPE_SOURCE_OVERRIDE: u8 = 2;
const TYPE_LOCAL_X2APIC: u8 = 9;

const CPU_ENABLED: u32 = 1;
const ISA_BUS: u8 = 0;
/// Active high in bits 0-1, edge in bits 2-3.
const HIGH_EDGE: u16 = 0b01 | 0b01 << 2;
/// The first id that an 8-bit entry cannot say: 255 is "all" there.
const FIRST_LONG_ID: u32 = 255;

/// The table. The position of a CPU is its `_UID` in the namespace.
///
/// The flag for two 8259 is off: KVM has them, but a hardware-reduced kernel neither sets them up nor masks them.
pub(super) fn madt(cpus: &[Cpu]) -> Vec<u8> {
    let flags = 0u32;
    let mut body = address_32(layout::LOCAL_APIC).to_vec();
    body.extend_from_slice(&flags.to_le_bytes());
    for (uid, cpu) in (0u32..).zip(cpus) {
        body.extend(cpu_entry(uid, cpu));
    }
    body.extend(ioapic_entry());
    for line in [layout::COM1_LINE, layout::RTC_LINE, layout::ACPI_LINE] {
        body.extend(override_entry(line));
    }
    table(*b"APIC", REVISION, &body)
}

fn cpu_entry(uid: u32, cpu: &Cpu) -> Vec<u8> {
    let flags = if cpu.enabled { CPU_ENABLED } else { 0 };
    // ACPI 6.4, 5.2.12.12: ids below 255 stay with the short entry, even in x2APIC mode.
    match (byte_id(uid), byte_id(cpu.apic_id)) {
        (Some(uid), Some(apic_id)) => {
            [&[TYPE_LOCAL_APIC, 8, uid, apic_id], flags.to_le_bytes().as_slice()].concat()
        }
        _ => [
            [TYPE_LOCAL_X2APIC, 16, 0, 0],
            cpu.apic_id.to_le_bytes(),
            flags.to_le_bytes(),
            uid.to_le_bytes(),
        ]
        .concat(),
    }
}

fn byte_id(id: u32) -> Option<u8> {
    if id < FIRST_LONG_ID { u8::try_from(id).ok() } else { None }
}

fn ioapic_entry() -> Vec<u8> {
    const ID: u8 = 0;
    let first_line = 0u32;
    let mut entry = vec![TYPE_IOAPIC, 12, ID, 0];
    entry.extend_from_slice(&address_32(layout::IOAPIC));
    entry.extend_from_slice(&first_line.to_le_bytes());
    entry
}

/// Says aloud what a line does. Lines are irqfds, thus edges; kernels take line 9 for a level unless told.
fn override_entry(line: u32) -> Vec<u8> {
    let source = u8::try_from(line).expect("the layout's lines are few");
    let mut entry = vec![TYPE_SOURCE_OVERRIDE, 10, ISA_BUS, source];
    entry.extend_from_slice(&line.to_le_bytes());
    entry.extend_from_slice(&HIGH_EDGE.to_le_bytes());
    entry
}

fn address_32(address: GuestAddress) -> [u8; 4] {
    u32::try_from(address.raw_value()).expect("interrupt controllers are below 4 GiB").to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries by type, with their bytes.
    fn entries(table: &[u8]) -> Vec<&[u8]> {
        let mut rest = &table[44..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (entry, next) = rest.split_at(usize::from(rest[1]));
            found.push(entry);
            rest = next;
        }
        found
    }

    fn cpus(apic_ids: impl IntoIterator<Item = u32>) -> Vec<Cpu> {
        apic_ids.into_iter().map(|apic_id| Cpu { apic_id, enabled: true }).collect()
    }

    fn count(table: &[u8], kind: u8) -> usize {
        entries(table).iter().filter(|entry| entry[0] == kind).count()
    }

    #[test]
    fn each_cpu_has_one_entry() {
        for number in [1u32, 4, 32, 255] {
            let table = madt(&cpus(0..number));

            assert_eq!(count(&table, TYPE_LOCAL_APIC), usize::try_from(number).unwrap());
            assert_eq!(count(&table, TYPE_LOCAL_X2APIC), 0);
        }
    }

    #[test]
    fn ids_from_255_on_have_long_entries() {
        let table = madt(&cpus(0..300));

        let entries = entries(&table);
        assert_eq!(count(&table, TYPE_LOCAL_APIC), 255);
        assert_eq!(count(&table, TYPE_LOCAL_X2APIC), 45);
        assert_eq!(entries[254], [0, 8, 254, 254, 1, 0, 0, 0]);
        assert_eq!(entries[255], [9, 16, 0, 0, 255, 0, 0, 0, 1, 0, 0, 0, 255, 0, 0, 0]);
    }

    #[test]
    fn three_cores_of_two_threads_keep_uids_dense_and_apic_ids_as_given() {
        // Two sockets; three cores take two bits, so that 6 and 7 are no CPU.
        let table = madt(&cpus([0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]));

        let ids: Vec<_> =
            entries(&table).iter().take(12).map(|entry| (entry[2], entry[3])).collect();
        assert_eq!(ids[5..8], [(5, 5), (6, 8), (7, 9)]);
    }

    #[test]
    fn cpu_that_is_off_has_no_flag() {
        let table = madt(&[Cpu { apic_id: 0, enabled: true }, Cpu { apic_id: 1, enabled: false }]);

        assert_eq!(entries(&table)[1], [0, 8, 1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn lines_in_use_are_high_edges() {
        let table = madt(&cpus(0..1));

        let overrides: Vec<_> =
            entries(&table).into_iter().filter(|entry| entry[0] == TYPE_SOURCE_OVERRIDE).collect();
        assert_eq!(
            overrides,
            [
                [2, 10, 0, 4, 4, 0, 0, 0, 5, 0],
                [2, 10, 0, 8, 8, 0, 0, 0, 5, 0],
                [2, 10, 0, 9, 9, 0, 0, 0, 5, 0]
            ]
        );
    }

    #[test]
    fn ioapic_is_where_the_layout_has_it() {
        let table = madt(&cpus(0..1));

        assert_eq!(entries(&table)[1], [1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
        assert_eq!(table[36..40], [0, 0, 0xe0, 0xfe]);
    }
}
