//! What a user should know of the network, though it is made.

use std::fmt;

/// Something that is not as one would expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The host did not forward packets of this family ("IPv4", "IPv6") and does from now on.
    Forwarding(&'static str),
    /// A chain of somebody's drops what the host forwards, unless it is told otherwise.
    Firewall {
        /// Its table.
        table: String,
        /// Its name.
        chain: String,
        /// The host's link that has to be let through.
        link: String,
    },
    /// The guest's own network hides a part of what the host reaches.
    Hidden {
        /// The interface.
        interface: String,
        /// The guest's network.
        network: String,
        /// What the host reaches there.
        behind: String,
    },
    /// Name servers of the host that no guest can ask.
    NameServers(Vec<String>),
    /// The guest is told no name server.
    NoNameServer,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forwarding(family) => write!(
                formatter,
                "this host did not forward {family}; it does now, also after the VM has ended"
            ),
            Self::Firewall { table, chain, link } => write!(
                formatter,
                "firewall chain {table}/{chain} drops forwarded packets: the guest reaches nothing beyond the host unless \
                 it lets {link} through"
            ),
            Self::Hidden { interface, network, behind } => write!(
                formatter,
                "interface {interface}: the guest's network {network} hides {behind}, which the host reaches; choose another one"
            ),
            Self::NameServers(servers) => write!(
                formatter,
                "the guest cannot ask the host's name servers on its loopback or its links: {}",
                servers.join(", ")
            ),
            Self::NoNameServer => write!(formatter, "the guest is told no name server"),
        }
    }
}
