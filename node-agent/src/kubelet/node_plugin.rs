//! Plugins that give out a device file of the node and nothing else: launchers do not ask for them, as their agent opens what
//! they need, but other Pods of KubeVirt's tools do, and look for the resources on nodes.

use std::path::{Path, PathBuf};

use corten_resources::names::{TUN_RESOURCE, VHOST_NET_RESOURCE};
use tokio::sync::watch;

use super::api::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DeviceSpec,
    ListAndWatchResponse,
};
use super::device_plugin::{AllocateError, DevicePlugin, health_word};

/// How often the file is there to be given out: it can be opened by any number, and kubelet only counts. As KubeVirt has it.
const TIMES: u16 = 1000;

/// A device file under a resource's name.
#[derive(Debug)]
pub struct NodePlugin {
    resource: &'static str,
    endpoint: &'static str,
    id: &'static str,
    path: PathBuf,
    usable: watch::Receiver<bool>,
}

impl NodePlugin {
    /// TAPs are made by it.
    pub fn tun(path: &Path, usable: watch::Receiver<bool>) -> Self {
        let (endpoint, id) = ("corten-tun.sock", "tun");
        Self { resource: TUN_RESOURCE, endpoint, id, path: path.into(), usable }
    }

    /// The kernel moves packets by it.
    pub fn vhost_net(path: &Path, usable: watch::Receiver<bool>) -> Self {
        let (endpoint, id) = ("corten-vhost-net.sock", "vhost-net");
        Self { resource: VHOST_NET_RESOURCE, endpoint, id, path: path.into(), usable }
    }

    fn number_of(&self, device: &str) -> Option<u16> {
        let number = device.strip_prefix(self.id)?.strip_prefix('-')?.parse().ok()?;
        (number < TIMES && device == self.name(number)).then_some(number)
    }

    fn name(&self, number: u16) -> String {
        format!("{}-{number}", self.id)
    }
}

impl DevicePlugin for NodePlugin {
    fn resource(&self) -> &'static str {
        self.resource
    }

    fn endpoint(&self) -> &'static str {
        self.endpoint
    }

    fn health(&self) -> watch::Receiver<bool> {
        self.usable.clone()
    }

    fn devices(&self, usable: bool) -> ListAndWatchResponse {
        let device = |number| Device { id: self.name(number), health: health_word(usable) };
        ListAndWatchResponse { devices: (0..TIMES).map(device).collect() }
    }

    /// However many a container asks for, the file is in it once.
    fn allocate(&self, request: &AllocateRequest) -> Result<AllocateResponse, AllocateError> {
        let mut response = AllocateResponse::default();
        for container in &request.container_requests {
            for device in &container.devices_ids {
                let unknown = || AllocateError::Unknown(device.chars().take(80).collect());
                self.number_of(device).ok_or_else(unknown)?;
            }
            let path = self.path.display().to_string();
            let device = DeviceSpec {
                container_path: path.clone(),
                host_path: path,
                permissions: "mrw".into(),
            };
            response.container_responses.push(ContainerAllocateResponse {
                devices: vec![device],
                ..ContainerAllocateResponse::default()
            });
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::super::api::ContainerAllocateRequest;
    use super::*;

    fn tun() -> NodePlugin {
        NodePlugin::tun(Path::new("/dev/net/tun"), watch::channel(true).1)
    }

    fn request(ids: &[&str]) -> AllocateRequest {
        let devices_ids = ids.iter().map(ToString::to_string).collect();
        AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids }] }
    }

    #[test]
    fn container_gets_the_file_once_at_its_own_place() {
        let response = tun().allocate(&request(&["tun-0", "tun-999"])).unwrap();
        let devices = &response.container_responses[0].devices;
        assert_eq!(devices.len(), 1);
        assert_eq!(devices[0].container_path, "/dev/net/tun");
        assert_eq!(devices[0].host_path, "/dev/net/tun");
    }

    #[test]
    fn devices_that_were_never_offered_are_refused() {
        for id in ["tun-1000", "tun-01", "tun", "vhost-net-1", "tun--1", ""] {
            let error = tun().allocate(&request(&[id])).unwrap_err();
            assert!(matches!(error, AllocateError::Unknown(_)), "{id}");
        }
        let offered = tun().devices(true).devices;
        assert_eq!(offered.len(), usize::from(TIMES));
        let ids: Vec<_> = offered.iter().map(|device| device.id.as_str()).collect();
        tun().allocate(&request(&ids)).unwrap();
    }
}
