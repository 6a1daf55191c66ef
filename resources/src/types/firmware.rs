//! How a machine boots, and what it says it is.

use super::OtherFields;
use serde::{Deserialize, Serialize};

/// Firmware of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Firmware {
    /// A kernel that is started directly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_boot: Option<KernelBoot>,
    /// What the guest reads as its serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// What the guest reads as its UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}

/// A kernel that is started directly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KernelBoot {
    /// Where kernel and initial RAM disk are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<KernelBootContainer>,
    /// The kernel's command line. Nothing is added to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_args: Option<String>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}

/// An image that holds a kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cluster", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KernelBootContainer {
    /// Name of the image.
    #[serde(default)]
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Secret in the same namespace that lets the image be pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<String>,
    /// Path of the initial RAM disk in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initrd_path: Option<String>,
    /// Path of the kernel in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_path: Option<String>,
    /// What is not named here.
    #[serde(flatten)]
    pub other: OtherFields,
}
