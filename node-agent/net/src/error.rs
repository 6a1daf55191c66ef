//! Why an interface is not connected.

use std::fmt;

use nix::errno::Errno;
use thiserror::Error;

use corten_link::RoleError;

use crate::names::Names;
use crate::namespace::NamespaceError;
use crate::netlink::NetlinkError;
use crate::sysctl::SettingError;
use crate::tap::TapError;

/// Why an interface is not connected.
#[derive(Debug, Error)]
pub enum WiringError {
    /// The descriptors of an interface of that name could not be named.
    #[error("{name:?} cannot be the name of a network interface")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        #[source]
        source: RoleError,
    },
    /// The namespace was not entered.
    #[error("the network namespace is out of reach")]
    Namespace(#[from] NamespaceError),
    /// The namespace is the one we are in ourselves: rules and bridges of a VM have no place there.
    #[error("the network namespace is the caller's own")]
    OwnNamespace,
    /// There is no such link.
    #[error("there is no network interface {0}")]
    NoLink(String),
    /// The named bridge is something else.
    #[error("network interface {0} is not a bridge")]
    NotABridge(String),
    /// The uplink has no address to hide a guest behind.
    #[error("network interface {0} has no global address, neither IPv4 nor IPv6")]
    NoAddress(String),
    /// No link can have that name.
    #[error("{0:?} is not the name of a network interface")]
    LinkName(String),
    /// The kernel refused a step.
    #[error("cannot {step} {link}")]
    Step {
        /// What was tried.
        step: &'static str,
        /// On what.
        link: String,
        /// Its error.
        #[source]
        source: NetlinkError,
    },
    /// A setting is not as it has to be.
    #[error("the namespace's settings are not as a guest needs them")]
    Setting(#[from] SettingError),
    /// There is no TAP.
    #[error("the guest's side cannot be made")]
    Tap(#[from] TapError),
    /// A socket for the guest's questions is missing.
    #[error("{service} socket on {link}: cannot {step}")]
    Socket {
        /// What was tried.
        step: &'static str,
        /// Whose socket.
        service: &'static str,
        /// The link it is for.
        link: String,
        /// Its error.
        #[source]
        source: Errno,
    },
}

/// How far the way from the outside to the guest is made, in that order: what to look at first if an interface is not
/// connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The Pod's own interface: it is missing, or has no address.
    PodInterface,
    /// What lies between it and the guest's TAP: a bridge, or rules.
    Bridge,
    /// The guest's TAP.
    Tap,
    /// What answers the guest's questions for addresses.
    Dhcp,
}

impl fmt::Display for Stage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::PodInterface => "Pod interface",
            Self::Bridge => "bridge",
            Self::Tap => "TAP",
            Self::Dhcp => "DHCP",
        })
    }
}

impl WiringError {
    /// Where it got stuck while the interface was wired to `uplink`.
    pub fn stage(&self, uplink: &str) -> Stage {
        match self {
            Self::Name { .. }
            | Self::Namespace(_)
            | Self::OwnNamespace
            | Self::NoAddress(_)
            | Self::LinkName(_) => Stage::PodInterface,
            Self::NotABridge(_) | Self::Setting(_) => Stage::Bridge,
            Self::Tap(_) => Stage::Tap,
            Self::Socket { .. } => Stage::Dhcp,
            Self::NoLink(link) | Self::Step { link, .. } => match Names::of(uplink) {
                Ok(names) if *link == names.tap => Stage::Tap,
                Ok(_) if link == uplink => Stage::PodInterface,
                _ => Stage::Bridge,
            },
        }
    }
}

/// Says what was tried when the kernel refused.
pub(crate) trait Context<T> {
    fn at(self, step: &'static str, link: &str) -> Result<T, WiringError>;
}

impl<T> Context<T> for Result<T, NetlinkError> {
    fn at(self, step: &'static str, link: &str) -> Result<T, WiringError> {
        self.map_err(|source| WiringError::Step { step, link: link.into(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_is_that_of_the_link_at_which_it_got_stuck() {
        let step = |link: &str| {
            let source = NetlinkError::Io(Errno::EPERM);
            WiringError::Step { step: "change", link: link.into(), source }.stage("eth0")
        };
        assert_eq!((step("eth0"), step("k6t-eth0")), (Stage::PodInterface, Stage::Bridge));
        assert_eq!((step("eth0-nic"), step("tap0")), (Stage::Bridge, Stage::Tap));
        assert_eq!(WiringError::NoLink("eth0".into()).stage("eth0"), Stage::PodInterface);
        assert_eq!(WiringError::Tap(TapError::Exists("tap0".into())).stage("eth0"), Stage::Tap);
        assert!(Stage::PodInterface < Stage::Bridge && Stage::Tap < Stage::Dhcp);
    }
}
