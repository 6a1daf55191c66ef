//! A real Kubernetes in the lab.
//!
//! `scripts/cluster` is its front door; `docs/cluster.md` says how it works and what to watch out for.

pub mod addresses;
pub mod answer;
pub mod assets;
pub mod audit;
pub mod client;
pub mod cluster;
pub mod control_plane;
pub mod credentials;
pub mod dashboard;
pub mod door;
pub mod kubeconfig;
pub mod kubectl;
pub mod logs;
pub mod manifests;
pub mod network;
pub mod nfs;
pub mod node;
pub mod node_files;
pub mod options;
pub mod pki;
pub mod programs;
pub mod state;
pub mod storage;
pub mod timeline;
