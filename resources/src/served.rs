//! Which fields of a VirtualMachineInstance are served. One table, from which validation and documents come.
//!
//! What is not in it is refused: a field is never dropped in silence.

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It does what KubeVirt's documents say.
    Served,
    /// It may be given and makes no difference, for this reason.
    Harmless(&'static str),
    /// Only these values are served.
    Only(&'static [&'static str]),
}

use Support::{Harmless, Only, Served};

/// Every field that may be given. A path ends at a field whose value is taken whole; members of lists are not numbered.
pub const FIELDS: &[(&str, Support)] = &[
    ("spec.architecture", Only(&["amd64"])),
    ("spec.domain.cpu.cores", Served),
    ("spec.domain.cpu.model", Only(&["host-model", "host-passthrough"])),
    ("spec.domain.cpu.sockets", Served),
    ("spec.domain.cpu.threads", Served),
    ("spec.domain.devices.autoattachGraphicsDevice", Only(&["false"])),
    ("spec.domain.devices.autoattachMemBalloon", Only(&["false"])),
    ("spec.domain.devices.autoattachPodInterface", Only(&["false"])),
    ("spec.domain.devices.autoattachSerialConsole", Only(&["true"])),
    ("spec.domain.devices.logSerialConsole", Only(&["true"])),
    ("spec.domain.firmware.kernelBoot.container.image", Served),
    (
        "spec.domain.firmware.kernelBoot.container.imagePullPolicy",
        Only(&["Always", "IfNotPresent", "Never"]),
    ),
    ("spec.domain.firmware.kernelBoot.container.imagePullSecret", Served),
    ("spec.domain.firmware.kernelBoot.container.initrdPath", Served),
    ("spec.domain.firmware.kernelBoot.container.kernelPath", Served),
    ("spec.domain.firmware.kernelBoot.kernelArgs", Served),
    ("spec.domain.firmware.serial", Served),
    ("spec.domain.firmware.uuid", Served),
    (
        "spec.domain.machine.type",
        Harmless("there is one type of machine, and it has its own version"),
    ),
    ("spec.domain.memory.guest", Served),
    ("spec.domain.resources.limits.cpu", Served),
    ("spec.domain.resources.limits.memory", Served),
    ("spec.domain.resources.requests.cpu", Served),
    ("spec.domain.resources.requests.memory", Served),
    ("spec.evictionStrategy", Only(&["None"])),
    ("spec.nodeSelector", Served),
    ("spec.priorityClassName", Served),
    ("spec.schedulerName", Served),
    ("spec.terminationGracePeriodSeconds", Served),
    ("spec.tolerations.effect", Served),
    ("spec.tolerations.key", Served),
    ("spec.tolerations.operator", Served),
    ("spec.tolerations.tolerationSeconds", Served),
    ("spec.tolerations.value", Served),
];

/// What becomes of the field at this path, if it is in the table.
pub fn support(path: &str) -> Option<Support> {
    FIELDS.iter().find(|(field, _)| *field == path).map(|(_, support)| *support)
}

/// The table has fields below this path.
pub fn has_fields_below(path: &str) -> bool {
    FIELDS
        .iter()
        .any(|(field, _)| field.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_no_field_lies_below_another() {
        for pair in FIELDS.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{} and {}", pair[0].0, pair[1].0);
        }
        for (field, _) in FIELDS {
            assert!(!has_fields_below(field), "{field}");
        }
    }

    #[test]
    fn a_path_is_matched_by_whole_names() {
        assert!(has_fields_below("spec.domain.cpu"));
        assert!(!has_fields_below("spec.domain.cp"));
        assert_eq!(support("spec.domain.cpu"), None);
    }
}
