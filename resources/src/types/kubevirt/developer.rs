//! What is for those who develop or tune.

use crate::Quantity;
use crate::types::fields::object;
use std::collections::BTreeMap;

object! {
    /// Feature gates, and what else is for those who develop or tune.
    pub struct DeveloperConfiguration {
        /// The installation's programs may be profiled.
        pub cluster_profiler: Option<bool>,
        /// How many virtual processors share one of a node; 10 if not given.
        pub cpu_allocation_ratio: Option<i32>,
        /// Gates that are closed although they are open by default.
        pub disabled_feature_gates: Vec<String>,
        /// How images of disks are looked at.
        pub disk_verification: Option<DiskVerification>,
        /// Gates that are open although they are closed by default.
        pub feature_gates: Vec<String>,
        /// How much the installation's programs log.
        pub log_verbosity: Option<LogVerbosity>,
        /// Percent of a node's memory that guests may have together.
        pub memory_overcommit: Option<i32>,
        /// Slowest clock of a node that VMs can move to.
        #[serde(rename = "minimumClusterTSCFrequency")]
        pub minimum_cluster_tsc_frequency: Option<i64>,
        /// Bytes that stay free on a claim.
        #[serde(rename = "minimumReservePVCBytes")]
        pub minimum_reserve_pvc_bytes: Option<i64>,
        /// Labels that every node of a VM must have.
        pub node_selectors: BTreeMap<String, String>,
        /// Percent by which a claim may be smaller than asked for.
        pub pvc_tolerate_less_space_up_to_percent: Option<i32>,
        /// VMs may run without KVM.
        pub use_emulation: Option<bool>,
    }

    /// How images of disks are looked at.
    pub struct DiskVerification {
        /// Memory that this may take.
        pub memory_limit: Option<Quantity>,
    }

    /// How much the installation's programs log: 0 little, 9 everything.
    pub struct LogVerbosity {
        /// What serves and runs on these nodes.
        pub node_verbosity: BTreeMap<String, i32>,
        /// What serves the API.
        #[serde(rename = "virtAPI")]
        pub virt_api: Option<i32>,
        /// The controllers.
        pub virt_controller: Option<i32>,
        /// The nodes' agent.
        pub virt_handler: Option<i32>,
        /// The launchers.
        pub virt_launcher: Option<i32>,
        /// The operator.
        pub virt_operator: Option<i32>,
        /// What speaks to other clusters.
        pub virt_synchronization_controller: Option<i32>,
    }
}
