//! The blueprint: everything a guest can see of its machine that does not change while it runs.
//!
//! Planned once by a pure function, stored with the machine's records, afterwards only applied again: on restore, on a
//! move to another host, after a reset. Nothing in it is ever asked of the host anew.

use std::collections::BTreeSet;

use corten_devices::Range;
use corten_devices::net::MacAddress;
use corten_devices::pci::SLOTS;
use corten_devices::virtio::BAR_SIZE;
use kvm_bindings::kvm_cpuid_entry2;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use vm_memory::GuestAddress;

use crate::arch::x86_64::acpi::{self, AcpiError, AcpiInput, Cpu};
use crate::arch::x86_64::cpuid::{self, Identity, ProcessorName};
use crate::arch::x86_64::layout;
use crate::arch::x86_64::smbios::{self, Chassis, SmbiosError, SmbiosInput, System};
use crate::arch::x86_64::topology::{Topology, TopologyError};
use crate::ram::{self, RamError, Slot};

/// Version of the guest's ABI that this build makes and runs.
pub const MACHINE_VERSION: u16 = 1;

const GIGABYTE: u64 = 1 << 30;
/// Slots without that of the host bridge.
const FUNCTIONS: usize = SLOTS as usize - 1;

/// Code at [`layout::RESET_VECTOR`]: pulses the reset line of the i8042, as a BIOS would. Linux gets here when it
/// restarts with hardware-reduced ACPI and without EFI: it takes such a machine for an EFI one, finds no EFI, and
/// falls back to the BIOS without trying the reset register.
const RESET_CODE: [u8; 7] = [
    0xb0, 0xfe, // mov al, 0xfe
    0xe6, 0x64, // out 0x64, al
    0xf4, //       hlt
    0xeb, 0xfd, // jmp to the hlt
];

/// What somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSpec {
    /// Bytes of memory.
    pub memory: u64,
    /// Processors.
    pub topology: Topology,
    /// What the guest reads about itself in SMBIOS.
    pub identity: Identification,
    /// What is on its PCI bus, in the order in which the guest finds it.
    pub devices: Vec<DeviceBlueprint>,
}

/// What tells a machine from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identification {
    /// In the order in which it is written; all zero is "not there".
    pub uuid: [u8; 16],
    /// Serial number.
    pub serial: String,
}

/// What the host can offer.
#[derive(Clone, Debug)]
pub struct HostProcessor {
    /// CPUID leaves that its KVM supports.
    pub cpuid: Vec<kvm_cpuid_entry2>,
    /// What it calls itself.
    pub name: ProcessorName,
    /// Rate of its time stamp counter.
    pub tsc_khz: u32,
}

/// A machine as its guest sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blueprint {
    /// Version of the guest's ABI.
    pub version: u16,
    /// Memory.
    pub slots: Vec<Slot>,
    /// Processors, the first being the one that boots.
    pub vcpus: Vec<VcpuBlueprint>,
    /// Rate of their time stamp counters.
    pub tsc_khz: u32,
    /// What firmware would have left in memory.
    pub firmware: Vec<Firmware>,
    /// Where the ACPI tables start.
    pub rsdp: u64,
    /// The PCI bus.
    pub pci: PciBlueprint,
}

/// The PCI bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PciBlueprint {
    /// Where BARs can be.
    pub windows: Vec<Range>,
    /// What is on it.
    pub functions: Vec<FunctionBlueprint>,
}

/// One PCI function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionBlueprint {
    /// Device number on bus 0.
    pub slot: u8,
    /// Where its BAR is when the guest starts.
    pub bar: u64,
    /// What it is.
    pub device: DeviceBlueprint,
}

/// What a PCI function is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DeviceBlueprint {
    /// A disk.
    Disk(DiskBlueprint),
    /// A network interface.
    Network(NetworkBlueprint),
    /// Terminal and streams.
    Console(ConsoleBlueprint),
    /// Random numbers.
    Entropy,
    /// A balloon.
    Balloon(BalloonBlueprint),
    /// A socket device.
    Vsock(VsockBlueprint),
}

impl DeviceBlueprint {
    /// What it is called among devices and records.
    pub fn instance(&self) -> String {
        match self {
            Self::Disk(disk) => format!("disk/{}", disk.name),
            Self::Network(network) => format!("net/{}", network.name),
            Self::Console(_) => "console".into(),
            Self::Entropy => "entropy".into(),
            Self::Balloon(_) => "balloon".into(),
            Self::Vsock(_) => "vsock".into(),
        }
    }
}

/// A disk as its guest sees it. How large it is, is not promised: disks grow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskBlueprint {
    /// That of its descriptor's role. The guest does not see it, but it says which disk this is.
    pub name: String,
    /// What the guest knows it by.
    pub serial: String,
    /// Refuses to be written.
    pub read_only: bool,
    /// How many queues it has.
    pub queues: u16,
    /// The largest size of each.
    pub queue_size: u16,
    /// What transfers are multiples of.
    pub block_size: u32,
}

/// A network interface as its guest sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkBlueprint {
    /// That of its descriptors' roles. The guest does not see it, but it says which interface this is.
    pub name: String,
    /// Its address, until its driver sets another.
    pub mac: MacAddress,
    /// The largest packet that the guest is to send.
    pub mtu: Option<u16>,
    /// How many pairs of queues it has.
    pub pairs: u16,
    /// The largest size of each queue.
    pub queue_size: u16,
    /// Whether segmentation of UDP is offered.
    pub uso: bool,
}

/// A console device as its guest sees it: a terminal, and streams from port 1 on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleBlueprint {
    /// Names of the streams.
    pub streams: Vec<String>,
}

/// A balloon as its guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalloonBlueprint {
    /// A guest short of memory may take pages out of it by itself.
    pub deflate_on_oom: bool,
    /// The guest reports pages that are free.
    pub reporting: bool,
}

/// A socket device as its guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VsockBlueprint {
    /// The guest's address.
    pub guest_cid: u32,
}

/// One processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VcpuBlueprint {
    /// Its APIC id.
    pub apic_id: u32,
    /// Its CPUID leaves.
    pub cpuid: Vec<CpuidLeaf>,
}

/// One CPUID leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuidLeaf {
    function: u32,
    index: u32,
    flags: u32,
    registers: [u32; 4],
}

/// Bytes at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Firmware {
    /// Guest address.
    pub address: u64,
    /// What is there when the guest starts.
    pub bytes: Vec<u8>,
}

/// Why a machine cannot be planned.
#[derive(Debug, Error)]
pub enum PlanError {
    /// Its memory.
    #[error("the memory cannot be laid out")]
    Memory(#[from] RamError),
    /// Its processors.
    #[error("the processors cannot be arranged")]
    Topology(#[from] TopologyError),
    /// Its tables.
    #[error("the machine cannot be described to its guest")]
    Acpi(#[from] AcpiError),
    /// What it says of itself.
    #[error("the machine cannot be named to its guest")]
    Smbios(#[from] SmbiosError),
    /// More memory than the processor addresses.
    #[error("{memory} bytes of memory end beyond the {bits} address bits of this host's processor")]
    AddressBits {
        /// Bytes of memory.
        memory: u64,
        /// Bits of a physical address.
        bits: u32,
    },
    /// More devices than there are places for.
    #[error("{0} devices do not fit on a bus of {FUNCTIONS}")]
    Functions(usize),
    /// Two devices of one name.
    #[error("two devices have the name {0:?}")]
    SameName(String),
}

/// Plans a machine.
pub fn plan(spec: &MachineSpec, host: &HostProcessor) -> Result<Blueprint, PlanError> {
    let slots = ram::slots(spec.memory, layout::LOW_RAM_END, layout::HIGH_RAM)?;
    let topology =
        Topology::new(spec.topology.sockets, spec.topology.cores, spec.topology.threads)?;
    let bits = cpuid::physical_address_bits(&host.cpuid);
    let end = slots.iter().map(|slot| slot.start + slot.size).max().unwrap_or(0);
    if bits < 64 && end > 1 << bits {
        return Err(PlanError::AddressBits { memory: spec.memory, bits });
    }
    let vcpus: Vec<VcpuBlueprint> = topology
        .apic_ids()
        .map(|apic_id| {
            let HostProcessor { tsc_khz, name, .. } = *host;
            let identity = Identity { apic_id, topology, tsc_khz, name };
            let leaves = cpuid::leaves(&host.cpuid, identity);
            VcpuBlueprint { apic_id, cpuid: leaves.iter().map(CpuidLeaf::from).collect() }
        })
        .collect();
    let cpus: Vec<Cpu> =
        vcpus.iter().map(|vcpu| Cpu { apic_id: vcpu.apic_id, enabled: true }).collect();
    let window_64 = pci_window_64(end, bits);
    let tables = acpi::build(&AcpiInput {
        cpus: &cpus,
        pci_window_64: window_64,
        hotplug_slots: acpi::HOTPLUG_SLOTS,
    })?;
    let firmware = vec![
        Firmware { address: layout::FIRMWARE.0, bytes: tables.bytes },
        Firmware { address: layout::SMBIOS.0, bytes: smbios::build(&description(&spec.identity))? },
        Firmware { address: layout::RESET_VECTOR.0, bytes: RESET_CODE.into() },
    ];
    Ok(Blueprint {
        version: MACHINE_VERSION,
        slots,
        vcpus,
        tsc_khz: host.tsc_khz,
        firmware,
        rsdp: tables.rsdp.0,
        pci: PciBlueprint {
            windows: [layout::PCI_WINDOW].into_iter().chain(window_64).collect(),
            functions: functions(&spec.devices)?,
        },
    })
}

/// Slots and BARs in the order of the devices: what the guest calls them follows from that.
fn functions(devices: &[DeviceBlueprint]) -> Result<Vec<FunctionBlueprint>, PlanError> {
    let mut names = BTreeSet::new();
    if let Some(twice) =
        devices.iter().map(DeviceBlueprint::instance).find(|name| !names.insert(name.clone()))
    {
        return Err(PlanError::SameName(twice));
    }
    if devices.len() > FUNCTIONS {
        return Err(PlanError::Functions(devices.len()));
    }
    let function = |(slot, device): (u8, &DeviceBlueprint)| FunctionBlueprint {
        slot,
        bar: layout::PCI_WINDOW.base + u64::from(slot) * BAR_SIZE,
        device: device.clone(),
    };
    Ok((1..).zip(devices).map(function).collect())
}

fn description(identity: &Identification) -> SmbiosInput {
    let version = MACHINE_VERSION.to_string();
    SmbiosInput {
        firmware_version: version.clone(),
        system: System {
            manufacturer: "Corten".into(),
            product: "Corten VM".into(),
            version,
            serial: identity.serial.clone(),
            uuid: identity.uuid,
            ..System::default()
        },
        chassis: Chassis { manufacturer: "Corten".into(), ..Chassis::default() },
    }
}

/// From the next whole gigabyte above RAM to where the processor's addresses end.
fn pci_window_64(ram_end: u64, bits: u32) -> Option<Range> {
    let start = ram_end.max(layout::HIGH_RAM.0).next_multiple_of(GIGABYTE);
    let end = 1_u64.checked_shl(bits.min(46))?;
    let size = end.checked_sub(start)?;
    (size > 0).then(|| Range::new(start, size))
}

impl Blueprint {
    /// Where the ACPI tables start.
    pub fn rsdp(&self) -> GuestAddress {
        GuestAddress(self.rsdp)
    }
}

impl From<&kvm_cpuid_entry2> for CpuidLeaf {
    fn from(leaf: &kvm_cpuid_entry2) -> Self {
        let registers = [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx];
        Self { function: leaf.function, index: leaf.index, flags: leaf.flags, registers }
    }
}

impl From<&CpuidLeaf> for kvm_cpuid_entry2 {
    fn from(leaf: &CpuidLeaf) -> Self {
        let [eax, ebx, ecx, edx] = leaf.registers;
        let CpuidLeaf { function, index, flags, .. } = *leaf;
        Self { function, index, flags, eax, ebx, ecx, edx, ..Default::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostProcessor {
        let leaf = |function, eax| kvm_cpuid_entry2 { function, eax, ..Default::default() };
        let cpuid = vec![leaf(0, 1), leaf(1, 0), leaf(0x8000_0008, 40)];
        HostProcessor { cpuid, name: ProcessorName::default(), tsc_khz: 2_000_000 }
    }

    fn spec(memory: u64) -> MachineSpec {
        let topology = Topology { sockets: 1, cores: 3, threads: 2 };
        MachineSpec { memory, topology, identity: Identification::default(), devices: Vec::new() }
    }

    fn disk(name: &str) -> DeviceBlueprint {
        DeviceBlueprint::Disk(DiskBlueprint {
            name: name.into(),
            serial: String::new(),
            read_only: false,
            queues: 1,
            queue_size: 256,
            block_size: 512,
        })
    }

    fn network(name: &str) -> DeviceBlueprint {
        DeviceBlueprint::Network(NetworkBlueprint {
            name: name.into(),
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            mtu: None,
            pairs: 1,
            queue_size: 256,
            uso: false,
        })
    }

    #[test]
    fn same_wish_gives_same_machine() {
        let first = plan(&spec(1 << 30), &host()).unwrap();
        assert_eq!(first, plan(&spec(1 << 30), &host()).unwrap());
        assert_eq!(first.vcpus.len(), 6);
        assert_eq!(first.vcpus[5].apic_id, 5);
    }

    #[test]
    fn stored_blueprint_is_the_same_blueprint() {
        let blueprint = plan(&spec(4 << 30), &host()).unwrap();
        let text = serde_json::to_string(&blueprint).unwrap();
        assert_eq!(serde_json::from_str::<Blueprint>(&text).unwrap(), blueprint);
    }

    #[test]
    fn firmware_blobs_never_overlap() {
        let mut firmware = plan(&spec(1 << 30), &host()).unwrap().firmware;
        firmware.push(Firmware { address: layout::GENERATION_ID.0, bytes: vec![0; 16] });
        firmware.sort_by_key(|blob| blob.address);
        for pair in firmware.windows(2) {
            assert!(pair[0].address + pair[0].bytes.len() as u64 <= pair[1].address);
        }
        let last = firmware.last().unwrap();
        assert!(last.address + last.bytes.len() as u64 <= layout::KERNEL.0);
    }

    #[test]
    fn devices_get_slots_and_bars_in_their_order() {
        let devices = vec![disk("root"), network("root")];
        let blueprint = plan(&MachineSpec { devices, ..spec(1 << 30) }, &host()).unwrap();
        let places: Vec<_> =
            blueprint.pci.functions.iter().map(|function| (function.slot, function.bar)).collect();
        assert_eq!(places, [(1, 0xc000_8000), (2, 0xc001_0000)]);
    }

    #[test]
    fn too_many_devices_and_two_of_one_name_are_refused() {
        let names: Vec<String> = (0..32).map(|number| format!("disk-{number}")).collect();
        let disks = |count: usize| names[..count].iter().map(|name| disk(name)).collect();
        let spec = |devices| MachineSpec { devices, ..spec(1 << 30) };
        assert_eq!(plan(&spec(disks(31)), &host()).unwrap().pci.functions.len(), 31);
        let error = plan(&spec(disks(32)), &host()).unwrap_err();
        assert_eq!(error.to_string(), "32 devices do not fit on a bus of 31");
        let error = plan(&spec(vec![disk("a"), disk("a")]), &host()).unwrap_err();
        assert_eq!(error.to_string(), "two devices have the name \"disk/a\"");
    }

    #[test]
    fn memory_beyond_the_processor_is_refused() {
        let error = plan(&spec(2 << 40), &host()).unwrap_err();
        assert!(matches!(error, PlanError::AddressBits { bits: 40, .. }), "{error}");
    }

    #[test]
    fn window_for_bars_lies_above_memory() {
        assert_eq!(pci_window_64(5 << 30, 40), Some(Range::new(5 << 30, (1 << 40) - (5 << 30))));
        assert_eq!(pci_window_64(1 << 20, 36), Some(Range::new(4 << 30, (1 << 36) - (4 << 30))));
        assert_eq!(pci_window_64(1 << 36, 36), None);
    }
}
