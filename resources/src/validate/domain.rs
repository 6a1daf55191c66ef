//! Processors, memory, firmware.

use super::Findings;
use super::text::is_printable;
use crate::finding::Finding;
use crate::machine::limits::{KERNEL_ARGS_BYTES, SERIAL_BYTES};
use crate::machine::parse_uuid;
use crate::types::{CpuFeature, VirtualMachineInstanceSpec};

pub(super) fn check(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    findings.extend(spec.topology().err());
    findings.extend(spec.guest_memory().err());
    // A machine may have nothing to boot: it says so on its console.
    findings.extend(spec.kernel_boot().err());
    processors(spec, findings);
    memory(spec, findings);
    firmware(spec, findings);
    machine_type(spec, findings);
    resources(spec, findings);
}

fn processors(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    let Some(cpu) = &spec.domain.cpu else { return };
    for (index, feature) in cpu.features.iter().enumerate() {
        findings.extend(cpu_feature(&format!("spec.domain.cpu.features[{index}]"), feature));
    }
    let most = cpu.max_sockets.filter(|most| *most != 0);
    if let (Some(sockets), Some(most)) = (cpu.sockets, most)
        && sockets > most
    {
        let message = format!("{sockets} sockets are more than maxSockets, which is {most}");
        findings.push(Finding::invalid("spec.domain.cpu.sockets", message));
    }
}

fn cpu_feature(path: &str, feature: &CpuFeature) -> Option<Finding> {
    if feature.name.is_empty() {
        return Some(Finding::missing(format!("{path}.name"), "name the feature"));
    }
    let policy = feature.policy.as_deref().filter(|policy| !policy.is_empty());
    let path = format!("{path}.policy");
    match policy.unwrap_or("require") {
        "optional" => {
            Some(Finding::no_effect(path, "the guest sees what the host's processors have"))
        }
        known @ ("force" | "require" | "disable" | "forbid") => {
            let message = format!(
                "{known} is not served: the guest sees what the host's processors have; \
                 write optional, or leave the feature out"
            );
            Some(Finding::not_served(path, message))
        }
        other => {
            let message =
                format!("{other:?} is none of force, require, optional, disable and forbid");
            Some(Finding::invalid(path, message))
        }
    }
}

fn memory(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    const MAX: &str = "spec.domain.memory.maxGuest";
    let most = spec.domain.memory.as_ref().and_then(|memory| memory.max_guest.as_ref());
    let Some(most) = most else { return };
    match (most.units(), spec.guest_memory()) {
        (Err(error), _) => findings.push(Finding::invalid(MAX, error.to_string())),
        (Ok(bytes), Ok(guest)) if guest > bytes => {
            let message = format!("the guest has more memory than {most}");
            findings.push(Finding::invalid(MAX, message));
        }
        _ => {}
    }
}

fn firmware(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    let Some(firmware) = &spec.domain.firmware else { return };
    if let Some(text) = firmware.uuid.as_deref().filter(|text| !text.is_empty())
        && parse_uuid(text).is_none()
    {
        let example = "5d307ca9-b3ef-428c-8861-06e72d69f223";
        let message = format!("{text:?} is no UUID such as {example}");
        findings.push(Finding::invalid("spec.domain.firmware.uuid", message));
    }
    if let Some(serial) = &firmware.serial
        && (serial.len() > SERIAL_BYTES || !is_printable(serial))
    {
        let message =
            format!("a serial number is made of printable ASCII, {SERIAL_BYTES} bytes at most");
        findings.push(Finding::invalid("spec.domain.firmware.serial", message));
    }
    let boot = firmware.kernel_boot.as_ref();
    if let Some(args) = boot.and_then(|boot| boot.kernel_args.as_deref()) {
        findings.extend(kernel_args(args));
    }
    let both = |bootloader: &crate::types::Bootloader| {
        bootloader.bios.is_some() && bootloader.efi.is_some()
    };
    if firmware.bootloader.as_ref().is_some_and(both) {
        let message = "it is either bios or efi, not both";
        findings.push(Finding::invalid("spec.domain.firmware.bootloader", message));
    }
}

fn kernel_args(args: &str) -> Option<Finding> {
    let message = if args.contains('\0') {
        "it has a NUL byte, which would end it".to_owned()
    } else if args.len() > KERNEL_ARGS_BYTES {
        format!("it has {} bytes: Linux takes {KERNEL_ARGS_BYTES} at most", args.len())
    } else {
        return None;
    };
    Some(Finding::invalid("spec.domain.firmware.kernelBoot.kernelArgs", message))
}

/// What KubeVirt accepts of this architecture: `q35*` and `pc-q35*`.
fn machine_type(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    const PATH: &str = "spec.domain.machine.type";
    let machine = spec.domain.machine.as_ref();
    let name = machine.and_then(|machine| machine.machine_type.as_deref()).unwrap_or_default();
    match name {
        // What is filled in where nothing is said.
        "" | "q35" => {}
        name if name.starts_with("q35") || name.starts_with("pc-q35") => {
            let message = "there is one type of machine, and it has its own version";
            findings.push(Finding::no_effect(PATH, message));
        }
        name => {
            let message =
                format!("{name:?} is no type of machine here: write q35, or leave it out");
            findings.push(Finding::not_served(PATH, message));
        }
    }
}

/// Amounts can be read, and a request is not over its limit.
fn resources(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    const PATH: &str = "spec.domain.resources";
    let Some(resources) = &spec.domain.resources else { return };
    for (list, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for (name, amount) in amounts {
            let read = amount.millis().map_err(|error| error.to_string());
            findings.extend(
                read.err().map(|error| Finding::invalid(format!("{PATH}.{list}.{name}"), error)),
            );
        }
    }
    for (name, request) in &resources.requests {
        let limit = resources.limits.get(name).and_then(|limit| limit.millis().ok());
        if let (Ok(wanted), Some(limit)) = (request.millis(), limit)
            && wanted > limit
        {
            let message = format!("{request} is more than the limit of {}", resources.limits[name]);
            findings.push(Finding::invalid(format!("{PATH}.requests.{name}"), message));
        }
    }
    if let (Ok(guest), Some(limit)) = (spec.guest_memory(), resources.limits.get("memory"))
        && limit.units().is_ok_and(|limit| guest > limit)
    {
        let message = format!("the guest has more memory than the limit of {limit}");
        findings.push(Finding::invalid("spec.domain.memory.guest", message));
    }
}
