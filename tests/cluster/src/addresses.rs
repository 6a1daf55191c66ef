//! Who has which address. All of it lies in a network namespace of the cluster's own.

/// The most nodes a cluster can have: the lab names that many.
pub const MOST_NODES: u8 = 8;

/// The machine's end: API server, registry, NFS server.
pub const MACHINE: &str = "10.99.0.254";
/// The same in IPv6.
pub const MACHINE_6: &str = "fd99::fe";

/// Where the API server answers.
pub const API_PORT: u16 = 6443;
/// Where the registry answers.
pub const REGISTRY_PORT: u16 = 5000;

/// Cluster addresses of Services.
pub const SERVICES: &str = "10.96.0.0/16";
/// The same in IPv6.
pub const SERVICES_6: &str = "fd00:10:96::/112";
/// The first Service there is: the API server.
pub const API_SERVICE: &str = "10.96.0.1";
/// Service of the cluster's DNS.
pub const DNS_SERVICE: &str = "10.96.0.10";
/// The same in IPv6.
pub const DNS_SERVICE_6: &str = "fd00:10:96::a";

/// Addresses of all Pods.
pub const PODS: &str = "10.244.0.0/16";
/// The same in IPv6.
pub const PODS_6: &str = "fd00:10:244::/48";

/// Domain of Services.
pub const DOMAIN: &str = "cluster.local";

/// Address of node `number`.
pub fn node(number: u8) -> String {
    format!("10.99.0.{number}")
}

/// The same in IPv6.
pub fn node_6(number: u8) -> String {
    format!("fd99::{number:x}")
}

/// Its name, as the lab gives it.
pub fn node_name(number: u8) -> String {
    format!("node{number}")
}

/// Addresses of Pods on node `number`.
pub fn pods(number: u8) -> String {
    format!("10.244.{number}.0/24")
}

/// The same in IPv6.
pub fn pods_6(number: u8) -> String {
    format!("fd00:10:244:{number:x}::/64")
}
