//! What the user of a VirtualMachineInstance wants.

use super::{Domain, OtherFields, null_as_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The specification of a VirtualMachineInstance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceSpec {
    /// Processor architecture of the guest; amd64 if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The machine.
    #[serde(default, deserialize_with = "null_as_default")]
    pub domain: Domain,
    /// What becomes of the VM when its node is drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<String>,
    /// Labels a node must have to run it.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_selector: BTreeMap<String, String>,
    /// Priority of its Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Which scheduler chooses its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Seconds between the power button and the end by force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Taints of nodes that do not keep it away.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}

/// A taint that is put up with, as in a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// Effect of the taint; any if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// Key of the taint; any if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `Exists` or `Equal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// For how long a NoExecute taint is put up with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}
