//! The machine of a VMI as its status shows it: processors, memory, disks. It is what the launcher made of the object when it
//! was started; what is there already was written then.

use corten_resources::Quantity;
use corten_resources::machine::{Source, guest_disk_name};
use corten_resources::types::{
    CpuTopology, Machine, VirtualMachineInstanceSpec, VirtualMachineInstanceStatus, Volume,
    VolumeStatus,
};

/// What KubeVirt calls the machine that is closest to Corten's.
const MACHINE_TYPE: &str = "q35";
/// Guests have whole pages.
const PAGE: u64 = 4096;

pub(super) fn write(status: &mut VirtualMachineInstanceStatus, spec: &VirtualMachineInstanceSpec) {
    if let Ok(topology) = spec.topology() {
        status.current_cpu_topology.get_or_insert_with(|| CpuTopology {
            cores: Some(topology.cores.into()),
            sockets: Some(topology.sockets.into()),
            threads: Some(topology.threads.into()),
            ..CpuTopology::default()
        });
    }
    if let Ok(memory) = spec.guest_memory() {
        let quantity = Quantity::of_bytes(memory / PAGE * PAGE);
        let shown = status.memory.get_or_insert_default();
        shown.guest_at_boot.get_or_insert_with(|| quantity.clone());
        shown.guest_current.get_or_insert_with(|| quantity.clone());
        // The one that changes with the object.
        shown.guest_requested = Some(quantity);
    }
    let machine = status.machine.get_or_insert_with(Machine::default);
    let wanted = spec.domain.machine.as_ref().and_then(|machine| machine.machine_type.clone());
    machine.machine_type.get_or_insert(wanted.unwrap_or_else(|| MACHINE_TYPE.into()));
    for (number, (_, disk)) in spec.guest_disks().into_iter().enumerate() {
        let target = guest_disk_name(number);
        let size = spec.volume(&disk.name).and_then(size);
        let all = &mut status.volume_status;
        if let Some(shown) = all.iter_mut().find(|shown| shown.name == disk.name) {
            shown.target = target;
            shown.size = size.or(shown.size);
        } else {
            let name = disk.name.clone();
            all.push(VolumeStatus { name, target, size, ..VolumeStatus::default() });
        }
    }
}

/// Bytes of a volume, where the object says it. What a claim has the operator shows.
fn size(volume: &Volume) -> Option<i64> {
    let capacity = match volume.source()? {
        Source::EmptyDisk(disk) => disk.capacity.as_ref(),
        Source::HostDisk(disk) => disk.capacity.as_ref(),
        _ => None,
    };
    i64::try_from(capacity?.units().ok()?).ok()
}
