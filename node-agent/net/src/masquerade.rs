//! The masquerade binding: a network of the guest's own, hidden behind the uplink's addresses.
//!
//! ```text
//!   uplink eth0 ---- rules ---- tap0 10.0.2.1, fd10:0:2::1, fe80::ff:fe00:0 ---- guest 10.0.2.2, fd10:0:2::2
//! ```
//!
//! The TAP has the gateway's addresses itself. A bridge, which KubeVirt puts between, would be one with a single port: it would
//! be one more lookup for each packet, and one more link to make, find again and take away. What a bridge brings
//! besides, an address that does not change with its ports, the TAP is given: it is 02:00:00:00:00:00 everywhere, so that
//! a guest that moves to another node finds its gateway again.
//!
//! A family is served if the uplink has a global address of it. What the rules do (one table for each family, `corten-eth0`):
//!
//! - What the guest sends out leaves with the uplink's address, whatever source the guest gave it.
//! - What comes in by the uplink goes to the guest: all of it, or the ports that are listed.
//! - What a process in the namespace sends to its loopback goes to the guest as well, with the gateway as source: that is
//!   how a port is forwarded through a Pod's localhost. For it the kernel has to take loopback addresses on the TAP.
//! - So the guest could speak to what listens on that loopback: its packets from or to a loopback are dropped first of all.
//! - Packets of no known connection would pass untranslated: they are dropped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corten_link::{Ipv4Addressing, Ipv6Addressing};

use crate::cidr::Network;
use crate::error::{Context, WiringError};
use crate::names::Names;
use crate::nft::{self, Action, Chain, Family, Hook, Match, Rule, Table};
use crate::plan::{InterfacePlan, Masquerade, Port, Wired};
use crate::rtnl::{Change, Route, Rtnl};
use crate::sysctl;
use crate::tap::Tap;
use crate::wire::{addressing, find, mtu_of, wired};

/// The gateway's Ethernet address, as in KubeVirt.
pub(crate) const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
/// The gateway's link-local address, which follows from the Ethernet address (RFC 4291, appendix A). Advertisements come
/// from it.
const GATEWAY_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 0);

/// Addresses of one family on both sides of the TAP.
#[derive(Clone, Copy, Debug)]
struct Sides {
    family: Family,
    gateway: IpAddr,
    guest: IpAddr,
    prefix: u8,
}

pub(crate) fn wire(
    uplink: &str,
    names: &Names,
    plan: &InterfacePlan,
    masquerade: &Masquerade,
) -> Result<Wired, WiringError> {
    let mut rtnl = Rtnl::open().at("list the interfaces beside", uplink)?;
    let link = find(&mut rtnl, uplink)?;
    let sides = families(&mut rtnl, uplink, link.index, masquerade)?;

    // Rules first: nothing of the guest's passes without them. They know links by their names.
    let tables: Vec<_> =
        sides.iter().map(|sides| table(names, uplink, *sides, &masquerade.ports)).collect();
    let both = [Family::Ipv4, Family::Ipv6];
    let absent = both.into_iter().filter(|one| sides.iter().all(|side| side.family != *one));
    let absent: Vec<_> = absent.map(|family| (family, names.table.as_str())).collect();
    nft::replace(&tables, &absent).at("replace the rules of", &names.table)?;

    let tap = Tap::create_down(&names.tap, plan.pairs)?;
    let mtu = mtu_of(plan, &link);
    let device = prepare(&mut rtnl, &names.tap, mtu, &sides)?;
    let ipv4 = sides.iter().find_map(|sides| match (sides.gateway, sides.guest) {
        (IpAddr::V4(server), IpAddr::V4(address)) => Some(Ipv4Addressing {
            address,
            prefix: sides.prefix,
            server,
            gateway: Some(server),
            routes: Vec::new(),
            dns: Vec::new(),
        }),
        _ => None,
    });
    let ipv6 = sides.iter().find_map(|sides| match sides.guest {
        IpAddr::V6(address) => Some(Ipv6Addressing {
            address,
            prefix: sides.prefix,
            is_router: true,
            router_mac: Some(GATEWAY_MAC),
            dns: Vec::new(),
        }),
        IpAddr::V4(_) => None,
    });
    wired(plan, tap, addressing(plan, ipv4, ipv6, mtu), &device, plan.mac, mtu)
}

/// The families that the uplink has a global address of.
fn families(
    rtnl: &mut Rtnl,
    uplink: &str,
    index: u32,
    masquerade: &Masquerade,
) -> Result<Vec<Sides>, WiringError> {
    let addresses = rtnl.addresses().at("list the addresses of", uplink)?;
    let has = |wanted: fn(&IpAddr) -> bool| {
        addresses.iter().any(|one| one.link == index && one.is_global && wanted(&one.ip))
    };
    let Masquerade { ipv4, ipv6, .. } = masquerade;
    let mut sides = Vec::new();
    if has(IpAddr::is_ipv4) {
        let (gateway, guest) = (ipv4.gateway().into(), ipv4.guest().into());
        sides.push(Sides { family: Family::Ipv4, gateway, guest, prefix: ipv4.prefix() });
    }
    if has(IpAddr::is_ipv6) {
        let (gateway, guest) = (ipv6.gateway().into(), ipv6.guest().into());
        sides.push(Sides { family: Family::Ipv6, gateway, guest, prefix: ipv6.prefix() });
    }
    if sides.is_empty() { Err(WiringError::NoAddress(uplink.into())) } else { Ok(sides) }
}

/// Gives the TAP its addresses and settings, and takes it up.
fn prepare(
    rtnl: &mut Rtnl,
    tap: &str,
    mtu: u16,
    sides: &[Sides],
) -> Result<crate::rtnl::Link, WiringError> {
    let device = find(rtnl, tap)?;
    let change = Change { mac: Some(GATEWAY_MAC), mtu: Some(mtu.into()), ..Change::default() };
    rtnl.change_link(device.index, change).at("set address and MTU of", tap)?;
    if sysctl::has_ipv6() {
        // Its link-local address is given below, without the second in which others could object.
        sysctl::set(&format!("ipv6/conf/{tap}/addr_gen_mode"), "1")?;
        // The guest is no router of the namespace's.
        sysctl::set(&format!("ipv6/conf/{tap}/accept_ra"), "0")?;
        let off = sides.iter().all(|sides| sides.family != Family::Ipv6);
        sysctl::set(&format!("ipv6/conf/{tap}/disable_ipv6"), if off { "1" } else { "0" })?;
    }
    for sides in sides {
        rtnl.add_address(device.index, sides.gateway, sides.prefix)
            .at("give an address to", tap)?;
        match sides.family {
            Family::Ipv4 => {
                sysctl::forward_ipv4()?;
                sysctl::set(&format!("ipv4/conf/{tap}/route_localnet"), "1")?;
            }
            Family::Ipv6 => {
                let address = GATEWAY_LINK_LOCAL.into();
                rtnl.add_address(device.index, address, 64).at("give an address to", tap)?;
                sysctl::forward_ipv6()?;
            }
        }
    }
    rtnl.set_up(device.index).at("take up", tap)?;
    if sides.iter().any(|sides| sides.family == Family::Ipv6) {
        rtnl.add_route(Route::loopback(device.index)).at("route the loopback address on", tap)?;
    }
    Ok(device)
}

/// The rules of one family.
fn table(names: &Names, uplink: &str, sides: Sides, ports: &[Port]) -> Table {
    let tap = || Match::In(names.tap.clone());
    let to_tap = || Match::Out(names.tap.clone());
    let loopback = loopback(sides.family);
    let to_guest = Action::ToAddress(sides.guest);
    let chain = |hook, rules| Chain { hook, rules };
    Table {
        family: sides.family,
        name: names.table.clone(),
        chains: vec![
            chain(
                Hook::Raw,
                vec![
                    Rule::new([tap(), Match::Source(loopback)], Action::Drop),
                    Rule::new([tap(), Match::Destination(loopback)], Action::Drop),
                ],
            ),
            chain(Hook::Prerouting, for_ports(&Match::In(uplink.into()), ports, to_guest)),
            chain(Hook::Forward, vec![Rule::new([tap(), Match::Invalid], Action::Drop)]),
            chain(Hook::Output, for_ports(&Match::Destination(loopback), ports, to_guest)),
            chain(
                Hook::Postrouting,
                vec![
                    Rule::new([tap(), Match::Out(uplink.into())], Action::Masquerade),
                    Rule::new(
                        [to_tap(), Match::Source(loopback)],
                        Action::FromAddress(sides.gateway),
                    ),
                ],
            ),
        ],
    }
}

/// The namespace's loopback addresses.
pub(crate) fn loopback(family: Family) -> Network {
    match family {
        Family::Ipv4 => Network::new(Ipv4Addr::LOCALHOST.into(), 8),
        Family::Ipv6 => Network::new(Ipv6Addr::LOCALHOST.into(), 128),
    }
}

/// A rule for everything that `one` fits, or one for the ports of each protocol.
fn for_ports(one: &Match, ports: &[Port], action: Action) -> Vec<Rule> {
    if ports.is_empty() {
        return vec![Rule::new([one.clone()], action)];
    }
    let rule = |ports| Rule::new([one.clone(), ports], action);
    Match::ports(ports).into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cidr::Ipv4Cidr;
    use crate::plan::Protocol;

    fn sides() -> Sides {
        let cidr = Ipv4Cidr::default();
        Sides {
            family: Family::Ipv4,
            gateway: cidr.gateway().into(),
            guest: cidr.guest().into(),
            prefix: 24,
        }
    }

    #[test]
    fn without_ports_everything_is_passed_on() {
        let table = table(&Names::of("eth0").unwrap(), "eth0", sides(), &[]);
        let wanted = "\
table ip corten-eth0 {
  chain raw {
    type filter hook prerouting priority -300
    iifname tap0 ip saddr 127.0.0.0/8 drop
    iifname tap0 ip daddr 127.0.0.0/8 drop
  }
  chain prerouting {
    type nat hook prerouting priority -100
    iifname eth0 dnat to 10.0.2.2
  }
  chain forward {
    type filter hook forward priority 0
    iifname tap0 ct state invalid drop
  }
  chain output {
    type nat hook output priority -100
    ip daddr 127.0.0.0/8 dnat to 10.0.2.2
  }
  chain postrouting {
    type nat hook postrouting priority 100
    iifname tap0 oifname eth0 masquerade
    oifname tap0 ip saddr 127.0.0.0/8 snat to 10.0.2.1
  }
}";
        assert_eq!(table.to_string(), wanted);
    }

    #[test]
    fn with_ports_only_those_are_passed_on() {
        let port = |protocol, number| Port { protocol, number };
        let ports = [port(Protocol::Tcp, 80), port(Protocol::Udp, 53)];
        let table = table(&Names::of("eth0").unwrap(), "eth0", sides(), &ports).to_string();
        for rule in [
            "    iifname eth0 tcp dport 80 dnat to 10.0.2.2\n    iifname eth0 udp dport 53 dnat to 10.0.2.2\n  }",
            "    ip daddr 127.0.0.0/8 tcp dport 80 dnat to 10.0.2.2\n    ip daddr 127.0.0.0/8 udp dport 53 dnat",
        ] {
            assert!(table.contains(rule), "{table}");
        }
        assert!(!table.contains("iifname eth0 dnat"));
    }
}
