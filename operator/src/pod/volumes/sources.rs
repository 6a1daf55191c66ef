//! Each kind of volume as Kubernetes has it.

use super::{Claims, FOR_THE_GROUP, Place, given, some};
use corten_resources::Quantity;
use corten_resources::machine::Source;
use corten_resources::types::{DownwardApiVolume, VirtualMachineInstanceSpec};
use corten_resources::validate::Finding;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as PodQuantity;
use std::collections::BTreeSet;

/// What file systems need beyond the files on scratch.
const BEYOND_DISKS: u64 = 16 << 20;
/// Seconds for which a token is good; kubelet brings a new one in time. What kubelet itself gives containers.
const TOKEN_SECONDS: i64 = 3607;

pub(super) fn image(reference: &str, pull_policy: Option<&String>) -> core::Volume {
    core::Volume {
        image: Some(core::ImageVolumeSource {
            reference: Some(reference.to_owned()),
            pull_policy: given(pull_policy),
        }),
        ..Default::default()
    }
}

/// A claim that is wanted.
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    pub(super) name: &'a str,
    /// The node has it for reading only. kubelet then leaves its files with whoever has them.
    pub(super) is_read_only: bool,
    /// The launcher has it for reading only.
    pub(super) is_only_read: bool,
}

/// A claim, mounted or as a block device, as the claim itself says.
pub(super) fn claim(
    path: &str,
    wanted: Claim<'_>,
    mount: String,
    claims: &Claims,
) -> Result<(core::Volume, Place), Finding> {
    let Claim { name, is_read_only, is_only_read } = wanted;
    let Some(claim) = claims.get(name) else {
        return Err(Finding::missing(path, format!("there is no PersistentVolumeClaim {name}")));
    };
    let mode = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    let is_block = mode == Some("Block");
    let volume = core::Volume {
        persistent_volume_claim: Some(core::PersistentVolumeClaimVolumeSource {
            claim_name: name.to_owned(),
            read_only: is_read_only.then_some(true),
        }),
        ..Default::default()
    };
    let place = if is_block {
        Place::Device { path: mount }
    } else {
        Place::Mounted { path: mount, read_only: is_only_read }
    };
    Ok((volume, place))
}

pub(super) fn config_map(name: Option<&String>, optional: Option<bool>) -> core::Volume {
    core::Volume {
        config_map: Some(core::ConfigMapVolumeSource {
            name: name.cloned().unwrap_or_default(),
            optional,
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(super) fn secret(name: Option<&String>, optional: Option<bool>) -> core::Volume {
    core::Volume {
        secret: Some(core::SecretVolumeSource {
            secret_name: name.cloned(),
            optional,
            default_mode: Some(FOR_THE_GROUP),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Fields of the Pod, which has the labels and annotations of its VirtualMachineInstance.
pub(super) fn downward_api(volume: &DownwardApiVolume) -> core::Volume {
    let items = volume.fields.iter().map(|file| core::DownwardAPIVolumeFile {
        path: file.path.clone(),
        field_ref: file.field_ref.as_ref().map(|field| core::ObjectFieldSelector {
            api_version: given(field.api_version.as_ref()),
            field_path: field.field_path.clone(),
        }),
        ..Default::default()
    });
    core::Volume {
        downward_api: Some(core::DownwardAPIVolumeSource {
            items: some(items.collect()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// What a container finds of its service account, where nothing is mounted by itself.
pub(super) fn service_account() -> core::Volume {
    let token = core::VolumeProjection {
        service_account_token: Some(core::ServiceAccountTokenProjection {
            path: "token".to_owned(),
            expiration_seconds: Some(TOKEN_SECONDS),
            ..Default::default()
        }),
        ..Default::default()
    };
    let authority = core::VolumeProjection {
        config_map: Some(core::ConfigMapProjection {
            name: "kube-root-ca.crt".to_owned(),
            items: Some(vec![core::KeyToPath {
                key: "ca.crt".to_owned(),
                path: "ca.crt".to_owned(),
                mode: None,
            }]),
            ..Default::default()
        }),
        ..Default::default()
    };
    let namespace = core::VolumeProjection {
        downward_api: Some(core::DownwardAPIProjection {
            items: Some(vec![core::DownwardAPIVolumeFile {
                path: "namespace".to_owned(),
                field_ref: Some(core::ObjectFieldSelector {
                    api_version: None,
                    field_path: "metadata.namespace".to_owned(),
                }),
                ..Default::default()
            }]),
        }),
        ..Default::default()
    };
    core::Volume {
        projected: Some(core::ProjectedVolumeSource {
            sources: Some(vec![token, authority, namespace]),
            default_mode: Some(FOR_THE_GROUP),
        }),
        ..Default::default()
    }
}

/// Secrets that cloud-init volumes and access credentials name, each once.
pub(super) fn secrets(spec: &VirtualMachineInstanceSpec) -> BTreeSet<&str> {
    let seeds = spec.volumes.iter().filter_map(|volume| match volume.source()? {
        Source::CloudInitConfigDrive(seed) | Source::CloudInitNoCloud(seed) => Some(seed),
        _ => None,
    });
    let of_seeds = seeds
        .flat_map(|seed| [seed.secret_ref.as_ref(), seed.network_data_secret_ref.as_ref()])
        .filter_map(|reference| reference?.name.as_deref());
    let of_credentials = spec.access_credentials.iter().flat_map(|credential| {
        let keys = credential.ssh_public_key.as_ref().and_then(|keys| keys.source.secret.as_ref());
        let password = credential.user_password.as_ref();
        let password = password.and_then(|password| password.source.secret.as_ref());
        [keys, password].into_iter().flatten().map(|secret| secret.secret_name.as_str())
    });
    of_seeds.chain(of_credentials).filter(|name| !name.is_empty()).collect()
}

/// The room that is needed for what ends with the VM: none, or so much, or nobody knows. A full overlay is as large as
/// its image, which nobody has seen yet.
pub(super) fn scratch(
    spec: &VirtualMachineInstanceSpec,
) -> Result<Option<Option<PodQuantity>>, Finding> {
    let is_written = |name: &str| {
        let disk = spec.domain.devices.disks.iter().find(|disk| disk.name == name);
        disk.is_none_or(|disk| !disk.is_read_only())
    };
    let (mut overlays, mut empty) = (0, None);
    for (index, volume) in spec.volumes.iter().enumerate() {
        match volume.source() {
            Some(Source::EmptyDisk(disk)) => {
                let path = || format!("spec.volumes[{index}].emptyDisk.capacity");
                let amount = disk.capacity.as_ref();
                let amount =
                    amount.ok_or_else(|| Finding::missing(path(), "say how large it is"))?;
                let bytes =
                    amount.units().map_err(|error| Finding::invalid(path(), error.to_string()))?;
                empty = Some(empty.unwrap_or(0_u64).saturating_add(bytes));
            }
            Some(Source::ContainerDisk(_) | Source::Ephemeral(_)) if is_written(&volume.name) => {
                overlays += 1;
            }
            _ => {}
        }
    }
    Ok(match (overlays, empty) {
        (0, None) => None,
        (0, Some(bytes)) => {
            let limit = Quantity::of_bytes(bytes.saturating_add(BEYOND_DISKS));
            Some(Some(PodQuantity(limit.to_string())))
        }
        _ => Some(None),
    })
}
