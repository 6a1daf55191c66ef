//! What disks hold.

use super::text::{check_first, check_given, check_label, is_contained, is_printable};
use super::{Findings, downward_api};
use crate::Quantity;
use crate::base64;
use crate::finding::Finding;
use crate::machine::Source;
use crate::machine::limits::LABEL_BYTES;
use crate::types::{CloudInit, Disk, HostDisk, VirtualMachineInstanceSpec, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// As in KubeVirt.
const MOST_VOLUMES: usize = 256;
/// Bytes of a disk that is made.
const DISK_SIZES: RangeInclusive<u64> = 1 << 20..=16 << 40;
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
        let twice = || Finding::invalid(&name, format!("two volumes are called {:?}", volume.name));
        if check_label(&name, &volume.name, findings) {
            check_first(&mut names, volume.name.as_str(), twice, findings);
        }
        one_source(&path, volume, findings);
        accounts += usize::from(volume.service_account.is_some());
        if volume.service_account.is_some() && accounts > 1 {
            let message = "a machine has one service account at most";
            findings.push(Finding::invalid(format!("{path}.serviceAccount"), message));
        }
    }
    written_twice(spec, findings);
}

/// A file has one disk that is written to, or several that all say they share it.
fn written_twice(spec: &VirtualMachineInstanceSpec, findings: &mut Findings) {
    struct Use<'a> {
        volume: &'a str,
        is_read: bool,
        is_shared: bool,
    }
    let disk = |name: &str| spec.domain.devices.disks.iter().find(|disk| disk.name == name);
    let mut uses: BTreeMap<(&str, &str), Vec<Use<'_>>> = BTreeMap::new();
    for (index, volume) in spec.volumes.iter().enumerate() {
        let (field, kind, name, is_read) = match volume.source() {
            Some(Source::PersistentVolumeClaim(claim)) => {
                let is_read = claim.read_only == Some(true);
                ("persistentVolumeClaim.claimName", "claim", claim.claim_name.as_str(), is_read)
            }
            // What it fills is the claim of its name.
            Some(Source::DataVolume(data)) => {
                ("dataVolume.name", "claim", data.name.as_str(), false)
            }
            Some(Source::HostDisk(host)) => ("hostDisk.path", "file", host.path.as_str(), false),
            _ => continue,
        };
        if name.is_empty() {
            continue;
        }
        let disk = disk(&volume.name);
        let this = Use {
            volume: &volume.name,
            is_read: is_read || disk.is_some_and(Disk::is_read_only),
            is_shared: disk.is_some_and(|disk| disk.shareable == Some(true)),
        };
        let before = uses.entry((kind, name)).or_default();
        let clash = before
            .iter()
            .find(|it| !(it.is_read && this.is_read || it.is_shared && this.is_shared));
        if let Some(other) = clash {
            let message = format!(
                "the {kind} {name:?} is that of volume {:?} too; only disks that are read, or all say shareable, have one together",
                other.volume
            );
            findings.push(Finding::invalid(format!("spec.volumes[{index}].{field}"), message));
        }
        before.push(this);
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
            label(path, map.volume_label.as_deref(), findings);
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
        Source::DownwardApi(volume) => {
            label(path, volume.volume_label.as_deref(), findings);
            downward_api::check(path, volume, findings);
        }
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
            label(path, secret.volume_label.as_deref(), findings);
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

/// What the file system of a disk with files is called.
fn label(path: &str, label: Option<&str>, findings: &mut Findings) {
    if label.is_some_and(|label| label.len() > LABEL_BYTES || !is_printable(label)) {
        let message = format!("a label has at most {LABEL_BYTES} printable ASCII characters");
        findings.push(Finding::invalid(format!("{path}.volumeLabel"), message));
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
        Some((amount, Ok(bytes))) if !DISK_SIZES.contains(&bytes) => {
            let message = format!("{amount} is no size of a disk: it has 1Mi to 16Ti");
            findings.push(Finding::invalid(path, message));
        }
        Some((_, Ok(_))) => {}
        Some((_, Err(error))) => findings.push(Finding::invalid(path, error.to_string())),
    }
}

fn cloud_init(path: &str, data: &CloudInit, findings: &mut Findings) {
    let user = [
        ("userData", inline(data.user_data.as_deref())),
        ("userDataBase64", encoded(data.user_data_base64.as_deref())),
        ("secretRef", data.secret_ref.as_ref().map(|_| 0)),
    ];
    let network = [
        ("networkData", inline(data.network_data.as_deref())),
        ("networkDataBase64", encoded(data.network_data_base64.as_deref())),
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
            if length.is_some_and(|length| length > LONGEST_INLINE) {
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
    let texts = [
        ("userDataBase64", &data.user_data_base64),
        ("networkDataBase64", &data.network_data_base64),
    ];
    for (name, text) in texts {
        if text.as_deref().is_some_and(|text| base64::decode(text).is_none()) {
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

/// Bytes that a text in Base64 stands for, if one is given.
fn encoded(text: Option<&str>) -> Option<usize> {
    let text = text.filter(|text| !text.is_empty())?;
    Some(base64::decode(text).map_or(0, |bytes| bytes.len()))
}
