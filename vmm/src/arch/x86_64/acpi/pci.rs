//! The PCI root in the namespace: its windows, what the guest may control, and the slots of hotplug.
//!
//! There is no `_PRT`: devices have MSI-X only and say so by an interrupt pin of 0.

use acpi_tables::aml::{
    AddressSpace, AddressSpaceCacheable, And, Arg, CreateDWordField, Device, EISAName, Else, Equal,
    If, Local, Method, Name, NotEqual, Notify, Or, Path, ResourceTemplate, Return, Store, Uuid,
    ZERO,
};
use acpi_tables::{Aml, AmlSink};
use corten_devices::Range;

use super::dsdt::{IfBits, fixed_ports};
use super::ports::layout_port;
use crate::arch::x86_64::layout;

/// Capabilities of a PCI host bridge (PCI Firmware Specification 3.2, 4.5.1).
const OSC_UUID: &str = "33db4d5b-1ff7-401c-9657-7441c03dd766";
/// What the guest may take over: power management events, error reporting, the PCI Express capability, latency
/// tolerance. Hotplug stays with ACPI, so that our registers alone tell of slots.
const OSC_GRANTED: u8 = 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;
const OSC_UNKNOWN_UUID: u8 = 1 << 2;
const OSC_MASKED: u8 = 1 << 4;

/// Notification of a slot: look whether a device has come.
const DEVICE_CHECK: u8 = 1;
/// Notification of a slot: please give the device up.
const EJECT_REQUEST: u8 = 3;

const SLOTS: u8 = 32;

/// The host bridge of bus 0.
pub(super) struct Root {
    pub(super) window_64: Option<Range>,
    pub(super) slots: u32,
}

impl Root {
    fn slots(&self) -> Vec<Slot> {
        (0..SLOTS).map(Slot).filter(|slot| self.slots & slot.bit() != 0).collect()
    }
}

impl Aml for Root {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        let slots = self.slots();
        let id = Name::new("_HID".into(), &EISAName::new("PNP0A08"));
        let compatible = Name::new("_CID".into(), &EISAName::new("PNP0A03"));
        let uid = Name::new("_UID".into(), &ZERO);
        let segment = Name::new("_SEG".into(), &ZERO);
        let bus = Name::new("_BBN".into(), &ZERO);
        let windows = Windows { window_64: self.window_64 };
        let scan = Scan { slots: &slots };
        let mut children: Vec<&dyn Aml> =
            vec![&id, &compatible, &uid, &segment, &bus, &windows, &Capabilities, &scan];
        children.extend(slots.iter().map(|slot| -> &dyn Aml { slot }));
        Device::new("PCI0".into(), children).to_aml_bytes(sink);
    }
}

/// `_CRS`: what the bridge passes on to the bus, and the configuration ports it keeps.
struct Windows {
    window_64: Option<Range>,
}

impl Aml for Windows {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        let own = layout_port(layout::PCI_PORTS.base);
        let own_end = layout_port(layout::PCI_PORTS.base + layout::PCI_PORTS.size);
        let bus = AddressSpace::new_bus_number(0u16, 0u16);
        let ports = fixed_ports(layout::PCI_PORTS);
        let low_ports = AddressSpace::new_io(0u16, own - 1, None);
        let high_ports = AddressSpace::new_io(own_end, u16::MAX, None);
        let memory = memory_32(layout::PCI_WINDOW);
        let memory_64 = self.window_64.map(memory_64);
        let mut children: Vec<&dyn Aml> = vec![&bus, &ports, &low_ports, &high_ports, &memory];
        if let Some(memory_64) = &memory_64 {
            children.push(memory_64);
        }
        Name::new("_CRS".into(), &ResourceTemplate::new(children)).to_aml_bytes(sink);
    }
}

fn memory_32(range: Range) -> AddressSpace<u32> {
    let first = u32::try_from(range.base).expect("the window is below 4 GiB");
    let last = u32::try_from(range.base + range.size - 1).expect("the window ends below 4 GiB");
    AddressSpace::new_memory(AddressSpaceCacheable::NotCacheable, true, first, last, None)
}

/// Not prefetchable as a window, so that BARs of either kind may be in it.
fn memory_64(range: Range) -> AddressSpace<u64> {
    let last = range.base + (range.size - 1);
    AddressSpace::new_memory(AddressSpaceCacheable::NotCacheable, true, range.base, last, None)
}

/// `_OSC`: the guest says what it wants to control, and gets what of it [`OSC_GRANTED`] has.
struct Capabilities;

impl Aml for Capabilities {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        let status = Path::new("CDW1");
        let control = Path::new("CDW3");
        let uuid = Uuid::new(OSC_UUID);
        let known = Equal::new(&Arg(0), &uuid);
        let too_much = NotEqual::new(&Local(0), &control);
        Method::new(
            "_OSC".into(),
            4,
            true,
            vec![
                &CreateDWordField::new(&status, &Arg(3), &ZERO),
                &If::new(
                    &known,
                    vec![
                        &CreateDWordField::new(&control, &Arg(3), &8u8),
                        &And::new(&Local(0), &control, &OSC_GRANTED),
                        &If::new(&too_much, vec![&Or::new(&status, &status, &OSC_MASKED)]),
                        &Store::new(&control, &Local(0)),
                    ],
                ),
                &Else::new(vec![&Or::new(&status, &status, &OSC_UNKNOWN_UUID)]),
                &Return::new(&Arg(3)),
            ],
        )
        .to_aml_bytes(sink);
    }
}

/// `SCAN`: reads which slots have news and tells them. The event device calls it.
struct Scan<'a> {
    slots: &'a [Slot],
}

impl Aml for Scan<'_> {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        let news = |value| self.slots.iter().map(move |slot| Tell { slot: *slot, value });
        // What goes comes first: a slot may be emptied and filled again between two looks.
        let removed: Vec<_> = news(EJECT_REQUEST).collect();
        let added: Vec<_> = news(DEVICE_CHECK).collect();
        let (to_remove, to_add) = (Path::new("\\_SB_.REMS"), Path::new("\\_SB_.ADDS"));
        let read_removed = Store::new(&Local(0), &to_remove);
        let read_added = Store::new(&Local(0), &to_add);
        let mut children: Vec<&dyn Aml> = Vec::new();
        if !self.slots.is_empty() {
            children.push(&read_removed);
            children.extend(removed.iter().map(|tell| -> &dyn Aml { tell }));
            children.push(&read_added);
            children.extend(added.iter().map(|tell| -> &dyn Aml { tell }));
        }
        Method::new("SCAN".into(), 0, true, children).to_aml_bytes(sink);
    }
}

/// Notifies one slot if its bit is set.
struct Tell {
    slot: Slot,
    value: u8,
}

impl Aml for Tell {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        let path = self.slot.path();
        let notify = Notify::new(&path, &self.value);
        IfBits { bits: self.slot.bit(), then: &notify }.to_aml_bytes(sink);
    }
}

/// One device number of bus 0 that a device can come to and leave from.
#[derive(Clone, Copy)]
struct Slot(u8);

impl Slot {
    fn bit(self) -> u32 {
        1 << self.0
    }

    fn path(self) -> Path {
        Path::new(&format!("S{:03}", self.0))
    }
}

impl Aml for Slot {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        // Function 0 stands for the slot: the guest looks at the others by itself.
        let address = u32::from(self.0) << 16;
        Device::new(
            self.path(),
            vec![
                &Name::new("_ADR".into(), &address),
                &Name::new("_SUN".into(), &self.0),
                &Method::new(
                    "_EJ0".into(),
                    1,
                    true,
                    vec![&Store::new(&Path::new("\\_SB_.EJCT"), &self.bit())],
                ),
            ],
        )
        .to_aml_bytes(sink);
    }
}
