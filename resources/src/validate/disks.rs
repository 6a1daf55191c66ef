//! Disks as the guest sees them, and that each has a volume.

use super::Findings;
use super::text::{check_first, check_label};
use crate::finding::Finding;
use crate::machine::DISK_SERIAL_LENGTH;
use crate::types::{Disk, VirtualMachineInstanceSpec};
use std::collections::BTreeSet;

const PATH: &str = "spec.domain.devices.disks";
/// As in KubeVirt. What of it the guest reads is less.
const LONGEST_SERIAL: usize = 256;
/// What the disk device can do.
const BLOCK_SIZES: std::ops::RangeInclusive<i32> = 512..=64 << 10;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    let volumes: BTreeSet<&str> = spec.volumes.iter().map(|volume| volume.name.as_str()).collect();
    let mut names = BTreeSet::new();
    for (index, disk) in spec.domain.devices.disks.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let name = format!("{path}.name");
        let is_named = check_label(&name, &disk.name, findings);
        let twice = || Finding::invalid(&name, format!("two disks are called {:?}", disk.name));
        if is_named {
            check_first(&mut names, disk.name.as_str(), twice, findings);
        }
        if is_named && !volumes.contains(disk.name.as_str()) {
            let message = format!("there is no volume {:?} for it in spec.volumes", disk.name);
            findings.push(Finding::missing(&name, message));
        }
        one_kind(&path, disk, findings);
        serial(&path, disk, findings);
        block_size(&path, disk, findings);
    }
    boot_order(spec, findings);
}

fn one_kind(path: &str, disk: &Disk, findings: &mut Findings) {
    let kinds = [disk.disk.is_some(), disk.cdrom.is_some(), disk.lun.is_some()];
    if kinds.iter().filter(|given| **given).count() > 1 {
        findings.push(Finding::invalid(path, "it is one of disk, cdrom and lun"));
    }
}

fn serial(path: &str, disk: &Disk, findings: &mut Findings) {
    let Some(serial) = disk.serial.as_deref() else { return };
    let path = format!("{path}.serial");
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
    if serial.len() > LONGEST_SERIAL || !serial.bytes().all(known) {
        let message = format!(
            "a serial number has at most {LONGEST_SERIAL} letters, digits and the signs _ . + -"
        );
        findings.push(Finding::invalid(path, message));
    } else if serial.len() > DISK_SERIAL_LENGTH {
        let message = format!("the guest reads its first {DISK_SERIAL_LENGTH} characters");
        findings.push(Finding::no_effect(path, message));
    }
}

fn block_size(path: &str, disk: &Disk, findings: &mut Findings) {
    let Some(size) = &disk.block_size else { return };
    let path = format!("{path}.blockSize");
    let Some(custom) = &size.custom else { return };
    if size.match_volume.as_ref().is_some_and(|matched| matched.enabled != Some(false)) {
        findings.push(Finding::invalid(&path, "it is either custom or matchVolume, not both"));
    }
    let path = format!("{path}.custom");
    let fits = |size: i32| BLOCK_SIZES.contains(&size) && size.unsigned_abs().is_power_of_two();
    match custom.logical {
        None => findings.push(Finding::missing(format!("{path}.logical"), "say how large it is")),
        Some(size) if !fits(size) => {
            let message = format!("{size} is not a power of two between 512 and 65536");
            findings.push(Finding::invalid(format!("{path}.logical"), message));
        }
        Some(_) => {}
    }
    if let (Some(logical), Some(physical)) = (custom.logical, custom.physical)
        && physical < logical
    {
        let message = format!("{physical} is less than the logical size of {logical}");
        findings.push(Finding::invalid(format!("{path}.physical"), message));
    }
}

/// Disks and interfaces have their places in one order.
fn boot_order(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    let devices = &spec.domain.devices;
    let disks = devices.disks.iter().map(|disk| disk.boot_order).enumerate();
    let interfaces = devices.interfaces.iter().map(|interface| interface.boot_order).enumerate();
    let places = disks
        .map(|(index, place)| ("disks", index, place))
        .chain(interfaces.map(|(index, place)| ("interfaces", index, place)));
    let mut taken = BTreeSet::new();
    for (list, index, place) in places {
        let Some(place) = place else { continue };
        let path = format!("spec.domain.devices.{list}[{index}].bootOrder");
        if place < 1 {
            findings.push(Finding::invalid(path, format!("{place} is no place: the first is 1")));
            continue;
        }
        let twice = || Finding::invalid(path, format!("another device has the place {place}"));
        check_first(&mut taken, place, twice, findings);
    }
}
