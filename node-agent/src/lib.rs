//! The agent on each node, Corten's only privileged part: it opens what a VM may use and hands it over.
//!
//! ```text
//!  kubelet --Allocate--> device plugin --> door (a directory for each device id, mounted into the launcher's container)
//!     |                                     |  launcher.sock appears, the agent connects
//!     +--PodResources--> identity <---------+
//!  API server --Pods of this node,    |
//!               VMIs of this node--> who is behind this door? --start, descriptors--> launcher
//!                                                             <--running------------- --> VMI status Running
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`kubelet`] | the device plugins, their registration, the client of PodResources |
//! | [`doors`] | device ids, their directories, and who holds them |
//! | [`identity`] | device id -> Pod -> VMI, as a pure function |
//! | [`ledger`] | what was given to whom; the agent's only durable state |
//! | [`door`] | the link to one launcher, and the actor that keeps it |
//! | [`cluster`] | the agent's own view of Pods and VMIs |
//! | [`status`] | what the agent writes on a VMI |
//! | [`diagnosis`] | what keeps a VM from getting on, as conditions and events |
//! | [`device_file`] | device files of the node, followed as they come and go |
//! | [`grant`], [`seccomp`] | devices that are handed over; the system-call profile of launchers |
//! | [`networks`] | interfaces of guests, wired in their Pods |
//! | [`huge_pages`] | the node's setting for guest memory |
//! | [`metrics`] | what Prometheus reads of VMs and agent |
//! | [`node`] | the node's labels and heartbeat |
//!
//! The agent may die and come back at any time: launchers go on, and are found again by the directories, never by what
//! they say of themselves. What is done to make a network is in `node-agent/net`.

pub mod agent;
pub mod cluster;
pub mod device_file;
pub mod diagnosis;
pub mod door;
pub mod doors;
pub mod grant;
pub mod huge_pages;
pub mod identity;
pub mod kubelet;
pub mod ledger;
pub mod metrics;
pub mod networks;
pub mod node;
pub mod options;
pub mod seccomp;
pub mod status;
