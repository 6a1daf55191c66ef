//! What is plugged into a machine.

use super::OtherFields;
use serde::{Deserialize, Serialize};

/// Devices of a machine. Those that are attached unless their user says no have a switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Devices {
    /// A screen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_graphics_device: Option<bool>,
    /// A balloon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_mem_balloon: Option<bool>,
    /// An interface on the Pod's network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_pod_interface: Option<bool>,
    /// A serial console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_serial_console: Option<bool>,
    /// The serial console in the Pod's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_serial_console: Option<bool>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}
