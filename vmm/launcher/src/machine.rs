//! VMI -> machine: a pure function, so that the same object always gives the same machine.

use corten_link::MachineDescription;
use corten_resources::served::Scope;
use corten_resources::types::VirtualMachineInstance;
use corten_resources::validate::{Finding, validate};
use thiserror::Error;

/// Guests have whole pages; a size such as `1G` is cut to them.
const PAGE: u64 = 4096;

/// A machine, and what it boots from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// For the VM process.
    pub machine: MachineDescription,
    /// Path of the kernel in the image.
    pub kernel: String,
    /// Path of the initial RAM disk in the image.
    pub initrd: Option<String>,
}

/// Why a VMI gives no machine: findings, each with the path of its field.
///
/// The operator has looked at the object before; but it may be newer than this launcher.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{}", texts(.0))]
pub struct PlanError(Vec<Finding>);

fn texts(findings: &[Finding]) -> String {
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

impl From<Finding> for PlanError {
    fn from(finding: Finding) -> Self {
        Self(vec![finding])
    }
}

/// The machine that a VMI wants.
pub fn plan(vmi: &VirtualMachineInstance) -> Result<Plan, PlanError> {
    let mut findings = validate(&vmi.spec, Scope::Cluster);
    findings.retain(Finding::is_refusal);
    if !findings.is_empty() {
        return Err(PlanError(findings));
    }
    let topology = vmi.spec.topology()?;
    let kernel = vmi.spec.kernel()?;
    let firmware = vmi.spec.domain.firmware.as_ref();
    let machine = MachineDescription {
        memory: vmi.spec.guest_memory()? / PAGE * PAGE,
        sockets: topology.sockets,
        cores: topology.cores,
        threads: topology.threads,
        command_line: kernel.args.into(),
        uuid: uuid(vmi)?,
        serial: firmware.and_then(|firmware| firmware.serial.clone()).unwrap_or_default(),
        ..MachineDescription::default()
    };
    Ok(Plan { machine, kernel: kernel.path.into(), initrd: kernel.initrd_path.map(Into::into) })
}

/// That of the firmware, else the VMI's uid: a UUID too, and as much the guest's own.
fn uuid(vmi: &VirtualMachineInstance) -> Result<[u8; 16], Finding> {
    let given = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.as_deref());
    let (path, text) = match given.filter(|text| !text.is_empty()) {
        Some(text) => ("spec.domain.firmware.uuid", text),
        None => ("metadata.uid", vmi.metadata.uid.as_str()),
    };
    parse_uuid(text).ok_or_else(|| {
        let example = "5d307ca9-b3ef-428c-8861-06e72d69f223";
        Finding::invalid(path, format!("{text:?} is no UUID such as {example}"))
    })
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<&str> = text.split('-').collect();
    if groups.iter().map(|group| group.len()).ne([8, 4, 4, 4, 12]) {
        return None;
    }
    let digits = groups.concat();
    // A sign before a digit would also be taken as a number.
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    /// The plan of a VMI that can be, with `more` laid over its domain.
    fn planned(more: &Value) -> Result<Plan, PlanError> {
        let mut domain = json!({
            "memory": {"guest": "256Mi"},
            "firmware": {"kernelBoot": {
                "kernelArgs": "console=ttyS0 quiet",
                "container": {"image": "i", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"},
            }},
        });
        for (name, value) in more.as_object().unwrap() {
            domain[name] = value.clone();
        }
        let metadata = json!({"namespace": "default", "name": "first", "uid": UID});
        let vmi = json!({"metadata": metadata, "spec": {"domain": domain}});
        plan(&serde_json::from_value(vmi).unwrap())
    }

    #[test]
    fn whole_machine_of_a_vmi() {
        let firmware = json!({"uuid": "ffffffff-0000-0000-0000-00000000000a", "serial": "s-1", "kernelBoot": {
            "kernelArgs": "console=ttyS0", "container": {"image": "i", "kernelPath": "/vmlinux"},
        }});
        let plan = planned(&json!({"firmware": firmware, "cpu": {"cores": 2}})).unwrap();
        let mut uuid = [0; 16];
        uuid[..4].fill(0xff);
        uuid[15] = 10;
        let machine = MachineDescription {
            memory: 256 << 20,
            sockets: 1,
            cores: 2,
            threads: 1,
            command_line: "console=ttyS0".into(),
            uuid,
            serial: "s-1".into(),
            ..MachineDescription::default()
        };
        assert_eq!(plan, Plan { machine, kernel: "/vmlinux".into(), initrd: None });
    }

    #[test]
    fn memory_is_cut_to_whole_pages() {
        let memory = planned(&json!({"memory": {"guest": "1G"}})).unwrap().machine.memory;
        assert_eq!(memory, 1_000_000_000 / 4096 * 4096);
    }

    #[test]
    fn uid_serves_as_uuid_where_none_is_said() {
        let plan = planned(&json!({})).unwrap();
        assert_eq!(plan.machine.uuid[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(plan.initrd.as_deref(), Some("/boot/initrd"));
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_path() {
        let bad_uuid = json!({"firmware": {"uuid": "+1234567-89ab-cdef-0123-456789abcdef", "kernelBoot": {
            "container": {"image": "i", "kernelPath": "/k"},
        }}});
        let cases = [
            (json!({"firmware": {}}), "spec.domain.firmware.kernelBoot.container: "),
            (bad_uuid, "spec.domain.firmware.uuid: \"+1234567"),
            (json!({"memory": {}}), "spec.domain.memory.guest: "),
            (json!({"devices": {"disks": [{"name": "d"}]}}), "spec.domain.devices.disks"),
        ];
        for (more, text) in cases {
            let error = planned(&more).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
