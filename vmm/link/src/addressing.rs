//! What the guest is told of its addresses: by DHCP, DHCPv6 and router advertisements that the VM process answers itself.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// What the guest is told of the addresses of one network interface, over sockets that come with it.
///
/// Each part that is there needs its sockets, and none may come without it: `dhcp4/NAME` for IPv4, `dhcp6/NAME` and
/// `router/NAME` for IPv6. Whoever opens them binds them to the device of the guest's network on the host:
///
/// | role | socket |
/// |---|---|
/// | `dhcp4/NAME` | UDP over IPv4, bound to port 67, allowed to broadcast |
/// | `dhcp6/NAME` | UDP over IPv6 only, bound to port 547, joined to ff02::1:2 |
/// | `router/NAME` | raw ICMPv6 that lets only router solicitations in, joined to ff02::2, hop limit 255 for one and for many |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Addressing {
    /// By DHCP; none for no answer.
    pub ipv4: Option<Ipv4Addressing>,
    /// By DHCPv6 and router advertisements; none for no answer.
    pub ipv6: Option<Ipv6Addressing>,
    /// The guest's name; empty for none.
    pub hostname: String,
    /// Domains that short names are looked up in.
    pub search: Vec<String>,
    /// The largest packet that fits; none to say nothing of it.
    pub mtu: Option<u16>,
    /// What DHCP tells besides, as far as the guest asks for it.
    #[serde(skip_serializing_if = "DhcpOptions::is_empty")]
    pub options: DhcpOptions,
}

/// What DHCP tells besides addresses, because somebody wants it told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct DhcpOptions {
    /// A file to boot from (option 67); empty for none.
    pub boot_file: String,
    /// The server that has it (option 66); empty for none.
    pub tftp_server: String,
    /// Time servers (option 42).
    pub ntp: Vec<Ipv4Addr>,
    /// Those of the site's own.
    pub private: Vec<PrivateOption>,
}

/// An option of the site's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PrivateOption {
    /// From 224 to 254 (RFC 3942).
    pub code: u8,
    /// What it says.
    pub value: String,
}

impl DhcpOptions {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What DHCP tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ipv4Addressing {
    /// The guest's address.
    pub address: Ipv4Addr,
    /// How much of it is the network's.
    pub prefix: u8,
    /// Who answers: the host's address on that network.
    pub server: Ipv4Addr,
    /// The way out; none for none.
    #[serde(default)]
    pub gateway: Option<Ipv4Addr>,
    /// Routes beside the way out.
    #[serde(default)]
    pub routes: Vec<Ipv4Route>,
    /// Name servers.
    #[serde(default)]
    pub dns: Vec<Ipv4Addr>,
}

/// A way to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ipv4Route {
    /// Where to.
    pub destination: Ipv4Addr,
    /// How much of it is the network's.
    pub prefix: u8,
    /// By whom; 0.0.0.0 for the link itself.
    pub gateway: Ipv4Addr,
}

/// What DHCPv6 and router advertisements tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ipv6Addressing {
    /// The guest's address.
    pub address: Ipv6Addr,
    /// How much of it is the network's.
    pub prefix: u8,
    /// Whether the host's side is the way out, and nobody else is on the link. Otherwise the link is taken for one that
    /// others use, too, with a router of its own: only who shows the guest's Ethernet address is answered, nothing is
    /// said to all, and the answer names no way out.
    #[serde(default)]
    pub is_router: bool,
    /// Ethernet address of the host's side, which advertisements name.
    #[serde(default)]
    pub router_mac: Option<[u8; 6]>,
    /// Name servers.
    #[serde(default)]
    pub dns: Vec<Ipv6Addr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_they_were_written_and_left_out_where_there_are_none() {
        let none = serde_json::to_string(&Addressing::default()).unwrap();
        assert!(!none.contains("options"), "{none}");
        let options = DhcpOptions {
            boot_file: "pxe".into(),
            private: vec![PrivateOption { code: 240, value: "x".into() }],
            ..DhcpOptions::default()
        };
        let told = Addressing { options, ..Addressing::default() };
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(serde_json::from_str::<Addressing>(&text).unwrap(), told);
    }
}
