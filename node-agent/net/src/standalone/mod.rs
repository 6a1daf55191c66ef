//! Networks for a VM without Kubernetes: what a CNI plugin does for a Pod, and what a bridge of the host's needs.
//!
//! ```text
//!   host: eth0 ---- rules ---- corten2f 10.213.0.189 ==veth== eth0 10.213.0.190 ---- as in a Pod ---- guest 10.0.2.2
//!                              |            the host            |     a namespace without a name     |
//! ```
//!
//! Each interface that is not on a bridge of the host's has a network namespace of its own, in which it is wired as it would
//! be in a Pod: two interfaces of a guest may then have the same network. By masquerade it has a network of its own behind
//! the namespace's addresses; by bridge it has the namespace's IPv4 address itself. A pair of links leads there, with four
//! IPv4 and four IPv6 addresses that nothing on the host uses. `addresses.rs` chooses them, `rules.rs` says what the host
//! translates, `ports.rs` takes ports of the host, `host.rs` sets it all up.
//!
//! Nothing of it outlives the processes that hold it, however they end. The namespace has no name; the pair of links goes with it;
//! the host's rules belong to a socket, and so do the ports. One thing stays: the host forwards from then on, if it did
//! not before. Taking that back when a VM ends would cut off whatever has come to rely on it, and could not be done for a
//! process that is killed. A [`Finding`] says so.
//!
//! An interface on a bridge of the host's is a TAP that is a port of it. Addresses are that network's matter.

mod addresses;
mod findings;
mod host;
mod permission;
mod ports;
mod rules;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use corten_link::{DhcpOptions, Resolver};
use thiserror::Error;

pub use findings::Finding;
#[cfg(test)]
pub(crate) use host::lock as lock_of_host;
pub use permission::missing_capabilities;

use crate::error::WiringError;
use crate::namespace::{Namespace, NamespaceError};
use crate::netlink::NetlinkError;
use crate::nft::OwnedTables;
use crate::plan::{Binding, InterfacePlan, Masquerade, Port, Wired};
use crate::rtnl::{Rtnl, Traffic};
use crate::sysctl::SettingError;

/// The interfaces of a VM, as they are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandalonePlan {
    /// The guest's name, which DHCP tells; empty for none.
    pub hostname: String,
    /// Name servers and search domains, which DHCP and advertisements tell: usually [`Resolver::of_host`].
    pub resolver: Resolver,
    /// The interfaces.
    pub interfaces: Vec<StandaloneInterface>,
}

/// An interface of a VM, as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandaloneInterface {
    /// What the interface is called; its descriptors' roles have it.
    pub name: String,
    /// How it is connected.
    pub connection: Connection,
    /// The guest's Ethernet address; none for any.
    pub mac: Option<[u8; 6]>,
    /// Pairs of queues, 1 to 256.
    pub pairs: u16,
    /// The largest packet; none for what the host's way out, or the bridge, carries.
    pub mtu: Option<u16>,
    /// What DHCP tells besides addresses; nothing is told on a bridge of the host's.
    pub options: DhcpOptions,
}

/// How an interface is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Hidden behind the host. Its ports are ports of the host's.
    Masquerade(Masquerade),
    /// In the place of a Pod: the guest has the namespace's IPv4 address, and none of IPv6. These ports of the host's lead
    /// to it.
    Pod(Vec<Port>),
    /// On the bridge of this name, which the host has.
    Bridge(String),
}

/// Networks of a VM. They stay as long as this and the descriptors of its interfaces are open.
#[derive(Debug)]
pub struct StandaloneNetwork {
    /// The interfaces, in the plan's order.
    pub interfaces: Vec<StandaloneWired>,
    /// What the user should know.
    pub findings: Vec<Finding>,
    /// What has to stay open while the VM runs.
    pub held: Held,
}

/// An interface that is connected.
#[derive(Debug)]
pub struct StandaloneWired {
    /// What a VM process needs.
    pub wired: Wired,
    /// Addresses at which the host reaches the guest; empty on a bridge.
    pub addresses: Vec<IpAddr>,
}

/// What has to stay open while the VM runs, in the process that supervises it.
#[derive(Debug, Default)]
pub struct Held {
    namespaces: Vec<Namespace>,
    taps: Vec<HeldTap>,
    #[expect(dead_code, reason = "being open is what they are for")]
    tables: Option<OwnedTables>,
    #[expect(dead_code, reason = "being open is what they are for")]
    ports: Vec<OwnedFd>,
}

/// Where the TAP of an interface is.
#[derive(Debug)]
struct HeldTap {
    /// The interface.
    interface: String,
    /// The TAP.
    name: String,
    /// Which of the namespaces has it; none for the host's own.
    namespace: Option<usize>,
}

impl Held {
    /// What went over the TAPs, by the names of the interfaces. What the host receives is what a guest sends. Those that
    /// cannot be looked at are left out.
    pub fn traffic(&self) -> BTreeMap<String, Traffic> {
        let look = |tap: &HeldTap| {
            let ask = || Rtnl::open().ok()?.link(&tap.name).ok()?;
            let namespace = tap.namespace.map(|number| self.namespaces.get(number));
            let link = match namespace {
                None => ask(),
                Some(namespace) => Namespace::enter(namespace?.as_fd(), ask).ok()?,
            };
            Some((tap.interface.clone(), link?.traffic))
        };
        self.taps.iter().filter_map(look).collect()
    }
}

/// Why there is no network.
#[derive(Debug, Error)]
pub enum StandaloneError {
    /// The process may not make one.
    #[error(
        "a network needs {}: run it as root, or without a network", .0.join(", ")
    )]
    NotPermitted(Vec<&'static str>),
    /// Another program has the port.
    #[error("port {0} of the host is taken by another program")]
    PortTaken(Port),
    /// A port cannot be had for another reason.
    #[error("port {port} of the host cannot be taken")]
    Port {
        /// The port.
        port: Port,
        /// Why.
        #[source]
        source: nix::errno::Errno,
    },
    /// Two interfaces of the VM want it.
    #[error("port {0} is wanted by two interfaces")]
    PortTwice(Port),
    /// Two interfaces have one name.
    #[error("two network interfaces are called {0}")]
    NameTwice(String),
    /// The host uses all there are.
    #[error("no private IPv4 network is left that the host does not use")]
    NoNetwork,
    /// An interface is not connected.
    #[error("network interface {name} is not connected")]
    Interface {
        /// The interface.
        name: String,
        /// Why.
        #[source]
        source: WiringError,
    },
    /// The host's own namespace is out of reach.
    #[error("the host's network namespace is out of reach")]
    Namespace(#[from] NamespaceError),
    /// A setting of the host's is not as it has to be.
    #[error("the host's settings are not as a guest needs them")]
    Setting(#[from] SettingError),
    /// The kernel refused a step on the host's side.
    #[error("cannot {step}")]
    Host {
        /// What was tried.
        step: &'static str,
        /// Its error.
        #[source]
        source: NetlinkError,
    },
}

impl StandaloneNetwork {
    /// Makes the networks that `plan` wants, on the host whose namespace the calling thread is in.
    ///
    /// Needs what [`missing_capabilities`] looks for, and /dev/net/tun. If it fails, nothing of it stays.
    pub fn create(plan: &StandalonePlan) -> Result<Self, StandaloneError> {
        let missing = missing_capabilities();
        if !missing.is_empty() {
            return Err(StandaloneError::NotPermitted(missing));
        }
        host::create(plan)
    }
}

impl StandaloneInterface {
    /// The same, as it is wired in a namespace of its own.
    fn in_namespace(&self, plan: &StandalonePlan, binding: Binding) -> InterfacePlan {
        InterfacePlan {
            name: self.name.clone(),
            binding,
            mac: self.mac,
            pairs: self.pairs,
            mtu: self.mtu,
            hostname: plan.hostname.clone(),
            resolver: plan.resolver.clone(),
            options: self.options.clone(),
        }
    }

    /// Whether its guest is told an address of IPv6. In a Pod's place it is not, as in KubeVirt.
    fn has_ipv6(&self) -> bool {
        !matches!(self.connection, Connection::Pod(_))
    }

    fn ports(&self) -> &[Port] {
        match &self.connection {
            Connection::Masquerade(masquerade) => &masquerade.ports,
            Connection::Pod(ports) => ports,
            Connection::Bridge(_) => &[],
        }
    }
}
