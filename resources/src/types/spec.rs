//! What the user of a VirtualMachineInstance wants.

use super::fields::object;
use super::{
    AccessCredential, DnsConfig, Domain, Embedded, Network, ObjectMeta, Probe, Toleration, Volume,
};
use std::collections::BTreeMap;

object! {
    /// The specification of a VirtualMachineInstance.
    pub struct VirtualMachineInstanceSpec {
        /// Keys and passwords that are brought into the guest.
        pub access_credentials: Vec<AccessCredential>,
        /// Nodes and Pods that it is drawn to, or kept away from.
        pub affinity: Option<Embedded>,
        /// Processor architecture of the guest; amd64 if not given.
        pub architecture: Option<String>,
        /// Name servers for the guest, on top of what `dnsPolicy` gives.
        pub dns_config: Option<DnsConfig>,
        /// Where name servers come from: `ClusterFirst`, `ClusterFirstWithHostNet`, `Default` or `None`.
        pub dns_policy: Option<String>,
        /// The machine.
        pub domain: Domain,
        /// What becomes of the VM when its node is drained.
        pub eviction_strategy: Option<String>,
        /// Host name of the guest; its own name if not given.
        pub hostname: Option<String>,
        /// Tells whether the guest is alive; if it is not, the VM is ended.
        pub liveness_probe: Option<Probe>,
        /// Networks that interfaces are on.
        pub networks: Vec<Network>,
        /// Labels a node must have to run it.
        pub node_selector: BTreeMap<String, String>,
        /// Priority of its Pod.
        pub priority_class_name: Option<String>,
        /// Tells whether the guest is ready to serve.
        pub readiness_probe: Option<Probe>,
        /// Devices that are claimed for it.
        pub resource_claims: Vec<ResourceClaim>,
        /// Which scheduler chooses its node.
        pub scheduler_name: Option<String>,
        /// Service account of its Pod.
        pub service_account_name: Option<String>,
        /// `Paused`: its processors wait to be told to go.
        pub start_strategy: Option<String>,
        /// Domain of the guest's host name.
        pub subdomain: Option<String>,
        /// Seconds between the power button and the end by force.
        pub termination_grace_period_seconds: Option<i64>,
        /// Taints of nodes that do not keep it away.
        pub tolerations: Vec<Toleration>,
        /// How it and its like are spread over nodes.
        pub topology_spread_constraints: Vec<Embedded>,
        /// Volumes for its own upkeep, such as backups; the guest does not see them.
        pub utility_volumes: Vec<UtilityVolume>,
        /// What its disks hold.
        pub volumes: Vec<Volume>,
    }

    /// A claim on devices, or a template of one.
    pub struct ResourceClaim {
        /// How devices name it.
        pub name: String,
        /// The claim itself.
        pub resource_claim_name: Option<String>,
        /// A template from which a claim is made.
        pub resource_claim_template_name: Option<String>,
    }

    /// A volume for the upkeep of a VM.
    pub struct UtilityVolume {
        /// The PersistentVolumeClaim.
        pub claim_name: String,
        /// Its name, among all volumes of the VM.
        pub name: String,
        /// It is not written to.
        pub read_only: Option<bool>,
        /// What it is for: `MemoryDump` or `Backup`.
        #[serde(rename = "type")]
        pub kind: Option<String>,
    }

    /// A VirtualMachineInstance that is yet to be made.
    pub struct VirtualMachineInstanceTemplate {
        /// Its labels and annotations.
        pub metadata: Option<ObjectMeta>,
        /// Its specification.
        pub spec: Option<VirtualMachineInstanceSpec>,
    }
}
