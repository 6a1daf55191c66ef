//! How VMs are run.

use super::{
    ContainerResources, DeveloperConfiguration, MediatedDevices, PermittedHostDevices,
    ReloadableComponent, SupportContainer,
};
use crate::Quantity;
use crate::types::fields::object;
use crate::types::{LabelSelector, Marker, MigrationConfiguration};
use std::collections::BTreeMap;

object! {
    /// How VMs are run.
    pub struct KubeVirtConfiguration {
        /// By how much the memory beyond the guest's is made larger, as a factor.
        pub additional_guest_memory_overhead_ratio: Option<String>,
        /// How what serves the API speaks to the API server.
        pub api_configuration: Option<ReloadableComponent>,
        /// What holds for each processor architecture.
        pub architecture_configuration: Option<ArchitectureConfiguration>,
        /// Namespaces whose VMs get a limit of processor time.
        #[serde(rename = "autoCPULimitNamespaceLabelSelector")]
        pub auto_cpu_limit_namespace_label_selector: Option<LabelSelector>,
        /// VMs whose disks remember which blocks changed.
        pub changed_block_tracking_label_selectors: Option<ChangedBlockTrackingSelectors>,
        /// Whether common instance types are installed.
        pub common_instancetypes_deployment: Option<Switch>,
        /// VMs whose memory their node cannot read.
        pub confidential_compute: Option<ConfidentialCompute>,
        /// How the controllers speak to the API server.
        pub controller_configuration: Option<ReloadableComponent>,
        /// Processor model of a VM that does not say.
        pub cpu_model: Option<String>,
        /// Processor time that a VM is given for certain if it does not say.
        pub cpu_request: Option<Quantity>,
        /// RuntimeClass of launcher Pods.
        pub default_runtime_class: Option<String>,
        /// Feature gates, and what else is for those who develop or tune.
        pub developer_configuration: Option<DeveloperConfiguration>,
        /// Machine types that a VM may ask for; older name.
        pub emulated_machines: Vec<String>,
        /// What becomes of a VM when its node is drained, if it does not say.
        pub eviction_strategy: Option<String>,
        /// How the nodes' agent speaks to the API server.
        pub handler_configuration: Option<ReloadableComponent>,
        /// What runs VMs.
        pub hypervisors: Vec<Hypervisor>,
        /// When nodes fetch launcher images: `Always`, `IfNotPresent` or `Never`.
        pub image_pull_policy: Option<String>,
        /// How instance types are used.
        pub instancetype: Option<InstancetypeConfiguration>,
        /// Nodes on which pages with the same content are shared.
        pub ksm_configuration: Option<KsmConfiguration>,
        /// How far VMs may grow while they run.
        pub live_update_configuration: Option<LiveUpdate>,
        /// Machine type of a VM that does not say; older name.
        pub machine_type: Option<String>,
        /// Devices that several VMs share.
        pub mediated_devices_configuration: Option<MediatedDevices>,
        /// Seconds between two questions to the guest about its memory.
        pub mem_balloon_stats_period: Option<i64>,
        /// How migrations are done.
        pub migrations: Option<MigrationConfiguration>,
        /// Oldest processor model.
        #[serde(rename = "minCPUModel")]
        pub min_cpu_model: Option<String>,
        /// Networks of VMs.
        pub network: Option<NetworkConfiguration>,
        /// Processor models that are not offered.
        #[serde(rename = "obsoleteCPUModels")]
        pub obsolete_cpu_models: BTreeMap<String, bool>,
        /// Where the UEFI firmware is; older name.
        pub ovmf_path: Option<String>,
        /// Devices of nodes that VMs may have.
        pub permitted_host_devices: Option<PermittedHostDevices>,
        /// Whether SCSI reservations are served.
        pub persistent_reservation_configuration: Option<Switch>,
        /// Whether the installation's roles become part of the cluster's: `AggregateToDefault` or `Manual`.
        pub role_aggregation_strategy: Option<String>,
        /// System calls that launchers may make.
        pub seccomp_configuration: Option<SeccompConfiguration>,
        /// SELinux type of launchers.
        pub selinux_launcher_type: Option<String>,
        /// What the guest reads of its maker.
        pub smbios: Option<SmbiosConfiguration>,
        /// What containers beside the guest are given.
        pub support_container_resources: Vec<SupportContainer>,
        /// Versions of the guest agent that are spoken to.
        pub supported_guest_agent_versions: Vec<String>,
        /// TLS of the installation's own servers.
        pub tls_configuration: Option<TlsConfiguration>,
        /// Whether templates of VMs are installed.
        pub virt_template_deployment: Option<Switch>,
        /// The most VMs that a node takes.
        pub virtual_machine_instances_per_node: Option<i32>,
        /// Switches that hold for all VMs.
        pub virtual_machine_options: Option<VirtualMachineOptions>,
        /// How changes come to a VM that runs: `LiveUpdate` or `Stage`.
        pub vm_rollout_strategy: Option<String>,
        /// Storage class of the state that outlives a VM.
        pub vm_state_storage_class: Option<String>,
        /// How the webhooks speak to the API server.
        pub webhook_configuration: Option<ReloadableComponent>,
    }

    /// What holds for each processor architecture.
    pub struct ArchitectureConfiguration {
        /// For amd64.
        pub amd64: Option<ArchitectureDefaults>,
        /// For arm64.
        pub arm64: Option<ArchitectureDefaults>,
        /// That of a VM that does not say.
        pub default_architecture: Option<String>,
        /// For ppc64le.
        pub ppc64le: Option<ArchitectureDefaults>,
        /// For s390x.
        pub s390x: Option<ArchitectureDefaults>,
    }

    /// What holds for an architecture.
    pub struct ArchitectureDefaults {
        /// Machine types that a VM may ask for.
        pub emulated_machines: Vec<String>,
        /// Machine type of a VM that does not say.
        pub machine_type: Option<String>,
        /// Where the UEFI firmware is.
        pub ovmf_path: Option<String>,
    }

    /// VMs whose disks remember which blocks changed.
    pub struct ChangedBlockTrackingSelectors {
        /// Those of these namespaces.
        pub namespace_label_selector: Option<LabelSelector>,
        /// Those with these labels.
        pub virtual_machine_label_selector: Option<LabelSelector>,
    }

    /// Something that is on or off.
    pub struct Switch {
        /// It is on.
        pub enabled: Option<bool>,
    }

    /// VMs whose memory their node cannot read.
    pub struct ConfidentialCompute {
        /// By Intel's means.
        pub tdx: Option<TdxConfiguration>,
    }

    /// Trust domains of Intel's.
    pub struct TdxConfiguration {
        /// How a guest proves what it is.
        pub attestation: Option<TdxAttestation>,
    }

    /// How a guest proves what it is.
    pub struct TdxAttestation {
        /// It must.
        pub enforced: Option<bool>,
        /// Socket of the service that signs.
        pub qgs_socket_path: Option<String>,
    }

    /// What runs VMs.
    pub struct Hypervisor {
        /// Its name.
        pub name: Option<String>,
    }

    /// How instance types are used.
    pub struct InstancetypeConfiguration {
        /// What stays of them in a VM: `reference`, `expand` or `expandAll`.
        pub reference_policy: Option<String>,
    }

    /// Nodes on which pages with the same content are shared.
    pub struct KsmConfiguration {
        /// These.
        pub node_label_selector: Option<LabelSelector>,
    }

    /// How far VMs may grow while they run.
    pub struct LiveUpdate {
        /// Sockets of processors, at most.
        pub max_cpu_sockets: Option<i64>,
        /// Memory, at most.
        pub max_guest: Option<Quantity>,
        /// How many times what they began with, at most.
        pub max_hotplug_ratio: Option<i64>,
    }

    /// Networks of VMs.
    pub struct NetworkConfiguration {
        /// Ways to bind an interface, by name.
        pub binding: BTreeMap<String, InterfaceBinding>,
        /// How the Pod's network is bound if nothing is said.
        pub default_network_interface: Option<String>,
        /// Whether the Pod's network may be bridged.
        pub permit_bridge_interface_on_pod_network: Option<bool>,
        /// Nothing; it stands for a binding that is gone.
        pub permit_slirp_interface: Option<bool>,
    }

    /// A way to bind an interface.
    pub struct InterfaceBinding {
        /// What it costs.
        pub compute_resource_overhead: Option<ContainerResources>,
        /// How the machine gets it: `tap` or `managedTap`.
        pub domain_attachment_type: Option<String>,
        /// What it is told of the devices.
        #[serde(rename = "downwardAPI")]
        pub downward_api: Option<String>,
        /// Whether it can migrate.
        pub migration: Option<InterfaceBindingMigration>,
        /// NetworkAttachmentDefinition of its CNI plugin.
        pub network_attachment_definition: Option<String>,
        /// Image of its container.
        pub sidecar_image: Option<String>,
    }

    /// How an interface migrates.
    pub struct InterfaceBindingMigration {
        /// By this means.
        pub method: Option<String>,
    }

    /// System calls that launchers may make.
    pub struct SeccompConfiguration {
        /// Those of VMs.
        pub virtual_machine_instance_profile: Option<SeccompProfile>,
    }

    /// Which system calls are let through.
    pub struct SeccompProfile {
        /// Another profile than the installation's own.
        pub custom_profile: Option<CustomSeccompProfile>,
    }

    /// Another profile: one of these.
    pub struct CustomSeccompProfile {
        /// A file on each node, below kubelet's directory for them.
        pub localhost_profile: Option<String>,
        /// That of the container runtime.
        pub runtime_default_profile: Option<bool>,
    }

    /// What the guest reads of its maker.
    pub struct SmbiosConfiguration {
        /// Family.
        pub family: Option<String>,
        /// Manufacturer.
        pub manufacturer: Option<String>,
        /// Product.
        pub product: Option<String>,
        /// Stock-keeping unit.
        pub sku: Option<String>,
        /// Version.
        pub version: Option<String>,
    }

    /// TLS of the installation's own servers.
    pub struct TlsConfiguration {
        /// Ciphers, for versions before 1.3.
        pub ciphers: Vec<String>,
        /// Oldest version that is spoken, such as `VersionTLS12`.
        #[serde(rename = "minTLSVersion")]
        pub min_tls_version: Option<String>,
    }

    /// Switches that hold for all VMs.
    pub struct VirtualMachineOptions {
        /// The guest does not tell which pages it has freed.
        pub disable_free_page_reporting: Option<Marker>,
        /// The serial console is not kept as a log.
        pub disable_serial_console_log: Option<Marker>,
    }
}
