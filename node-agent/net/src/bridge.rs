//! The bridge binding: the guest takes the uplink's place, with its Ethernet address and, told by DHCP, its IPv4 addresses.
//!
//! ```text
//!   before:  eth0 (addresses, routes)
//!   after:   eth0-nic (new Ethernet address, none else) -- k6t-eth0 -- tap0 -- guest (eth0's addresses)
//!            eth0 (down: keeps addresses and Ethernet address), table 7547 (keeps the routes)
//! ```
//!
//! What the uplink had is kept in the namespace itself, so that it is found again by whoever wires a second time, and so
//! that the CNI plugin that made the uplink finds its addresses under its name when it takes it away: some remove their
//! rules on the node by them. The link that keeps them is a bridge without ports, as KubeVirt's is a dummy: that kind is
//! needed here anyway, another one may be missing. It stays down and never carries a packet. The kernel would still answer
//! for its addresses on other links, so `arp_ignore` keeps it from that on the bridge, whose own address (that of the
//! DHCP server) is all it answers for.
//!
//! Each step leaves the namespace so that the next try goes on from there. What is kept is complete before the first change
//! of the uplink, which a note on the keeping link says.
//!
//! IPv6 is the network's own: routers there reach the guest, and what they advertise it hears. DHCPv6 is not answered, as in
//! KubeVirt.

use std::net::{IpAddr, Ipv4Addr};

use corten_link::{Ipv4Addressing, Ipv4Route};
use nix::errno::Errno;

use crate::cidr::Network;
use crate::error::{Context, WiringError};
use crate::names::Names;
use crate::netlink::NetlinkError;
use crate::plan::{InterfacePlan, Wired};
use crate::rtnl::{Address, Change, Kind, Link, MAIN_TABLE, Route, Rtnl};
use crate::tap::Tap;
use crate::wire::{addressing, find, mtu_of, wired};
use crate::{random, sysctl};

/// The DHCP server's address, on each bridge: the guest's link has no other host of ours.
const SERVER: Ipv4Addr = Ipv4Addr::new(169, 254, 75, 10);
/// The routing table that keeps the uplink's routes. No rule leads to it.
const KEPT_ROUTES: u32 = 7547;
/// The note that says that all of it is kept.
const COMPLETE: &str = "corten: keeps what the guest has taken over";

pub(crate) fn wire(
    uplink: &str,
    names: &Names,
    plan: &InterfacePlan,
) -> Result<Wired, WiringError> {
    let mut rtnl = Rtnl::open().at("list the interfaces beside", uplink)?;
    let bridge = make_bridge(&mut rtnl, &names.bridge)?;
    if rtnl.link(&names.port).at("look for interface", &names.port)?.is_none() {
        keep(&mut rtnl, uplink, names, &bridge)?;
        set_aside(&mut rtnl, uplink, names)?;
    }
    if let Some(keeper) = rtnl.link(&names.keeper).at("look for interface", &names.keeper)? {
        let change = Change { name: Some(uplink), ..Change::default() };
        rtnl.change_link(keeper.index, change).at("rename", &names.keeper)?;
    }
    let kept = find(&mut rtnl, uplink)?;
    let port = attach_uplink(&mut rtnl, &names.port, &bridge)?;

    let tap = Tap::create_down(&names.tap, plan.pairs)?;
    let mtu = mtu_of(plan, &port);
    attach_tap(&mut rtnl, &names.tap, mtu, bridge.index)?;
    let ipv4 = told(&mut rtnl, uplink, kept.index, bridge.index)?;
    let mac = plan.mac.or(kept.mac);
    wired(plan, tap, addressing(plan, ipv4, None, mtu), &bridge, mac, mtu)
}

/// The bridge between uplink and guest, up, with the DHCP server's address.
fn make_bridge(rtnl: &mut Rtnl, name: &str) -> Result<Link, WiringError> {
    make(rtnl, name, None)?;
    let bridge = find(rtnl, name)?;
    no_ipv6(name)?;
    sysctl::set(&format!("ipv4/conf/{name}/arp_ignore"), "1")?;
    rtnl.set_up(bridge.index).at("take up", name)?;
    rtnl.add_address(bridge.index, SERVER.into(), 32).at("give an address to", name)?;
    Ok(bridge)
}

/// Makes a bridge that may be there already.
fn make(rtnl: &mut Rtnl, name: &str, mac: Option<[u8; 6]>) -> Result<(), WiringError> {
    let random = || random::mac().map_err(|error| errno(&error));
    let created = mac.map_or_else(random, Ok).and_then(|mac| rtnl.create_bridge(name, mac));
    match created {
        Err(error) if error.is(Errno::EEXIST) => Ok(()),
        outcome => outcome.at("make the bridge", name),
    }
}

/// Writes down what the uplink has, where it survives the uplink's own changes.
fn keep(rtnl: &mut Rtnl, uplink: &str, names: &Names, bridge: &Link) -> Result<(), WiringError> {
    let link = find(rtnl, uplink)?;
    if let Some(keeper) = rtnl.link(&names.keeper).at("look for interface", &names.keeper)? {
        if keeper.alias == COMPLETE {
            return Ok(());
        }
        rtnl.delete_link(keeper.index).at("delete", &names.keeper)?;
    }
    let routes = rtnl.routes().at("list the routes of", uplink)?;
    for route in routes.iter().filter(|route| is_kept(route, bridge.index)) {
        rtnl.delete_route(*route).at("forget a route of", uplink)?;
    }
    for route in routes.iter().filter(|route| is_told(route, link.index)) {
        let kept = Route { table: KEPT_ROUTES, link: Some(bridge.index), ..*route };
        rtnl.add_route(kept).at("keep a route of", uplink)?;
    }
    make(rtnl, &names.keeper, link.mac)?;
    let keeper = find(rtnl, &names.keeper)?;
    for address in rtnl.addresses().at("list the addresses of", uplink)? {
        if address.link == link.index && address.is_global {
            rtnl.add_address(keeper.index, address.ip, address.prefix)
                .at("keep an address of", uplink)?;
        }
    }
    let change = Change { alias: Some(COMPLETE), mtu: Some(link.mtu), ..Change::default() };
    rtnl.change_link(keeper.index, change).at("note what is kept of", uplink)
}

/// Only keeps what the uplink has, as a process does that dies afterwards.
#[cfg(test)]
pub(crate) fn keep_only(rtnl: &mut Rtnl, uplink: &str, names: &Names) -> Result<(), WiringError> {
    let bridge = make_bridge(rtnl, &names.bridge)?;
    keep(rtnl, uplink, names, &bridge)
}

/// Gives the uplink its other name. It has to be down for that.
fn set_aside(rtnl: &mut Rtnl, uplink: &str, names: &Names) -> Result<(), WiringError> {
    let link = find(rtnl, uplink)?;
    let change = Change { up: Some(false), ..Change::default() };
    rtnl.change_link(link.index, change).at("take down", uplink)?;
    let change = Change { name: Some(&names.port), ..Change::default() };
    rtnl.change_link(link.index, change).at("rename", uplink)
}

/// Makes the uplink a port of the bridge, without addresses of its own.
fn attach_uplink(rtnl: &mut Rtnl, name: &str, bridge: &Link) -> Result<Link, WiringError> {
    let port = find(rtnl, name)?;
    for address in rtnl.addresses().at("list the addresses of", name)? {
        if address.link == port.index {
            rtnl.delete_address(address).at("take an address from", name)?;
        }
    }
    no_ipv6(name)?;
    // The old address is the guest's now: a bridge would keep what is sent to a port's own for itself.
    let mac = random::mac().map_err(|error| errno(&error)).at("choose an address for", name)?;
    let change = Change { mac: Some(mac), bridge: Some(bridge.index), ..Change::default() };
    rtnl.change_link(port.index, change).at("attach to its bridge", name)?;
    // With one link on each side there is nothing to learn, and a frame that comes back must not move the guest's address.
    rtnl.do_not_learn(port.index).at("switch off learning on", name)?;
    rtnl.set_up(port.index).at("take up", name)?;
    Ok(port)
}

/// Makes a TAP a port of a bridge.
pub(crate) fn attach_tap(
    rtnl: &mut Rtnl,
    tap: &str,
    mtu: u16,
    bridge: u32,
) -> Result<(), WiringError> {
    let device = find(rtnl, tap)?;
    no_ipv6(tap)?;
    // Before it is a port: a bridge takes the smallest MTU of its ports.
    let change = Change { mtu: Some(mtu.into()), ..Change::default() };
    rtnl.change_link(device.index, change).at("set the MTU of", tap)?;
    let change = Change { bridge: Some(bridge), up: Some(true), ..Change::default() };
    rtnl.change_link(device.index, change).at("attach to its bridge", tap)
}

/// What the guest is told, by what is kept.
fn told(
    rtnl: &mut Rtnl,
    uplink: &str,
    keeper: u32,
    bridge: u32,
) -> Result<Option<Ipv4Addressing>, WiringError> {
    let addresses = rtnl.addresses().at("list the addresses of", uplink)?;
    let routes = rtnl.routes().at("list the routes of", uplink)?;
    let routes: Vec<_> = routes.into_iter().filter(|route| is_kept(route, bridge)).collect();
    Ok(addresses.iter().find_map(|address| ipv4_of(*address, keeper, &routes)))
}

fn ipv4_of(address: Address, keeper: u32, routes: &[Route]) -> Option<Ipv4Addressing> {
    let IpAddr::V4(ip) = address.ip else { return None };
    if address.link != keeper {
        return None;
    }
    let four = |address: Option<IpAddr>| match address {
        Some(IpAddr::V4(address)) => Some(address),
        _ => None,
    };
    let gateway =
        routes.iter().filter(|route| route.is_default()).find_map(|one| four(one.gateway));
    let beside = routes.iter().filter(|route| !route.is_default()).filter_map(|route| {
        let Network { address: IpAddr::V4(destination), prefix } = route.destination else {
            return None;
        };
        let gateway = four(route.gateway).unwrap_or(Ipv4Addr::UNSPECIFIED);
        Some(Ipv4Route { destination, prefix, gateway })
    });
    Some(Ipv4Addressing {
        address: ip,
        prefix: address.prefix,
        server: SERVER,
        gateway,
        routes: beside.collect(),
        dns: Vec::new(),
    })
}

/// Whether it is one of the uplink's routes that a guest has to know: its address alone does not bring it along.
fn is_told(route: &Route, uplink: u32) -> bool {
    route.table == MAIN_TABLE
        && route.link == Some(uplink)
        && route.kind == Kind::Unicast
        && !route.is_kernels
        && route.destination.address.is_ipv4()
}

fn is_kept(route: &Route, bridge: u32) -> bool {
    route.table == KEPT_ROUTES && route.link == Some(bridge)
}

/// Keeps a link that only passes frames from taking part in IPv6 itself.
fn no_ipv6(link: &str) -> Result<(), WiringError> {
    if sysctl::has_ipv6() {
        sysctl::set(&format!("ipv6/conf/{link}/disable_ipv6"), "1")?;
    }
    Ok(())
}

fn errno(error: &std::io::Error) -> NetlinkError {
    NetlinkError::Io(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, prefix: u8, gateway: Option<&str>) -> Route {
        Route {
            table: KEPT_ROUTES,
            destination: Network { address: destination.parse().unwrap(), prefix },
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            link: Some(3),
            is_kernels: false,
            kind: Kind::Unicast,
        }
    }

    #[test]
    fn gateway_off_the_link_is_told_with_the_route_to_it() {
        let address =
            Address { link: 5, ip: "10.244.1.7".parse().unwrap(), prefix: 32, is_global: true };
        let routes = [route("0.0.0.0", 0, Some("169.254.1.1")), route("169.254.1.1", 32, None)];
        let told = ipv4_of(address, 5, &routes).unwrap();
        assert_eq!(told.gateway, Some(Ipv4Addr::new(169, 254, 1, 1)));
        let wanted = Ipv4Route {
            destination: Ipv4Addr::new(169, 254, 1, 1),
            prefix: 32,
            gateway: Ipv4Addr::UNSPECIFIED,
        };
        assert_eq!(told.routes, [wanted]);
        assert_eq!((told.address, told.prefix), (Ipv4Addr::new(10, 244, 1, 7), 32));
        assert!(ipv4_of(address, 6, &routes).is_none());
    }

    #[test]
    fn only_the_uplinks_own_routes_are_told() {
        let main = Route { table: MAIN_TABLE, ..route("10.0.0.0", 8, None) };
        assert!(is_told(&main, 3));
        assert!(!is_told(&main, 4));
        assert!(!is_told(&Route { is_kernels: true, ..main }, 3));
        assert!(!is_told(&Route { kind: Kind::Local, ..main }, 3));
        assert!(!is_told(&Route { table: 255, ..main }, 3));
        let six = Network { address: "fd00::".parse().unwrap(), prefix: 64 };
        assert!(!is_told(&Route { destination: six, ..main }, 3));
    }
}
