//! The machine as its user describes it.

use super::{Devices, Firmware, OtherFields, null_as_default};
use crate::Quantity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// What is plugged in.
    #[serde(default, deserialize_with = "null_as_default")]
    pub devices: Devices,
    /// How it boots, and what it says it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
    /// Machine type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What it wants of its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}

/// Processors of a machine: sockets x cores x threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// Cores of a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<i64>,
    /// Which processor the guest sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<i64>,
    /// Threads of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<i64>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}

/// Machine type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Its name.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}

/// Memory of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// What the guest sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<Quantity>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}

/// What a machine wants of its node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// The most it gets, by resource.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub limits: BTreeMap<String, Quantity>,
    /// What is kept for it, by resource.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub requests: BTreeMap<String, Quantity>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}
