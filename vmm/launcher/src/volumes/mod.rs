//! Volumes: what each kind becomes for the guest, and how it is found and opened.
//!
//! | module | holds |
//! |---|---|
//! | [`iso9660`] | images of small files, made in memory |
//! | [`cloud_init`] | seeds of cloud-init and Ignition, as such an image |
//! | [`config_disk`] | ConfigMaps, Secrets and the like, as such an image |
//! | [`direct`] | in which blocks a disk can be had |
//! | [`disk_image`] | claims, files of the host, empty, ephemeral and container disks |
//! | [`downward_api`] | files with fields of the object itself, where no kubelet makes them |
//! | [`downward_metrics`] | the disk on which a guest reads how its host is doing |
//! | [`holder`] | who has a disk that cannot be had |
//! | [`probe`] | whether an image is raw or qcow2 |
//! | [`sealed`] | bytes as a file that nobody can change |

pub mod cloud_init;
pub mod config_disk;
pub mod direct;
pub mod disk_image;
pub mod downward_api;
pub mod downward_metrics;
pub mod holder;
pub mod iso9660;
pub mod probe;
pub mod sealed;
