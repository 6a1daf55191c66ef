//! What disks hold.

use super::Findings;
use super::text::{check_first, check_given, check_label, is_contained};
use crate::Quantity;
use crate::finding::Finding;
use crate::machine::Source;
use crate::types::{CloudInit, DownwardApiVolume, HostDisk, VirtualMachineInstanceSpec, Volume};
use std::collections::BTreeSet;

/// As in KubeVirt.
const MOST_VOLUMES: usize = 256;
/// Bytes of each of cloud-init's data that may stand in the object itself, as in KubeVirt.
const LONGEST_INLINE: usize = 2048;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    if spec.volumes.len() > MOST_VOLUMES {
        let message = format!("{} volumes are more than {MOST_VOLUMES}", spec.volumes.len());
        findings.push(Finding::invalid("spec.volumes", message));
    }
    let mut names = BTreeSet::new();
    let mut accounts = 0;
    for (index, volume) in spec.volumes.iter().enumerate() {
        let path = format!("spec.volumes[{index}]");
        let name = format!("{path}.name");
        check_label(&name, &volume.name, findings);
        let twice = || Finding::invalid(&name, format!("two volumes are called {:?}", volume.name));
        check_first(&mut names, volume.name.as_str(), twice, findings);
        one_source(&path, volume, findings);
        accounts += usize::from(volume.service_account.is_some());
        if volume.service_account.is_some() && accounts > 1 {
            let message = "a machine has one service account at most";
            findings.push(Finding::invalid(format!("{path}.serviceAccount"), message));
        }
    }
}

fn one_source(path: &str, volume: &Volume, findings: &mut Findings) {
    let sources = volume.sources();
    if sources.is_empty() {
        findings.push(Finding::missing(path, "say what it holds, for example containerDisk"));
    }
    if sources.len() > 1 {
        let message = format!("it may hold one thing, not {}", sources.len());
        findings.push(Finding::invalid(path, message));
    }
    for source in sources {
        check_source(&format!("{path}.{}", source.field()), source, findings);
    }
}

fn check_source(path: &str, source: Source<'_>, findings: &mut Findings) {
    match source {
        Source::CloudInitConfigDrive(data) | Source::CloudInitNoCloud(data) => {
            cloud_init(path, data, findings);
        }
        Source::ConfigMap(map) => {
            let what = "name the ConfigMap";
            check_given(&format!("{path}.name"), map.name.as_deref(), what, findings);
        }
        Source::ContainerDisk(disk) => {
            let what = "name the image that holds the disk";
            check_given(&format!("{path}.image"), Some(&disk.image), what, findings);
            if let Some(inside) = disk.path.as_deref().filter(|inside| !is_contained(inside)) {
                let message = format!("{inside:?} is not a path inside the image");
                findings.push(Finding::invalid(format!("{path}.path"), message));
            }
        }
        Source::DataVolume(volume) => {
            let what = "name the DataVolume";
            check_given(&format!("{path}.name"), Some(&volume.name), what, findings);
        }
        Source::DownwardApi(volume) => downward_api(path, volume, findings),
        Source::EmptyDisk(disk) => {
            capacity(path, disk.capacity.as_ref(), true, findings);
        }
        Source::Ephemeral(volume) => {
            let claim = volume.persistent_volume_claim.as_ref().map(|it| it.claim_name.as_str());
            let path = format!("{path}.persistentVolumeClaim.claimName");
            check_given(&path, claim, "name the claim", findings);
        }
        Source::HostDisk(disk) => host_disk(path, disk, findings),
        Source::PersistentVolumeClaim(claim) => {
            let path = format!("{path}.claimName");
            check_given(&path, Some(&claim.claim_name), "name the claim", findings);
        }
        Source::Secret(secret) => {
            let path = format!("{path}.secretName");
            check_given(&path, secret.secret_name.as_deref(), "name the Secret", findings);
        }
        Source::ServiceAccount(account) => {
            let path = format!("{path}.serviceAccountName");
            let name = account.service_account_name.as_deref();
            check_given(&path, name, "name the service account", findings);
        }
        // Without fields, or refused whole.
        Source::ContainerPath(_)
        | Source::DownwardMetrics(_)
        | Source::MemoryDump(_)
        | Source::Sysprep(_) => {}
    }
}

fn host_disk(path: &str, disk: &HostDisk, findings: &mut Findings) {
    if !disk.path.starts_with('/') || !is_contained(&disk.path) {
        let message = format!("{:?} is no absolute path without \"..\"", disk.path);
        findings.push(Finding::invalid(format!("{path}.path"), message));
    }
    if disk.kind.is_empty() {
        let message = "say Disk, or DiskOrCreate if it may be made";
        findings.push(Finding::missing(format!("{path}.type"), message));
    }
    capacity(path, disk.capacity.as_ref(), disk.kind == "DiskOrCreate", findings);
}

fn capacity(path: &str, amount: Option<&Quantity>, needed: bool, findings: &mut Findings) {
    let path = format!("{path}.capacity");
    match amount.map(|amount| (amount, amount.units())) {
        None if needed => findings.push(Finding::missing(path, "say how large it is")),
        None => {}
        Some((amount, Ok(0))) => {
            findings.push(Finding::invalid(path, format!("{amount} is no size of a disk")));
        }
        Some((_, Ok(_))) => {}
        Some((_, Err(error))) => findings.push(Finding::invalid(path, error.to_string())),
    }
}

fn downward_api(path: &str, volume: &DownwardApiVolume, findings: &mut Findings) {
    for (index, file) in volume.fields.iter().enumerate() {
        let path = format!("{path}.fields[{index}]");
        if file.path.is_empty() || file.path.starts_with('/') || !is_contained(&file.path) {
            let message = format!("{:?} is no path inside the volume", file.path);
            findings.push(Finding::invalid(format!("{path}.path"), message));
        }
        let field = file.field_ref.as_ref().map(|field| field.field_path.as_str());
        if file.resource_field_ref.is_none() {
            check_given(&format!("{path}.fieldRef.fieldPath"), field, "name the field", findings);
        }
    }
}

fn cloud_init(path: &str, data: &CloudInit, findings: &mut Findings) {
    let user = [
        ("userData", inline(data.user_data.as_deref())),
        ("userDataBase64", inline(data.user_data_base64.as_deref())),
        ("secretRef", data.secret_ref.as_ref().map(|_| 0)),
    ];
    let network = [
        ("networkData", inline(data.network_data.as_deref())),
        ("networkDataBase64", inline(data.network_data_base64.as_deref())),
        ("networkDataSecretRef", data.network_data_secret_ref.as_ref().map(|_| 0)),
    ];
    for kind in [&user, &network] {
        let given: Vec<_> = kind.iter().filter(|(_, length)| length.is_some()).collect();
        if given.len() > 1 {
            let names: Vec<_> = kind.iter().map(|(name, _)| *name).collect();
            findings
                .push(Finding::invalid(path, format!("it may have one of {}", names.join(", "))));
        }
        for (name, length) in given {
            // Three bytes are four characters.
            let most =
                if name.ends_with("64") { LONGEST_INLINE.div_ceil(3) * 4 } else { LONGEST_INLINE };
            if length.is_some_and(|length| length > most) {
                let message = format!(
                    "more than {LONGEST_INLINE} bytes do not belong into the object: put them into a Secret"
                );
                findings.push(Finding::invalid(format!("{path}.{name}"), message));
            }
        }
    }
    if user.iter().chain(&network).all(|(_, length)| length.is_none()) {
        findings.push(Finding::missing(path, "it has neither user data nor network data"));
    }
    let encoded = [
        ("userDataBase64", &data.user_data_base64),
        ("networkDataBase64", &data.network_data_base64),
    ];
    for (name, text) in encoded {
        if text.as_deref().is_some_and(|text| !is_base64(text)) {
            findings.push(Finding::invalid(format!("{path}.{name}"), "it is not Base64"));
        }
    }
    let secrets =
        [("secretRef", &data.secret_ref), ("networkDataSecretRef", &data.network_data_secret_ref)];
    for (name, reference) in secrets {
        if let Some(secret) = reference {
            let path = format!("{path}.{name}.name");
            check_given(&path, secret.name.as_deref(), "name the Secret", findings);
        }
    }
}

/// Length of a text that is given.
fn inline(text: Option<&str>) -> Option<usize> {
    text.filter(|text| !text.is_empty()).map(str::len)
}

/// Standard Base64 with its padding; line ends are passed over, as encoders make them.
fn is_base64(text: &str) -> bool {
    let digits: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let padding = digits.iter().rev().take_while(|byte| **byte == b'=').count();
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    digits.len().is_multiple_of(4)
        && padding <= 2
        && digits[..digits.len() - padding].iter().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_known_from_other_text() {
        for text in ["", "YQ==", "YWI=", "YWJj", "YW\nJj\n", "+/+/"] {
            assert!(is_base64(text), "{text}");
        }
        for text in ["YQ", "Y===", "YQ=a", "#cloud-config", "YWJ-", "===="] {
            assert!(!is_base64(text), "{text}");
        }
    }
}
