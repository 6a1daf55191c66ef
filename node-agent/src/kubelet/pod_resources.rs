//! Which Pod has which device, by kubelet's PodResources.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tonic::transport::Channel;

use super::RESOURCE;
use super::api::{ListPodResourcesRequest, ListPodResourcesResponse};
use super::client::{RpcError, call, connect};
use crate::doors::DeviceId;
use crate::identity::{Allocations, PodName};

/// kubelet answers a hundred lists a second and refuses more. Many doors share one list this old.
const FRESH: Duration = Duration::from_millis(100);
/// That kubelet did not answer holds as long for those who asked meanwhile: each would wait for it in turn.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// A client of PodResources. Whoever asks while a list is under way waits for that one.
#[derive(Debug)]
pub struct PodResources {
    socket: PathBuf,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    channel: Option<Channel>,
    list: Option<(Instant, Allocations)>,
    /// When it was asked without success, and when that was clear.
    failed: Option<(Instant, Instant)>,
}

impl PodResources {
    /// A client of the socket at `socket`.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.into(), shared: Mutex::default() }
    }

    /// Which Pods have which devices, now or a moment ago, but not before `earliest`: what was so before may since have
    /// been given to somebody else.
    pub async fn allocations(&self, earliest: Instant) -> Result<Allocations, RpcError> {
        let mut shared = self.shared.lock().await;
        if let Some((at, list)) = &shared.list
            && *at >= earliest
            && at.elapsed() < FRESH
        {
            return Ok(list.clone());
        }
        if let Some((asked, over)) = shared.failed
            && asked >= earliest
            && over.elapsed() < FAILED_FOR
        {
            return Err(RpcError::Before);
        }
        let asked = Instant::now();
        // A connection from before may be to a kubelet that has restarted since.
        let before = match shared.channel.take() {
            Some(channel) => list(&channel).await.ok().map(|list| (channel, list)),
            None => None,
        };
        let (channel, list) = match before {
            Some(answered) => answered,
            None => match self.ask_anew().await {
                Ok(answered) => answered,
                Err(error) => {
                    shared.failed = Some((asked, Instant::now()));
                    return Err(error);
                }
            },
        };
        shared.failed = None;
        shared.channel = Some(channel);
        shared.list = Some((asked, list.clone()));
        Ok(list)
    }

    async fn ask_anew(&self) -> Result<(Channel, Allocations), RpcError> {
        let channel = connect(&self.socket).await?;
        let list = list(&channel).await?;
        Ok((channel, list))
    }
}

async fn list(channel: &Channel) -> Result<Allocations, RpcError> {
    let method = "/v1.PodResourcesLister/List";
    let response: ListPodResourcesResponse =
        call(channel, method, ListPodResourcesRequest {}).await?;
    Ok(allocations(&response))
}

fn allocations(response: &ListPodResourcesResponse) -> Allocations {
    let mut allocations = Allocations::new();
    for pod in &response.pod_resources {
        let devices = pod.containers.iter().flat_map(|container| &container.devices);
        let ours = devices.filter(|devices| devices.resource_name == RESOURCE);
        for id in ours.flat_map(|devices| &devices.device_ids) {
            let name = PodName { namespace: pod.namespace.clone(), name: pod.name.clone() };
            let pods = allocations.entry(DeviceId::named(id)).or_default();
            if !pods.contains(&name) {
                pods.push(name);
            }
        }
    }
    allocations
}

#[cfg(test)]
mod tests {
    use super::super::api::{ContainerDevices, ContainerResources, PodResourcesEntry};
    use super::*;

    fn pod(name: &str, devices: &[(&str, &[&str])]) -> PodResourcesEntry {
        let devices = devices.iter().map(|(resource, ids)| ContainerDevices {
            resource_name: (*resource).into(),
            device_ids: ids.iter().map(ToString::to_string).collect(),
        });
        let container = ContainerResources { name: "compute".into(), devices: devices.collect() };
        PodResourcesEntry { name: name.into(), namespace: "n".into(), containers: vec![container] }
    }

    #[test]
    fn devices_of_our_resource_are_found_with_all_their_pods() {
        let response = ListPodResourcesResponse {
            pod_resources: vec![
                pod("a", &[(RESOURCE, &["kvm-0"]), ("example.com/gpu", &["kvm-1"])]),
                pod("b", &[(RESOURCE, &["kvm-2"]), (RESOURCE, &["kvm-2"])]),
                pod("c", &[(RESOURCE, &["kvm-0"])]),
            ],
        };
        let name = |name: &str| PodName { namespace: "n".into(), name: name.into() };
        let expected =
            [(DeviceId::new(0), vec![name("a"), name("c")]), (DeviceId::new(2), vec![name("b")])];
        assert_eq!(allocations(&response), expected.into());
    }
}
