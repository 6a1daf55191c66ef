//! What the agent in a guest told. The guest may say anything: texts are cut, lists are short.

use corten_link::{AgentReport, FreezeStatus, OperatingSystem};
use corten_resources::types::{GuestOsInfo, VirtualMachineInstanceStatus};

/// Of a text of a guest's or launcher's, no more is written.
const MAX_TEXT: usize = 512;

/// The beginning of a text on one line; none of an empty one.
pub(super) fn short(text: &str) -> Option<String> {
    let visible = |char: char| if char.is_control() { ' ' } else { char };
    let text: String = text.chars().take(MAX_TEXT).map(visible).collect();
    (!text.is_empty()).then_some(text)
}

/// What it says of its system stays when the agent is gone, as in KubeVirt.
pub(super) fn write(status: &mut VirtualMachineInstanceStatus, report: &AgentReport) {
    let os = &report.guest.os;
    if *os != OperatingSystem::default() {
        let described = GuestOsInfo {
            id: short(&os.id),
            kernel_release: short(&os.kernel_release),
            kernel_version: short(&os.kernel_version),
            machine: short(&os.machine),
            name: short(&os.name),
            pretty_name: short(&os.pretty_name),
            version: short(&os.version),
            version_id: short(&os.version_id),
            ..GuestOsInfo::default()
        };
        status.guest_os_info = Some(described);
    }
    if let Some(freeze) = report.guest.freeze {
        let frozen = (freeze == FreezeStatus::Frozen).then(|| "frozen".to_owned());
        status.fs_freeze_status = frozen;
    }
}
