//! That there is a place on the machine's bus for each device.

use super::Findings;
use crate::finding::Finding;
use crate::types::VirtualMachineInstanceSpec;

/// Devices that the machine has places for: slots of one PCI bus, without the one of the bus itself.
const PLACES: usize = 31;

/// Interfaces come before disks: a machine rarely has many of them, so it is the disks that are too many.
pub(super) fn check(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    let devices = &spec.domain.devices;
    let names_none = devices.interfaces.is_empty() && spec.networks.is_empty();
    let has_own = names_none && spec.wants_pod_interface();
    let optional = [has_own, spec.wants_balloon(), spec.wants_entropy(), spec.wants_vsock()];
    // The console device is always there.
    let others = 1 + optional.into_iter().filter(|wanted| *wanted).count();
    let for_interfaces = PLACES - others;
    if devices.interfaces.len() > for_interfaces {
        let path = format!("spec.domain.devices.interfaces[{for_interfaces}]");
        return findings.push(too_many(path, "interfaces", for_interfaces, others));
    }
    let others = others + devices.interfaces.len();
    let for_disks = PLACES - others;
    let listed =
        (0..devices.disks.len()).map(|index| format!("spec.domain.devices.disks[{index}]"));
    let volumes = spec.volumes.iter().enumerate().filter(|(_, volume)| {
        let is_shared = devices.filesystems.iter().any(|folder| folder.name == volume.name);
        let is_listed = devices.disks.iter().any(|disk| disk.name == volume.name);
        volume.belongs_on_a_disk() && !is_shared && !is_listed
    });
    let unlisted = volumes.map(|(index, _)| format!("spec.volumes[{index}]"));
    if let Some(path) = listed.chain(unlisted).nth(for_disks) {
        findings.push(too_many(path, "disks", for_disks, others));
    }
}

fn too_many(path: String, what: &str, most: usize, others: usize) -> Finding {
    let message = format!(
        "the machine has places for {PLACES} devices: {most} {what} beside its {others} others, and this is one too many"
    );
    Finding::invalid(path, message)
}
