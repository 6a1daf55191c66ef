//! The reference compiler reads our tables: it has to find nothing to say about them.

use std::path::Path;
use std::process::Command;

use corten_devices::Range;
use tempfile::TempDir;

use super::tests::{cpus, input, walk};
use super::{AcpiInput, AcpiTables, Cpu, build};

/// Runs iasl and gives all it said.
fn iasl(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("iasl")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("iasl is needed for this test: install Debian's acpica-tools");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "iasl {arguments:?} failed:\n{said}");
    said
}

/// Takes each table apart and compiles what comes out; returns the DSDT's source.
fn source_of_clean_tables(tables: &AcpiTables) -> String {
    let folder = TempDir::new().unwrap();
    for table in walk(tables) {
        let name = String::from_utf8_lossy(&table[..4]).to_lowercase();
        let (binary, source) = (format!("{name}.dat"), format!("{name}.dsl"));
        std::fs::write(folder.path().join(&binary), &table).unwrap();

        let taken_apart = iasl(folder.path(), &["-d", &binary]);
        let compiled = iasl(folder.path(), &["-we", &source]);

        assert!(!taken_apart.contains("Error"), "{name}:\n{taken_apart}");
        assert!(!taken_apart.contains("Warning"), "{name}:\n{taken_apart}");
        assert!(compiled.contains(" 0 Errors, 0 Warnings"), "{name}:\n{compiled}");
    }
    std::fs::read_to_string(folder.path().join("dsdt.dsl")).unwrap()
}

#[test]
fn tables_of_small_machine_are_clean() {
    let cpus = cpus(1);
    let input = AcpiInput { pci_window_64: None, hotplug_slots: 0, ..input(&cpus) };

    let source = source_of_clean_tables(&build(&input).unwrap());

    assert!(!source.contains("QWordMemory"));
    assert!(!source.contains("_EJ0"));
}

#[test]
fn tables_of_large_machine_are_clean() {
    let cpus: Vec<_> = (0..300).map(|cpu| Cpu { apic_id: cpu * 2, enabled: cpu < 299 }).collect();
    let window = Range::new(0x80_0000_0000, 0x80_0000_0000);
    let input = AcpiInput { pci_window_64: Some(window), hotplug_slots: u32::MAX, cpus: &cpus };

    let source = source_of_clean_tables(&build(&input).unwrap());

    assert_eq!(source.matches("\"ACPI0007\"").count(), 300);
    assert_eq!(source.matches("Method (_EJ0").count(), 32);
    assert_eq!(source.matches("Notify (S").count(), 64);
}

#[test]
fn devices_have_their_ids_and_resources() {
    let source = source_of_clean_tables(&build(&input(&cpus(4))).unwrap());

    let expected = [
        "Name (_HID, EisaId (\"PNP0A08\") /* PCI Express Bus */)",
        "Name (_HID, EisaId (\"PNP0501\")",
        "Name (_HID, EisaId (\"PNP0B00\")",
        "Name (_HID, EisaId (\"PNP0C02\")",
        "Name (_HID, EisaId (\"PNP0C0C\")",
        "Name (_HID, \"ACPI0013\" /* Generic Event Device */)",
        "Name (_HID, \"QEMU0001\")",
        "Name (_CID, \"VM_Gen_Counter\")",
        "OperationRegion (REGS, SystemIO, 0x0600, 0x20)",
        "Name (\\_S5, Package (0x04)",
        "ToUUID (\"33db4d5b-1ff7-401c-9657-7441c03dd766\")",
    ];
    let missing: Vec<_> = expected.iter().filter(|text| !source.contains(**text)).collect();
    assert_eq!(missing, Vec::<&&str>::new(), "{source}");
}
