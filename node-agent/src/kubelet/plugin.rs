//! The plugin of KVM: what kubelet is told of doors, and what a container gets with one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use corten_resources::names::KVM_RESOURCE;
use tokio::sync::watch;
use tracing::{info, warn};

use super::api::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DeviceSpec,
    ListAndWatchResponse, Mount,
};
use super::device_plugin::{AllocateError, DevicePlugin, health_word};
use crate::doors::{DeviceId, Doors};
use crate::ledger::Ledger;

/// What Pods ask for.
pub const RESOURCE: &str = KVM_RESOURCE;
/// Name of the plugin's socket in kubelet's directory.
const ENDPOINT: &str = "corten-kvm.sock";
/// Where a container finds the directory of its device.
const DOOR_MOUNT: &str = "/var/run/corten/door";
/// Where a container finds KVM. A launcher does not need it; others that ask for the resource do.
const KVM_NODE: &str = "/dev/kvm";

/// The plugin.
#[derive(Debug)]
pub struct Plugin {
    doors: Arc<Doors>,
    ledger: Ledger,
    kvm: PathBuf,
    usable: watch::Receiver<bool>,
}

impl Plugin {
    /// A plugin for `doors`, whose devices are healthy while `usable` says so.
    pub fn new(
        doors: Arc<Doors>,
        ledger: Ledger,
        kvm: &Path,
        usable: watch::Receiver<bool>,
    ) -> Self {
        Self { doors, ledger, kvm: kvm.into(), usable }
    }

    fn container(&self, devices: &[String]) -> Result<ContainerAllocateResponse, AllocateError> {
        let mut container = ContainerAllocateResponse::default();
        for (nth, name) in devices.iter().enumerate() {
            let device = self.doors.find(name)?;
            // First of all: from here on the device is nobody's until kubelet says whose it is.
            self.ledger.forget(&device)?;
            let path = self.doors.prepare(&device)?;
            self.doors.allocated(&device);
            info!(device = %device, "device given to a container");
            // A container with several devices has one door; the others stay shut.
            if nth > 0 {
                warn!(device = %device, "a container asked for more than one device");
                continue;
            }
            container.mounts.push(Mount {
                container_path: DOOR_MOUNT.into(),
                host_path: path.display().to_string(),
                read_only: false,
            });
            container.devices.push(DeviceSpec {
                container_path: KVM_NODE.into(),
                host_path: self.kvm.display().to_string(),
                permissions: "rw".into(),
            });
        }
        Ok(container)
    }
}

impl DevicePlugin for Plugin {
    fn resource(&self) -> &'static str {
        RESOURCE
    }

    fn endpoint(&self) -> &'static str {
        ENDPOINT
    }

    fn health(&self) -> watch::Receiver<bool> {
        self.usable.clone()
    }

    fn devices(&self, usable: bool) -> ListAndWatchResponse {
        let device = |id: &DeviceId| Device { id: id.as_str().into(), health: health_word(usable) };
        ListAndWatchResponse { devices: self.doors.ids().map(device).collect() }
    }

    fn allocate(&self, request: &AllocateRequest) -> Result<AllocateResponse, AllocateError> {
        let mut response = AllocateResponse::default();
        for container in &request.container_requests {
            response.container_responses.push(self.container(&container.devices_ids)?);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::api::ContainerAllocateRequest;
    use super::*;
    use crate::ledger::Entry;

    fn plugin(directory: &Path) -> Plugin {
        let doors = Doors::new(&directory.join("doors"), 3, nix::unistd::getuid().as_raw());
        let ledger = Ledger::open(&directory.join("ledger")).unwrap();
        Plugin::new(Arc::new(doors), ledger, Path::new("/dev/kvm"), watch::channel(true).1)
    }

    fn request(ids: &[&str]) -> AllocateRequest {
        let devices_ids = ids.iter().map(ToString::to_string).collect();
        AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids }] }
    }

    #[test]
    fn container_gets_its_door_and_the_kvm_node() {
        let directory = tempfile::tempdir().unwrap();
        let plugin = plugin(directory.path());
        let response = plugin.allocate(&request(&["kvm-1"])).unwrap();
        let container = &response.container_responses[0];
        let door = directory.path().join("doors/kvm-1");
        let mount = Mount {
            container_path: "/var/run/corten/door".into(),
            host_path: door.display().to_string(),
            read_only: false,
        };
        assert_eq!(container.mounts, [mount]);
        assert_eq!(container.devices[0].permissions, "rw");
        assert!(door.is_dir());
        assert!(plugin.doors.watch(&DeviceId::new(1)).unwrap().borrow().held);
    }

    #[test]
    fn new_pod_does_not_inherit_what_the_last_one_was() {
        let directory = tempfile::tempdir().unwrap();
        let plugin = plugin(directory.path());
        plugin.allocate(&request(&["kvm-0"])).unwrap();
        let device = DeviceId::new(0);
        let entry = Entry {
            pod_uid: "a".into(),
            vmi_namespace: "n".into(),
            vmi_name: "v".into(),
            vmi_uid: "u".into(),
        };
        plugin.ledger.record(&device, &entry).unwrap();
        fs::write(directory.path().join("doors/kvm-0/launcher.sock"), "").unwrap();
        plugin.allocate(&request(&["kvm-0"])).unwrap();
        assert_eq!(plugin.ledger.entry(&device), None);
        assert!(!directory.path().join("doors/kvm-0/launcher.sock").exists());
    }

    #[test]
    fn unknown_device_is_refused_and_nothing_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let error = plugin(directory.path()).allocate(&request(&["../../etc"])).unwrap_err();
        assert_eq!(error.to_string(), "\"../../etc\" is no device of this node");
        assert!(!directory.path().join("doors").exists());
    }

    #[test]
    fn two_devices_of_one_container_share_one_door() {
        let directory = tempfile::tempdir().unwrap();
        let response = plugin(directory.path()).allocate(&request(&["kvm-0", "kvm-2"])).unwrap();
        assert_eq!(response.container_responses[0].mounts.len(), 1);
    }
}
