//! The installation's own parts: certificates, placement, changes to them, their successors.

use crate::Quantity;
use crate::types::fields::object;
use crate::types::{Embedded, Toleration};
use std::collections::BTreeMap;

object! {
    /// How certificates come and go.
    pub struct CertificateRotation {
        /// The operator makes them.
        pub self_signed: Option<SelfSignedCertificates>,
    }

    /// Certificates that the operator makes. Times are as Go writes them, such as `168h`.
    pub struct SelfSignedCertificates {
        /// The certificate authority.
        pub ca: Option<CertificateLife>,
        /// For how long an old authority is trusted beside its successor; older name.
        pub ca_overlap_interval: Option<String>,
        /// How long an authority lasts; older name.
        pub ca_rotate_interval: Option<String>,
        /// How long a certificate lasts; older name.
        pub cert_rotate_interval: Option<String>,
        /// The certificates of servers.
        pub server: Option<CertificateLife>,
    }

    /// How long a certificate lasts.
    pub struct CertificateLife {
        /// For so long it is valid.
        pub duration: Option<String>,
        /// So long before its end it is made anew.
        pub renew_before: Option<String>,
    }

    /// Changes to the objects that are installed.
    pub struct CustomizeComponents {
        /// Arguments of the installation's programs.
        pub flags: Option<ComponentFlags>,
        /// Patches.
        pub patches: Vec<ComponentPatch>,
    }

    /// Arguments of the installation's programs.
    pub struct ComponentFlags {
        /// Of what serves the API.
        pub api: BTreeMap<String, String>,
        /// Of the controllers.
        pub controller: BTreeMap<String, String>,
        /// Of the nodes' agent.
        pub handler: BTreeMap<String, String>,
    }

    /// A change to an object that is installed.
    pub struct ComponentPatch {
        /// The change.
        pub patch: String,
        /// Name of the object.
        pub resource_name: String,
        /// Kind of the object.
        pub resource_type: String,
        /// How the change is written: `strategic`, `merge` or `json`.
        #[serde(rename = "type")]
        pub kind: String,
    }

    /// Where Pods of the installation run, and how many.
    pub struct ComponentConfig {
        /// Where.
        pub node_placement: Option<NodePlacement>,
        /// How many, where that can be chosen.
        pub replicas: Option<i32>,
    }

    /// Where Pods run.
    pub struct NodePlacement {
        /// Nodes and Pods that they are drawn to, or kept away from.
        pub affinity: Option<Embedded>,
        /// Labels a node must have.
        pub node_selector: BTreeMap<String, String>,
        /// Taints of nodes that do not keep them away.
        pub tolerations: Vec<Toleration>,
    }

    /// How VMs that run come to a new release.
    pub struct WorkloadUpdateStrategy {
        /// How long to wait after each batch that is ended.
        pub batch_eviction_interval: Option<String>,
        /// How many are ended at a time.
        pub batch_eviction_size: Option<i32>,
        /// By which means: `LiveMigrate`, `Evict`.
        pub workload_update_methods: Vec<String>,
    }

    /// How a program of the installation speaks to the API server.
    pub struct ReloadableComponent {
        /// Its client.
        pub rest_client: Option<RestClient>,
    }

    /// A client of the API server.
    pub struct RestClient {
        /// How fast it may ask.
        pub rate_limiter: Option<RateLimiter>,
    }

    /// How fast a client may ask.
    pub struct RateLimiter {
        /// By tokens that come in at a rate.
        pub token_bucket_rate_limiter: Option<TokenBucket>,
    }

    /// Tokens that come in at a rate.
    pub struct TokenBucket {
        /// How many may be saved up.
        pub burst: i32,
        /// How many come in a second.
        pub qps: f64,
    }

    /// What a container beside the guest is given.
    pub struct SupportContainer {
        /// So much.
        pub resources: ContainerResources,
        /// Which container: `container-disk`, `guest-console-log` and so on.
        #[serde(rename = "type")]
        pub kind: String,
    }

    /// What a container is given.
    pub struct ContainerResources {
        /// At most.
        pub limits: BTreeMap<String, Quantity>,
        /// For certain.
        pub requests: BTreeMap<String, Quantity>,
    }
}
