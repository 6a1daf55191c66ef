//! Networks of guests: one wiring for node agent and command line.
//!
//! Two layers. The lower one ([`wire`]) works in a network namespace that has an uplink, as a Pod's has `eth0`, and
//! connects one interface of a guest's to it: `masquerade.rs` gives the guest a network of its own behind the uplink's
//! addresses, `bridge.rs` puts it in the uplink's place. The upper one ([`standalone`]) makes such a namespace on a host
//! without Kubernetes, or puts a guest on a bridge that the host has.
//!
//! What comes out is [`Wired`]: descriptors (queues of a TAP, sockets on which the guest asks for its addresses) and what it
//! is to be told. The VM process gets them and opens nothing itself.
//!
//! No program is started on the way. Links, addresses and routes are set over netlink (`rtnl`), rules in one transaction
//! of nf_tables (`nft`), settings in /proc/sys (`sysctl.rs`). All of it acts on the network namespace of a thread: one is
//! started for it and ends afterwards, so that no other ever finds itself elsewhere. [`Tap`] and the functions beside it act
//! on the namespace of the calling thread.
//!
//! `docs/networks.md` says what is made, by which name, and what goes when.

mod bridge;
mod cidr;
mod described;
mod error;
mod link;
mod masquerade;
mod names;
mod namespace;
mod netlink;
mod nft;
mod plan;
mod random;
mod rtnl;
mod sockets;
pub mod standalone;
mod sysctl;
mod tap;
#[cfg(test)]
mod tests;
mod vhost;
mod wire;

pub use cidr::{CidrError, Ipv4Cidr, Ipv6Cidr};
pub use described::{Described, described};
pub use error::{Stage, WiringError};
pub use link::{InterfaceError, set_ipv4, set_up};
pub use namespace::{Namespace, NamespaceError, NamespaceId};
pub use netlink::NetlinkError;
pub use plan::{Binding, InterfacePlan, Masquerade, Port, Protocol, Wired};
pub use rtnl::Traffic;
pub use sysctl::SettingError;
pub use tap::{MAX_QUEUES, Tap, TapError};
pub use vhost::{VHOST_NET, vhost};
pub use wire::{has_uplink, wire};
