//! Why an interface is not connected.

use nix::errno::Errno;
use thiserror::Error;

use corten_link::RoleError;

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

/// Says what was tried when the kernel refused.
pub(crate) trait Context<T> {
    fn at(self, step: &'static str, link: &str) -> Result<T, WiringError>;
}

impl<T> Context<T> for Result<T, NetlinkError> {
    fn at(self, step: &'static str, link: &str) -> Result<T, WiringError> {
        self.map_err(|source| WiringError::Step { step, link: link.into(), source })
    }
}
