//! Links: network interfaces of every kind.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::{CREATE, EXCLUSIVE, Rtnl};
use crate::netlink::{Message, NetlinkError, attributes, first, text, word};

/// IFF_UP.
/// IFLA_STATS64.
const STATISTICS: u16 = 23;
const UP: u32 = 1;
/// Length of `struct ifinfomsg`.
const FIXED: usize = 16;

/// IFLA_INFO_DATA of a veth: its peer.
const VETH_PEER: u16 = 1;
/// IFLA_INFO_DATA of a bridge: whether it listens to who wants which multicast.
const BRIDGE_SNOOPING: u16 = 23;
/// IFLA_PROTINFO of a bridge's port: whether it learns addresses.
const PORT_LEARNING: u16 = 8;
/// AF_BRIDGE.
const BRIDGE_FAMILY: u8 = 7;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: Option<[u8; 6]>,
    pub(crate) mtu: u32,
    /// What its makers call its kind; empty for hardware.
    pub(crate) kind: String,
    /// What somebody noted on it.
    pub(crate) alias: String,
    /// What went over it.
    pub(crate) traffic: Traffic,
}

/// What went over a link, as the host sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames that came from it.
    pub received: u64,
    /// Frames that were sent to it.
    pub sent: u64,
    /// Bytes that came from it.
    pub received_bytes: u64,
    /// Bytes that were sent to it.
    pub sent_bytes: u64,
    /// Frames from it that were dropped.
    pub received_dropped: u64,
    /// Frames for it that were dropped.
    pub sent_dropped: u64,
}

impl Traffic {
    /// What the kernel says of it (struct rtnl_link_stats64); the order of its words never changes.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| words.get(at).map(|bytes| u64::from_ne_bytes(*bytes));
        Some(Self {
            received: word(0)?,
            sent: word(1)?,
            received_bytes: word(2)?,
            sent_bytes: word(3)?,
            received_dropped: word(6)?,
            sent_dropped: word(7)?,
        })
    }
}

/// What is to be changed of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change<'a> {
    pub(crate) up: Option<bool>,
    /// A link must be down for it (before Linux 6.2).
    pub(crate) name: Option<&'a str>,
    pub(crate) mac: Option<[u8; 6]>,
    pub(crate) mtu: Option<u32>,
    /// The bridge it is to be a port of.
    pub(crate) bridge: Option<u32>,
    pub(crate) alias: Option<&'a str>,
}

impl Rtnl {
    pub(crate) fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let replies = self.socket.dump(&Message::new(libc::RTM_GETLINK, 0, &fixed(0, 0, None)))?;
        replies.iter().map(|reply| parse(&reply.body).ok_or(NetlinkError::Malformed)).collect()
    }

    pub(crate) fn link(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        Ok(self.links()?.into_iter().find(|link| link.name == name))
    }

    /// Makes a bridge with an Ethernet address of its own, which does not follow its ports'.
    ///
    /// It does not look into who wants which multicast: with nobody to ask, that only loses packets.
    pub(crate) fn create_bridge(&mut self, name: &str, mac: [u8; 6]) -> Result<(), NetlinkError> {
        let message = Message::new(libc::RTM_NEWLINK, CREATE | EXCLUSIVE, &fixed(0, 0, None))
            .text(libc::IFLA_IFNAME, name)
            .bytes(libc::IFLA_ADDRESS, &mac)
            .nest(libc::IFLA_LINKINFO, |message| {
                message
                    .text(libc::IFLA_INFO_KIND, "bridge")
                    .nest(libc::IFLA_INFO_DATA, |message| message.bytes(BRIDGE_SNOOPING, &[0]))
            });
        self.socket.acknowledged(message)
    }

    /// Makes a pair of links: `name` here, `peer` in namespace `there`.
    pub(crate) fn create_veth(
        &mut self,
        name: &str,
        peer: &str,
        there: BorrowedFd<'_>,
        mtu: u32,
    ) -> Result<(), NetlinkError> {
        let there = u32::try_from(there.as_raw_fd()).map_err(|_| NetlinkError::Io(Errno::EBADF))?;
        let message = Message::new(libc::RTM_NEWLINK, CREATE | EXCLUSIVE, &fixed(0, 0, None))
            .text(libc::IFLA_IFNAME, name)
            .word(libc::IFLA_MTU, mtu)
            .nest(libc::IFLA_LINKINFO, |message| {
                message.text(libc::IFLA_INFO_KIND, "veth").nest(libc::IFLA_INFO_DATA, |message| {
                    message.nest(VETH_PEER, |message| {
                        message
                            .raw(&fixed(0, 0, None))
                            .text(libc::IFLA_IFNAME, peer)
                            .word(libc::IFLA_MTU, mtu)
                            .word(libc::IFLA_NET_NS_FD, there)
                    })
                })
            });
        self.socket.acknowledged(message)
    }

    pub(crate) fn delete_link(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.socket.acknowledged(Message::new(libc::RTM_DELLINK, 0, &fixed(0, index, None)))
    }

    pub(crate) fn change_link(
        &mut self,
        index: u32,
        change: Change<'_>,
    ) -> Result<(), NetlinkError> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0, &fixed(0, index, change.up));
        if let Some(name) = change.name {
            message = message.text(libc::IFLA_IFNAME, name);
        }
        if let Some(mac) = change.mac {
            message = message.bytes(libc::IFLA_ADDRESS, &mac);
        }
        if let Some(mtu) = change.mtu {
            message = message.word(libc::IFLA_MTU, mtu);
        }
        if let Some(bridge) = change.bridge {
            message = message.word(libc::IFLA_MASTER, bridge);
        }
        if let Some(alias) = change.alias {
            message = message.text(libc::IFLA_IFALIAS, alias);
        }
        self.socket.acknowledged(message)
    }

    /// Takes a link up.
    pub(crate) fn set_up(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.change_link(index, Change { up: Some(true), ..Change::default() })
    }

    /// Has the bridge that `index` is a port of learn no addresses there: what is not known is sent there.
    pub(crate) fn do_not_learn(&mut self, index: u32) -> Result<(), NetlinkError> {
        let message = Message::new(libc::RTM_SETLINK, 0, &fixed(BRIDGE_FAMILY, index, None))
            .nest(libc::IFLA_PROTINFO, |message| message.bytes(PORT_LEARNING, &[0]));
        self.socket.acknowledged(message)
    }
}

/// `struct ifinfomsg`.
fn fixed(family: u8, index: u32, up: Option<bool>) -> [u8; FIXED] {
    let mut bytes = [0; FIXED];
    bytes[0] = family;
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    if let Some(up) = up {
        bytes[8..12].copy_from_slice(&u32::from(up).to_ne_bytes());
        bytes[12..16].copy_from_slice(&UP.to_ne_bytes());
    }
    bytes
}

fn parse(body: &[u8]) -> Option<Link> {
    let index = word(body.get(4..8)?)?;
    let rest = body.get(FIXED..)?;
    let mut link = Link {
        index,
        name: String::new(),
        mac: None,
        mtu: 0,
        kind: String::new(),
        alias: String::new(),
        traffic: Traffic::default(),
    };
    for (kind, value) in attributes(rest) {
        match kind {
            libc::IFLA_IFNAME => text(value)?.clone_into(&mut link.name),
            libc::IFLA_ADDRESS => link.mac = value.try_into().ok(),
            libc::IFLA_MTU => link.mtu = word(value)?,
            STATISTICS => link.traffic = Traffic::parse(value).unwrap_or_default(),
            libc::IFLA_IFALIAS => text(value).unwrap_or_default().clone_into(&mut link.alias),
            libc::IFLA_LINKINFO => {
                let kind = first(value, libc::IFLA_INFO_KIND).and_then(text);
                kind.unwrap_or_default().clone_into(&mut link.kind);
            }
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}
