//! A KubeVirt object: the installation itself, what it is told, and how it fares.

mod components;
mod configuration;
mod developer;
mod devices;

pub use components::*;
pub use configuration::*;
pub use developer::*;
pub use devices::*;

use super::fields::object;
use super::{Condition, LocalObjectReference};

object! {
    /// The specification of a KubeVirt object.
    pub struct KubeVirtSpec {
        /// How the installation's own certificates come and go.
        pub certificate_rotate_strategy: Option<CertificateRotation>,
        /// How VMs are run.
        pub configuration: Option<KubeVirtConfiguration>,
        /// Changes to the objects that are installed.
        pub customize_components: Option<CustomizeComponents>,
        /// When nodes fetch the installation's images: `Always`, `IfNotPresent` or `Never`.
        pub image_pull_policy: Option<String>,
        /// Secrets with which nodes fetch the installation's images.
        pub image_pull_secrets: Vec<LocalObjectReference>,
        /// Registry of the installation's images.
        pub image_registry: Option<String>,
        /// Tag of the installation's images.
        pub image_tag: Option<String>,
        /// Where the control plane's own Pods run, and how many.
        pub infra: Option<ComponentConfig>,
        /// Service account of Prometheus.
        pub monitor_account: Option<String>,
        /// Namespace of Prometheus.
        pub monitor_namespace: Option<String>,
        /// Component of a product, for the labels of what is installed.
        pub product_component: Option<String>,
        /// Name of a product, for the labels of what is installed.
        pub product_name: Option<String>,
        /// Version of a product, for the labels of what is installed.
        pub product_version: Option<String>,
        /// Namespace of the ServiceMonitor.
        pub service_monitor_namespace: Option<String>,
        /// Port at which clusters speak to each other about migrations.
        pub synchronization_port: Option<String>,
        /// Whether the object may go while VMs exist: `BlockUninstallIfWorkloadsExist` or `RemoveWorkloads`.
        pub uninstall_strategy: Option<String>,
        /// How VMs that run come to a new release.
        pub workload_update_strategy: Option<WorkloadUpdateStrategy>,
        /// Where the agents of nodes run.
        pub workloads: Option<ComponentConfig>,
    }

    /// The status of a KubeVirt object.
    pub struct KubeVirtStatus {
        /// What is true of it.
        pub conditions: Vec<Condition>,
        /// Processor architecture of a VM that does not say.
        pub default_architecture: Option<String>,
        /// What was installed, and in which generation.
        pub generations: Vec<GenerationStatus>,
        /// What the installation was made from, last.
        pub observed_deployment_config: Option<String>,
        /// What that is called.
        #[serde(rename = "observedDeploymentID")]
        pub observed_deployment_id: Option<String>,
        /// Generation of the object that was last acted on.
        pub observed_generation: Option<i64>,
        /// Registry of the images in use.
        pub observed_kube_virt_registry: Option<String>,
        /// The release in use.
        pub observed_kube_virt_version: Option<String>,
        /// The release of the operator.
        pub operator_version: Option<String>,
        /// How many VMs run an older release.
        pub outdated_virtual_machine_instance_workloads: Option<i32>,
        /// How far the installation has come, in one word: `Deploying`, `Deployed`, `Deleting` or `Deleted`.
        pub phase: Option<String>,
        /// Where clusters speak to each other about migrations.
        pub synchronization_addresses: Vec<String>,
        /// What the installation is to be made from.
        pub target_deployment_config: Option<String>,
        /// What that is called.
        #[serde(rename = "targetDeploymentID")]
        pub target_deployment_id: Option<String>,
        /// Registry of the images that are to be in use.
        pub target_kube_virt_registry: Option<String>,
        /// The release that is to be in use.
        pub target_kube_virt_version: Option<String>,
    }

    /// An installed object.
    pub struct GenerationStatus {
        /// Its API group.
        pub group: String,
        /// Stands for its content, where it has no generation.
        pub hash: Option<String>,
        /// The generation that was last written.
        pub last_generation: i64,
        /// Its name.
        pub name: String,
        /// Its namespace.
        pub namespace: Option<String>,
        /// Its kind, as paths name it.
        pub resource: String,
    }
}

impl KubeVirtStatus {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}
