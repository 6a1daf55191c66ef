//! Tests on a real cluster; `scripts/test cluster` brings it up and names it in the environment.
//!
//! Those in [`lab`] need the lab's own cluster. The others also run on any cluster that has the images.

mod control_plane;
mod devices;
mod disks;
mod evidence;
mod first_light;
mod guest;
mod harness;
mod lab;
mod lives;
mod network;
mod networks;
mod pods;
mod servers;
mod storage;
mod workbench;
