//! What is known of one VM: what its object says, and what its launcher answered.
//!
//! A launcher may say anything. It is asked about one VM, and only about what that VM has by its object: a disk, interface or
//! vCPU of any other name is nobody's, so no launcher decides how many series there are, or for whom.

use std::collections::BTreeMap;
use std::time::Duration;

use corten_link::{
    Counters, CpuCounters, DiskCounters, GuestMemoryUse, Info, Memory, NetworkCounters, Role,
};
use corten_resources::types::VirtualMachineInstance;

/// What a guest said of its memory longer ago than this is not told any more: it is asked every 10 s.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// What launchers call the interface of a VM that names none.
const DEFAULT_INTERFACE: &str = "default";

/// A VM of this node.
#[derive(Clone, Debug, Default)]
pub struct Vm {
    /// Namespace of its VMI.
    pub namespace: String,
    /// Name of its VMI.
    pub name: String,
    /// Memory that its Pod has beyond the guest's, as the operator reckons, in bytes.
    pub overhead: Option<u64>,
    /// What its launcher answered, if it did.
    pub answer: Option<VmAnswer>,
    /// Names of its disks, by those that launchers have for them.
    disks: BTreeMap<String, String>,
    /// Names of its interfaces, likewise.
    interfaces: BTreeMap<String, String>,
    vcpus: u32,
}

/// What a launcher answered.
#[derive(Clone, Debug)]
pub struct VmAnswer {
    /// How the VM is.
    pub info: Info,
    /// What it counted.
    pub counters: Counters,
    /// How its memory is used.
    pub memory: Memory,
}

impl Vm {
    /// What its object says.
    pub fn of(vmi: &VirtualMachineInstance) -> Self {
        let named = |name: &str| (Role::segment(name), name.to_owned());
        let devices = &vmi.spec.domain.devices;
        let disks = devices.disks.iter().map(|disk| named(&disk.name));
        let interfaces: BTreeMap<_, _> =
            devices.interfaces.iter().map(|interface| named(&interface.name)).collect();
        // None is named: what it has then is the Pod's.
        let default = BTreeMap::from([named(DEFAULT_INTERFACE)]);
        let overhead = vmi.status.memory.as_ref().and_then(|it| it.memory_overhead.as_ref());
        Self {
            namespace: vmi.metadata.namespace.clone(),
            name: vmi.metadata.name.clone(),
            overhead: overhead.and_then(|amount| amount.units().ok()),
            answer: None,
            disks: disks.collect(),
            interfaces: if interfaces.is_empty() { default } else { interfaces },
            vcpus: vmi.spec.topology().map_or(1, |topology| topology.vcpus()),
        }
    }

    /// The same with what its launcher answered. Interfaces whose frames the kernel moves are left out: the VM process does
    /// not see them.
    pub fn answered(self, mut answer: VmAnswer) -> Self {
        answer.counters.networks.retain(|_, counted| !counted.by_kernel);
        Self { answer: Some(answer), ..self }
    }

    pub(super) fn info(&self) -> Option<&Info> {
        self.answer.as_ref().map(|answer| &answer.info)
    }

    pub(super) fn counters(&self) -> Option<&Counters> {
        self.answer.as_ref().map(|answer| &answer.counters)
    }

    pub(super) fn cpu(&self) -> Option<&CpuCounters> {
        self.counters()?.cpu.as_ref()
    }

    pub(super) fn memory(&self) -> Option<&Memory> {
        self.answer.as_ref().map(|answer| &answer.memory)
    }

    /// The guest's own word on its memory, while it is fresh.
    pub(super) fn guest(&self) -> Option<&GuestMemoryUse> {
        let said = self.memory()?.guest.as_ref()?;
        (Duration::from_millis(said.age) <= STALE_AFTER).then_some(said)
    }

    /// Its vCPUs' times in nanoseconds, by number. A launcher may name one twice.
    pub(super) fn vcpus(&self) -> impl Iterator<Item = (u32, u64)> {
        let times = self.cpu().into_iter().flat_map(|cpu| &cpu.vcpu_nanoseconds);
        let times: BTreeMap<u32, u64> =
            times.copied().filter(|(number, _)| *number < self.vcpus).collect();
        times.into_iter()
    }

    /// Its disks by name.
    pub(super) fn disks(&self) -> impl Iterator<Item = (&str, &DiskCounters)> {
        let disks = self.counters().into_iter().flat_map(|counters| &counters.disks);
        disks.filter_map(|(segment, counted)| Some((self.disks.get(segment)?.as_str(), counted)))
    }

    /// Its interfaces by name.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = (&str, &NetworkCounters)> {
        let networks = self.counters().into_iter().flat_map(|counters| &counters.networks);
        networks.filter_map(|(segment, counted)| {
            Some((self.interfaces.get(segment)?.as_str(), counted))
        })
    }
}
