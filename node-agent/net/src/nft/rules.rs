//! What a table says, as plain values. They print as `nft` would write them.

use std::fmt;
use std::net::IpAddr;

use crate::cidr::Network;
use crate::plan::{Port, Protocol};

/// Whose packets a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

/// A table: chains that stand for themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) family: Family,
    pub(crate) name: String,
    pub(crate) chains: Vec<Chain>,
}

/// Rules at one place of a packet's way. What none of them decides goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) hook: Hook,
    pub(crate) rules: Vec<Rule>,
}

/// Where on its way a packet meets a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// As it comes in, before its connection is known: to drop it.
    Raw,
    /// As it comes in: to give it another destination.
    Prerouting,
    /// When it is passed on: to drop it.
    Forward,
    /// When it was made here: to give it another destination.
    Output,
    /// As it goes out: to give it another source.
    Postrouting,
}

/// What happens to packets that all of it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) matches: Vec<Match>,
    pub(crate) action: Action,
}

/// What a packet must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// It came in by this link.
    In(String),
    /// It goes out by this link.
    Out(String),
    /// It goes out by another link.
    NotOut(String),
    Source(Network),
    Destination(Network),
    /// Its destination is one of these ports, of which there is at least one.
    DestinationPorts(Protocol, Vec<u16>),
    /// Its destination is an address of the namespace's own.
    ToSelf,
    /// It belongs to no connection that could be translated.
    Invalid,
}

/// What is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It gets this destination; its port stays.
    ToAddress(IpAddr),
    /// It gets this source.
    FromAddress(IpAddr),
    /// It gets the address of the link it goes out by as source.
    Masquerade,
    Drop,
}

impl Family {
    /// NFPROTO_IPV4 or NFPROTO_IPV6, which are AF_INET and AF_INET6 as well.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Ipv4 => 2,
            Self::Ipv6 => 10,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ipv4 => "ip",
            Self::Ipv6 => "ip6",
        }
    }
}

impl Hook {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Prerouting => "prerouting",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        }
    }

    /// What its chains may do: translate, or drop.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Raw | Self::Forward => "filter",
            Self::Prerouting | Self::Output | Self::Postrouting => "nat",
        }
    }

    /// The kernel's number of the place (enum nf_inet_hooks).
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Raw | Self::Prerouting => 0,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }

    /// Its order among the chains of that place, as `nft` names them: raw, dstnat, filter, srcnat.
    pub(crate) fn priority(self) -> i32 {
        match self {
            Self::Raw => -300,
            Self::Prerouting | Self::Output => -100,
            Self::Forward => 0,
            Self::Postrouting => 100,
        }
    }
}

impl Rule {
    pub(crate) fn new(matches: impl Into<Vec<Match>>, action: Action) -> Self {
        Self { matches: matches.into(), action }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "table {} {} {{", self.family.word(), self.name)?;
        for chain in &self.chains {
            let hook = chain.hook;
            // The hook's own name, which a chain for packets that just came in does not have.
            let place = if hook == Hook::Raw { "prerouting" } else { hook.name() };
            writeln!(formatter, "  chain {} {{", hook.name())?;
            let (kind, priority) = (hook.kind(), hook.priority());
            writeln!(formatter, "    type {kind} hook {place} priority {priority}")?;
            for rule in &chain.rules {
                let family = self.family.word();
                let matches = rule.matches.iter().map(|one| one.words(family));
                let words: Vec<_> = matches.chain([rule.action.words()]).collect();
                writeln!(formatter, "    {}", words.join(" "))?;
            }
            writeln!(formatter, "  }}")?;
        }
        write!(formatter, "}}")
    }
}

impl Match {
    /// A match for each protocol that `ports` are of: a rule for each port would be a thousand rules where that many are wanted.
    pub(crate) fn ports(ports: &[Port]) -> Vec<Self> {
        let of = |protocol| {
            let ports = ports.iter().filter(|port| port.protocol == protocol);
            Self::DestinationPorts(protocol, ports.map(|port| port.number).collect())
        };
        let all = [Protocol::Tcp, Protocol::Udp].map(of).into_iter();
        all.filter(|one| !matches!(one, Self::DestinationPorts(_, ports) if ports.is_empty()))
            .collect()
    }

    fn words(&self, family: &str) -> String {
        match self {
            Self::In(link) => format!("iifname {link}"),
            Self::Out(link) => format!("oifname {link}"),
            Self::NotOut(link) => format!("oifname != {link}"),
            Self::Source(network) => format!("{family} saddr {network}"),
            Self::Destination(network) => format!("{family} daddr {network}"),
            Self::DestinationPorts(protocol, ports) => match ports.as_slice() {
                [port] => format!("{protocol} dport {port}"),
                ports => {
                    let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
                    format!("{protocol} dport {{ {} }}", ports.join(", "))
                }
            },
            Self::ToSelf => "fib daddr type local".into(),
            Self::Invalid => "ct state invalid".into(),
        }
    }
}

impl Action {
    fn words(self) -> String {
        match self {
            Self::ToAddress(address) => format!("dnat to {address}"),
            Self::FromAddress(address) => format!("snat to {address}"),
            Self::Masquerade => "masquerade".into(),
            Self::Drop => "drop".into(),
        }
    }
}
