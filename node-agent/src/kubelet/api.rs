//! Messages of kubelet's device plugin (v1beta1) and PodResources (v1) interfaces, as far as they are used.

use std::collections::HashMap;

use prost::Message;

/// Version of the device plugin interface.
pub const VERSION: &str = "v1beta1";
/// Health of a device that can be used.
pub const HEALTHY: &str = "Healthy";
/// Health of a device that cannot.
pub const UNHEALTHY: &str = "Unhealthy";

/// Nothing.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Empty {}

/// A plugin presents itself to kubelet.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegisterRequest {
    /// That of the interface.
    #[prost(string, tag = "1")]
    pub version: String,
    /// Name of its socket in kubelet's directory of plugins.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    /// What it serves.
    #[prost(string, tag = "3")]
    pub resource_name: String,
    /// What else it can do.
    #[prost(message, optional, tag = "4")]
    pub options: Option<DevicePluginOptions>,
}

/// What a plugin can do beyond the least.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DevicePluginOptions {
    /// Wants to be asked before each container.
    #[prost(bool, tag = "1")]
    pub pre_start_required: bool,
    /// Has an opinion on which devices go together.
    #[prost(bool, tag = "2")]
    pub get_preferred_allocation_available: bool,
}

/// All devices, told anew whenever one changes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListAndWatchResponse {
    /// Every device.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

/// One device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Device {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// [`HEALTHY`] or [`UNHEALTHY`].
    #[prost(string, tag = "2")]
    pub health: String,
}

/// Devices for the containers of a Pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AllocateRequest {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerAllocateRequest>,
}

/// Devices for a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerAllocateRequest {
    /// Their ids.
    #[prost(string, repeated, tag = "1")]
    pub devices_ids: Vec<String>,
}

/// What the containers of a Pod get.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AllocateResponse {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAllocateResponse>,
}

/// What a container gets.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerAllocateResponse {
    /// Environment.
    #[prost(map = "string, string", tag = "1")]
    pub envs: HashMap<String, String>,
    /// Mounts.
    #[prost(message, repeated, tag = "2")]
    pub mounts: Vec<Mount>,
    /// Device nodes.
    #[prost(message, repeated, tag = "3")]
    pub devices: Vec<DeviceSpec>,
}

/// A mount of a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Mount {
    /// Where in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// What of the node.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Whether it cannot be written.
    #[prost(bool, tag = "3")]
    pub read_only: bool,
}

/// A device node of a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceSpec {
    /// Where in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Which one of the node.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// `r`, `w`, `m` in any combination.
    #[prost(string, tag = "3")]
    pub permissions: String,
}

/// Which Pod has what?
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListPodResourcesRequest {}

/// Which Pod has what.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListPodResourcesResponse {
    /// One for each Pod.
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResourcesEntry>,
}

/// What a Pod has.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodResourcesEntry {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// What a container has.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerResources {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its devices.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
}

/// Devices of one resource.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerDevices {
    /// The resource.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// Ids of the devices.
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
}
