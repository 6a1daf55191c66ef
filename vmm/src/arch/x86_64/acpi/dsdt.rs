//! DSDT: the namespace. All devices that are not on PCI, and the events that reach the guest.

use acpi_tables::aml::{
    And, Arg, Device, EISAName, Equal, Field, FieldAccessType, FieldEntry, FieldLockRule,
    FieldUpdateRule, IO, If, Interrupt, Local, Memory32Fixed, Method, MethodCall, Name, Notify,
    OpRegion, OpRegionSpace, Package, Path, ResourceTemplate, Scope, Store, ZERO,
};
use acpi_tables::{Aml, AmlSink};
use corten_devices::Range;
use corten_devices::legacy::acpi_events::{GENERATION, PCI_HOTPLUG, POWER_BUTTON};
use corten_devices::legacy::acpi_offsets::{EVENTS, SLEEP_TYPE_OFF};
use vm_memory::Address;

use super::ports::layout_port;
use super::{AcpiInput, Cpu, pci, table, to_bytes};
use crate::arch::x86_64::layout;

/// Integers of the namespace have 64 bits from revision 2 on.
const REVISION: u8 = 2;
/// Notification of a device about its own state: button pressed, generation changed.
const STATUS_CHANGED: u8 = 0x80;

/// The table.
pub(super) fn dsdt(input: &AcpiInput<'_>) -> Vec<u8> {
    let processors: Vec<_> =
        (0u32..).zip(input.cpus).map(|(uid, cpu)| Processor { uid, cpu: *cpu }).collect();
    let root = pci::Root { window_64: input.pci_window_64, slots: input.hotplug_slots };

    let mut devices: Vec<&dyn Aml> = processors.iter().map(|cpu| -> &dyn Aml { cpu }).collect();
    devices.extend([
        &Registers as &dyn Aml,
        &Board,
        &root,
        &Serial,
        &Clock,
        &PowerButton,
        &GenerationId,
        &PanicPort,
        &EventDevice,
    ]);
    let power_off =
        Name::new("\\_S5_".into(), &Package::new(vec![&SLEEP_TYPE_OFF, &ZERO, &ZERO, &ZERO]));
    let mut body = to_bytes(&Scope::new("\\_SB_".into(), devices));
    power_off.to_aml_bytes(&mut body);
    table(*b"DSDT", REVISION, &body)
}

/// An interrupt line as a device has it: an edge, high, its own.
fn line(number: u32) -> Interrupt {
    Interrupt::new(true, true, false, false, number)
}

/// Ports as a device has them.
pub(super) fn fixed_ports(range: Range) -> IO {
    let first = layout_port(range.base);
    IO::new(first, first, 1, u8::try_from(range.size).expect("a device has few ports"))
}

fn fixed_memory(range: Range) -> Memory32Fixed {
    let base = u32::try_from(range.base).expect("fixed memory is below 4 GiB");
    Memory32Fixed::new(true, base, u32::try_from(range.size).expect("and smaller than that"))
}

/// `_HID` with an id of the EISA form.
fn eisa_id(id: &str) -> Name {
    Name::new("_HID".into(), &EISAName::new(id))
}

/// `_HID` with a longer id.
fn string_id(id: &'static str) -> Name {
    Name::new("_HID".into(), &id)
}

/// `_UID` of a device that is the only one of its kind.
fn only_one() -> Name {
    Name::new("_UID".into(), &ZERO)
}

fn resources(children: Vec<&dyn Aml>) -> Name {
    Name::new("_CRS".into(), &ResourceTemplate::new(children))
}

/// Does something if the first local variable has one of these bits.
pub(super) struct IfBits<'a> {
    pub(super) bits: u32,
    pub(super) then: &'a dyn Aml,
}

impl Aml for IfBits<'_> {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        // The result goes nowhere else: zero is the empty name.
        let predicate = And::new(&ZERO, &Local(0), &self.bits);
        If::new(&predicate, vec![self.then]).to_aml_bytes(sink);
    }
}

/// The registers of [`corten_devices::legacy::acpi_offsets`] by name; sleep and reset are in the FADT.
struct Registers;

impl Aml for Registers {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        let size = u8::try_from(layout::ACPI.size).expect("few registers");
        let bits_before_events = usize::try_from(EVENTS * 8).expect("few registers");
        OpRegion::new(
            "REGS".into(),
            OpRegionSpace::SystemIO,
            &layout_port(layout::ACPI.base),
            &size,
        )
        .to_aml_bytes(sink);
        // Whole registers, each read and written once: reading clears.
        Field::new(
            "REGS".into(),
            FieldAccessType::DWord,
            FieldLockRule::NoLock,
            FieldUpdateRule::WriteAsZeroes,
            vec![
                FieldEntry::Reserved(bits_before_events),
                FieldEntry::Named(*b"EVTS", 32),
                FieldEntry::Named(*b"ADDS", 32),
                FieldEntry::Named(*b"REMS", 32),
                FieldEntry::Named(*b"EJCT", 32),
            ],
        )
        .to_aml_bytes(sink);
    }
}

/// What belongs to the board: without the ECAM range here Linux does not trust MCFG.
struct Board;

impl Aml for Board {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        Device::new(
            "MBRD".into(),
            vec![
                &eisa_id("PNP0C02"),
                &only_one(),
                &resources(vec![
                    &fixed_memory(layout::PCI_CONFIGURATION),
                    &fixed_ports(layout::ACPI),
                ]),
            ],
        )
        .to_aml_bytes(sink);
    }
}

/// COM1. A hardware-reduced kernel knows its line from here only.
struct Serial;

impl Aml for Serial {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        Device::new(
            "COM1".into(),
            vec![
                &eisa_id("PNP0501"),
                &only_one(),
                &Name::new("_DDN".into(), &"COM1"),
                &resources(vec![&fixed_ports(layout::COM1), &line(layout::COM1_LINE)]),
            ],
        )
        .to_aml_bytes(sink);
    }
}

/// The real-time clock.
struct Clock;

impl Aml for Clock {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        Device::new(
            "RTC_".into(),
            vec![
                &eisa_id("PNP0B00"),
                &only_one(),
                &resources(vec![&fixed_ports(layout::RTC), &line(layout::RTC_LINE)]),
            ],
        )
        .to_aml_bytes(sink);
    }
}

struct PowerButton;

impl Aml for PowerButton {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        Device::new("PWRB".into(), vec![&eisa_id("PNP0C0C"), &only_one()]).to_aml_bytes(sink);
    }
}

/// The virtual machine generation id: 16 bytes in memory that change when a snapshot is started a second time.
/// Drivers find it by its compatible id, and the bytes by ADDR: the low and the high half of an address.
struct GenerationId;

impl Aml for GenerationId {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        let low = u32::try_from(layout::GENERATION_ID.raw_value()).expect("it is below 4 GiB");
        Device::new(
            "VGEN".into(),
            vec![
                &string_id("CRTN0001"),
                &Name::new("_CID".into(), &"VM_Gen_Counter"),
                &Name::new("_DDN".into(), &"VM_Gen_Counter"),
                &only_one(),
                &Name::new("ADDR".into(), &Package::new(vec![&low, &ZERO])),
            ],
        )
        .to_aml_bytes(sink);
    }
}

/// pvpanic, with the id that QEMU gave it: drivers know no other.
struct PanicPort;

impl Aml for PanicPort {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        Device::new(
            "PVPN".into(),
            vec![
                &string_id("QEMU0001"),
                &only_one(),
                &resources(vec![&fixed_ports(layout::PVPANIC)]),
            ],
        )
        .to_aml_bytes(sink);
    }
}

/// The generic event device: one line, and a method that asks the registers what it was for.
struct EventDevice;

impl Aml for EventDevice {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        let (button, generation) = (Path::new("\\_SB_.PWRB"), Path::new("\\_SB_.VGEN"));
        let pressed = Notify::new(&button, &STATUS_CHANGED);
        let plugged = MethodCall::new("\\_SB_.PCI0.SCAN".into(), Vec::new());
        let changed = Notify::new(&generation, &STATUS_CHANGED);
        let ours = Equal::new(&Arg(0), &layout::ACPI_LINE);
        Device::new(
            "GED_".into(),
            vec![
                &string_id("ACPI0013"),
                &only_one(),
                &resources(vec![&line(layout::ACPI_LINE)]),
                &Method::new(
                    "_EVT".into(),
                    1,
                    true,
                    vec![&If::new(
                        &ours,
                        vec![
                            &Store::new(&Local(0), &Path::new("\\_SB_.EVTS")),
                            &IfBits { bits: POWER_BUTTON, then: &pressed },
                            &IfBits { bits: PCI_HOTPLUG, then: &plugged },
                            &IfBits { bits: GENERATION, then: &changed },
                        ],
                    )],
                ),
            ],
        )
        .to_aml_bytes(sink);
    }
}

/// One CPU, joined to its MADT entry by `_UID`.
struct Processor {
    uid: u32,
    cpu: Cpu,
}

impl Aml for Processor {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        let id = string_id("ACPI0007");
        let uid = Name::new("_UID".into(), &self.uid);
        let absent = Name::new("_STA".into(), &ZERO);
        let mut children: Vec<&dyn Aml> = vec![&id, &uid];
        if !self.cpu.enabled {
            children.push(&absent);
        }
        Device::new(Path::new(&format!("C{:03X}", self.uid)), children).to_aml_bytes(sink);
    }
}
