//! Volumes of a launcher Pod, and where the launcher finds each.
//!
//! | volume | in the Pod | in the container |
//! |---|---|---|
//! | kernelBoot | image volume | `KERNEL_BOOT_MOUNT` |
//! | containerDisk | image volume | `VOLUMES_MOUNT/NAME` |
//! | persistentVolumeClaim, dataVolume, ephemeral | the claim | mounted there, or as block device there |
//! | configMap, secret, sysprep, downwardAPI | the same | mounted there |
//! | serviceAccount | token, authority and namespace, projected | mounted there |
//! | Secrets of cloud-init and access credentials | secret | `SECRETS_MOUNT/NAME` |
//! | overlays and empty disks, together | emptyDir | `SCRATCH_MOUNT` |
//! | inline cloud-init, downwardMetrics | nothing: the launcher makes them | |

mod sources;

use super::{Claims, given, some};
use crate::Settings;
use corten_resources::machine::Source;
use corten_resources::names::{KERNEL_BOOT_MOUNT, SCRATCH_MOUNT, SECRETS_MOUNT, VOLUMES_MOUNT};
use corten_resources::types::{VirtualMachineInstanceSpec, Volume};
use corten_resources::validate::Finding;
use k8s_openapi::api::core::v1 as core;
use std::collections::BTreeSet;

/// Whoever may read them by group: the launcher, by fsGroup.
const FOR_THE_GROUP: i32 = 0o440;
/// The volume with kernel and initial RAM disk.
const KERNEL_BOOT: &str = "kernel-boot";
/// The volume for what ends with the VM.
const SCRATCH: &str = "scratch";
/// Volumes with Secrets that no volume of the user's stands for.
const SECRET: &str = "secret";

/// What a Pod has of volumes.
#[derive(Debug, Default)]
pub(super) struct Storage {
    pub(super) volumes: Vec<core::Volume>,
    pub(super) mounts: Vec<core::VolumeMount>,
    pub(super) devices: Vec<core::VolumeDevice>,
    pub(super) pull_secrets: Vec<core::LocalObjectReference>,
    /// What the guest writes may fill the node's disk.
    pub(super) has_scratch: bool,
    /// Names that are taken. Those of users come first: they choose, we evade.
    names: BTreeSet<String>,
}

/// How the container sees a volume.
enum Place {
    /// As a directory.
    Mounted { path: String, read_only: bool },
    /// As a block device.
    Device { path: String },
}

pub(super) fn of_pod(
    spec: &VirtualMachineInstanceSpec,
    claims: &Claims,
    settings: &Settings,
) -> Result<Storage, Finding> {
    let mut storage = Storage {
        names: spec.volumes.iter().map(|volume| volume.name.clone()).collect(),
        ..Storage::default()
    };
    storage.add_kernel(spec);
    for (index, volume) in spec.volumes.iter().enumerate() {
        let Some(source) = volume.source() else { continue };
        let path = format!("spec.volumes[{index}].{}", source.field());
        storage.add(&path, volume, source, claims)?;
    }
    for secret in sources::secrets(spec) {
        storage.add_secret(secret);
    }
    storage.add_scratch(spec)?;
    for secret in &settings.image_pull_secrets {
        storage.pull_with(Some(secret));
    }
    Ok(storage)
}

/// The service account of the Pod: that of its volume, as its token is for that account, else the one that is named.
pub(super) fn service_account(spec: &VirtualMachineInstanceSpec) -> Option<String> {
    let of_volume = spec.volumes.iter().find_map(|volume| volume.service_account.as_ref());
    given(of_volume.and_then(|account| account.service_account_name.as_ref()))
        .or_else(|| given(spec.service_account_name.as_ref()))
}

/// Whether the API server left image volumes out of a Pod: one that does not know them takes them for empty
/// directories.
pub fn lacks_images(pod: &core::Pod, spec: &VirtualMachineInstanceSpec) -> bool {
    let wanted = spec.volumes.iter().filter(|volume| volume.container_disk.is_some()).count()
        + usize::from(spec.kernel_container().is_some());
    let volumes = pod.spec.as_ref().and_then(|pod| pod.volumes.as_ref());
    let there = volumes.map_or(0, |all| all.iter().filter(|one| one.image.is_some()).count());
    there < wanted
}

impl Storage {
    fn add_kernel(&mut self, spec: &VirtualMachineInstanceSpec) {
        let Some(kernel) = spec.kernel_container() else { return };
        let volume = sources::image(&kernel.image, kernel.image_pull_policy.as_ref());
        let name = self.free_name(KERNEL_BOOT);
        let place = Place::Mounted { path: KERNEL_BOOT_MOUNT.to_owned(), read_only: true };
        self.push(name, volume, place);
        self.pull_with(kernel.image_pull_secret.as_ref());
    }

    fn add(
        &mut self,
        path: &str,
        volume: &Volume,
        source: Source<'_>,
        claims: &Claims,
    ) -> Result<(), Finding> {
        let mount = format!("{VOLUMES_MOUNT}/{}", volume.name);
        let read = |path| Place::Mounted { path, read_only: true };
        let (volume_source, place) = match source {
            Source::ContainerDisk(disk) => {
                self.pull_with(disk.image_pull_secret.as_ref());
                (sources::image(&disk.image, disk.image_pull_policy.as_ref()), read(mount))
            }
            Source::PersistentVolumeClaim(claim) => {
                let wanted = sources::Claim {
                    name: &claim.claim_name,
                    is_read_only: claim.read_only == Some(true),
                    is_only_read: claim.read_only == Some(true),
                };
                sources::claim(path, wanted, mount, claims)?
            }
            // The claim that it fills has its name.
            Source::DataVolume(data) => {
                let wanted =
                    sources::Claim { name: &data.name, is_read_only: false, is_only_read: false };
                sources::claim(path, wanted, mount, claims)?
            }
            Source::Ephemeral(source) => {
                let claim = source.persistent_volume_claim.as_ref();
                let missing = || Finding::missing(path, "name the claim");
                let claim = claim.ok_or_else(missing)?;
                let wanted = sources::Claim {
                    name: &claim.claim_name,
                    is_read_only: claim.read_only == Some(true),
                    is_only_read: true,
                };
                sources::claim(path, wanted, mount, claims)?
            }
            Source::ConfigMap(map) => {
                (sources::config_map(map.name.as_ref(), map.optional), read(mount))
            }
            Source::Secret(secret) => {
                (sources::secret(secret.secret_name.as_ref(), secret.optional), read(mount))
            }
            Source::Sysprep(answers) => {
                let map = answers.config_map.as_ref().map(|map| map.name.as_ref());
                let secret = answers.secret.as_ref().and_then(|secret| secret.name.as_ref());
                let source = map.map_or_else(
                    || sources::secret(secret, None),
                    |name| sources::config_map(name, None),
                );
                (source, read(mount))
            }
            Source::DownwardApi(api) => (sources::downward_api(api), read(mount)),
            Source::ServiceAccount(_) => (sources::service_account(), read(mount)),
            // The launcher makes them, in memory or on scratch.
            Source::CloudInitConfigDrive(_)
            | Source::CloudInitNoCloud(_)
            | Source::DownwardMetrics(_)
            | Source::EmptyDisk(_) => return Ok(()),
            // A directory of the node, which "restricted" does not allow and which would be any directory of any node.
            Source::HostDisk(_) => {
                let message = "files of the node are not given to guests of a cluster: use a claim";
                return Err(Finding::not_served(path, message));
            }
            Source::ContainerPath(_) | Source::MemoryDump(_) => {
                return Err(Finding::not_served(path, "no disk can be made of it"));
            }
        };
        self.push(volume.name.clone(), volume_source, place);
        Ok(())
    }

    fn add_secret(&mut self, name: &str) {
        let volume = self.free_name(SECRET);
        let source = sources::secret(Some(&name.to_owned()), None);
        let path = format!("{SECRETS_MOUNT}/{name}");
        self.push(volume, source, Place::Mounted { path, read_only: true });
    }

    fn add_scratch(&mut self, spec: &VirtualMachineInstanceSpec) -> Result<(), Finding> {
        let Some(limit) = sources::scratch(spec)? else { return Ok(()) };
        self.has_scratch = true;
        let source = core::Volume {
            empty_dir: Some(core::EmptyDirVolumeSource { size_limit: limit, medium: None }),
            ..Default::default()
        };
        let name = self.free_name(SCRATCH);
        let path = SCRATCH_MOUNT.to_owned();
        self.push(name, source, Place::Mounted { path, read_only: false });
        Ok(())
    }

    fn push(&mut self, name: String, volume: core::Volume, place: Place) {
        match place {
            Place::Mounted { path, read_only } => self.mounts.push(core::VolumeMount {
                name: name.clone(),
                mount_path: path,
                read_only: read_only.then_some(true),
                ..Default::default()
            }),
            Place::Device { path } => {
                self.devices.push(core::VolumeDevice { name: name.clone(), device_path: path });
            }
        }
        self.volumes.push(core::Volume { name, ..volume });
    }

    /// A name like this one that no other volume has.
    fn free_name(&mut self, name: &str) -> String {
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| !self.names.contains(name))
            .unwrap_or_default();
        self.names.insert(free.clone());
        free
    }

    fn pull_with(&mut self, secret: Option<&String>) {
        let Some(name) = given(secret) else { return };
        if self.pull_secrets.iter().all(|known| known.name != name) {
            self.pull_secrets.push(core::LocalObjectReference { name });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_names_evade_those_of_users() {
        let mut storage = Storage {
            names: ["scratch".to_owned(), "scratch-2".to_owned()].into(),
            ..Storage::default()
        };
        let names = ["scratch", "secret", "secret"].map(|name| storage.free_name(name));
        assert_eq!(names, ["scratch-3", "secret", "secret-2"]);
    }
}
