//! kubelet's two sides: it asks the device plugins, and is asked by the client of PodResources.
//!
//! The messages are the few fields that are used here, written down by hand ([`api`]): kubelet's interfaces are frozen,
//! and a compiler of protocol buffers would be the larger part of this.

pub mod api;
mod client;
mod device_plugin;
mod node_plugin;
mod plugin;
mod pod_resources;
mod registration;
mod service;
#[cfg(test)]
mod tests;

pub use client::RpcError;
pub use device_plugin::{AllocateError, DevicePlugin};
pub use node_plugin::NodePlugin;
pub use plugin::{Plugin, RESOURCE};
pub use pod_resources::PodResources;
pub use registration::{RegistrationError, serve};
