//! The host's side: namespaces, pairs of links, rules, settings.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use corten_link::Addressing;

use super::addresses::{PREFIX, PREFIX6, Pair, choose};
use super::{
    Connection, Finding, Held, HeldTap, StandaloneError, StandaloneInterface, StandaloneNetwork,
    StandalonePlan, StandaloneWired, ports, rules,
};
use crate::bridge::attach_tap;
use crate::cidr::Network;
use crate::error::{Context, WiringError};
use crate::namespace::{Namespace, NamespaceError};
use crate::netlink::NetlinkError;
use crate::nft::{self, Family};
use crate::plan::{Binding, Wired};
use crate::rtnl::{MAIN_TABLE, Route, Rtnl};
use crate::tap::Tap;
use crate::wire::{check_name, find, wire};
use crate::{random, sysctl};

/// The namespace's end of the pair: called as in a Pod.
const INSIDE: &str = "eth0";
/// What Ethernet carries, for a host without a way out.
const MTU: u32 = 1500;

/// A namespace with its pair of links.
struct Uplink {
    namespace: Namespace,
    pair: Pair,
}

pub(super) fn create(plan: &StandalonePlan) -> Result<StandaloneNetwork, StandaloneError> {
    check(plan)?;
    let has_ipv6 = sysctl::has_ipv6();
    let mut ports = Vec::new();
    for interface in &plan.interfaces {
        ports.extend(ports::take(interface.ports(), has_ipv6 && interface.has_ipv6())?);
    }
    let mut made = Making { plan, has_ipv6, rtnl: open()?, findings: Vec::new() };

    let mut uplinks = Vec::new();
    let mut tables = Vec::new();
    for interface in &plan.interfaces {
        let guests = match &interface.connection {
            Connection::Masquerade(masquerade) => {
                vec![Network::from(masquerade.ipv4), Network::from(masquerade.ipv6)]
            }
            Connection::Pod(_) => Vec::new(),
            Connection::Bridge(_) => {
                uplinks.push(None);
                continue;
            }
        };
        let uplink = made.uplink(interface, &guests)?;
        let ports = interface.ports();
        let ports6 = if interface.has_ipv6() { ports } else { &[] };
        tables.extend(rules::tables(&uplink.pair, ports, has_ipv6.then_some(ports6)));
        uplinks.push(Some(uplink));
    }
    let has_uplink = !tables.is_empty();
    let tables = has_uplink
        .then(|| nft::own(&tables))
        .transpose()
        .map_err(failed("set the host's rules"))?;
    if has_uplink {
        made.forward()?;
    }
    made.look_at_resolver();

    let mut interfaces = Vec::new();
    let (mut namespaces, mut taps) = (Vec::new(), Vec::new());
    for (interface, uplink) in plan.interfaces.iter().zip(uplinks) {
        let (wired, addresses) = made.connect(interface, uplink.as_ref())?;
        taps.push(HeldTap {
            interface: interface.name.clone(),
            name: wired.tap.clone(),
            namespace: uplink.as_ref().map(|_| namespaces.len()),
        });
        interfaces.push(StandaloneWired { wired, addresses });
        if let Some(uplink) = uplink {
            made.look_at_firewall(&uplink.pair);
            namespaces.push(uplink.namespace);
        }
    }
    let held = Held { namespaces, taps, tables, ports };
    Ok(StandaloneNetwork { interfaces, findings: made.findings, held })
}

/// Whether names and ports are there once.
fn check(plan: &StandalonePlan) -> Result<(), StandaloneError> {
    let (mut names, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for interface in &plan.interfaces {
        check_name(&interface.name).map_err(not_connected(interface))?;
        if !names.insert(&interface.name) {
            return Err(StandaloneError::NameTwice(interface.name.clone()));
        }
        if let Some(twice) = interface.ports().iter().find(|port| !ports.insert(**port)) {
            return Err(StandaloneError::PortTwice(*twice));
        }
    }
    Ok(())
}

struct Making<'a> {
    plan: &'a StandalonePlan,
    has_ipv6: bool,
    rtnl: Rtnl,
    findings: Vec<Finding>,
}

impl Making<'_> {
    /// A namespace, and a pair of links that leads there. `guests` are networks that the guest has behind it.
    fn uplink(
        &mut self,
        interface: &StandaloneInterface,
        guests: &[Network],
    ) -> Result<Uplink, StandaloneError> {
        let namespace = Namespace::create()?;
        // Until the host's link has its addresses, another process would choose the same.
        let lock = lock()?;
        let routes = self.rtnl.routes().map_err(failed("list the host's routes"))?;
        self.look_at_hidden(interface, guests, &routes);
        let pair = self.choose(&routes, guests)?;
        let name = pair.link();
        let links = self.rtnl.links().map_err(failed("list the host's links"))?;
        let way_out = routes.iter().find(|route| route.table == MAIN_TABLE && route.is_default());
        let way_out =
            way_out.and_then(|route| links.iter().find(|one| Some(one.index) == route.link));
        let mtu = way_out.map_or(MTU, |link| link.mtu);
        self.rtnl
            .create_veth(&name, INSIDE, namespace.as_fd(), mtu)
            .map_err(failed("make a pair of links"))?;
        self.prepare_host(&pair).map_err(not_connected(interface))?;
        drop(lock);

        let has_ipv6 = self.has_ipv6;
        Namespace::enter(namespace.as_fd(), || prepare_inside(&pair, has_ipv6))?
            .map_err(not_connected(interface))?;
        Ok(Uplink { namespace, pair })
    }

    fn choose(&mut self, routes: &[Route], guests: &[Network]) -> Result<Pair, StandaloneError> {
        let addresses = self.rtnl.addresses().map_err(failed("list the host's addresses"))?;
        let addresses = addresses.iter().map(|one| Network::new(one.ip, one.prefix));
        let servers = self.plan.resolver.servers.iter();
        let servers =
            servers.map(|server| Network::new(*server, if server.is_ipv4() { 32 } else { 128 }));
        let taken = routes.iter().map(|route| route.destination);
        let taken: Vec<_> =
            taken.chain(addresses).chain(servers).chain(guests.iter().copied()).collect();
        let start = random::bytes().map(u32::from_ne_bytes).unwrap_or_default();
        choose(&taken, start).ok_or(StandaloneError::NoNetwork)
    }

    fn prepare_host(&mut self, pair: &Pair) -> Result<(), WiringError> {
        let name = pair.link();
        let link = find(&mut self.rtnl, &name)?;
        sysctl::set(&format!("ipv4/conf/{name}/route_localnet"), "1")?;
        if self.has_ipv6 {
            // Nobody there is a router of the host's.
            sysctl::set(&format!("ipv6/conf/{name}/accept_ra"), "0")?;
        }
        let mut give = |ip: IpAddr, prefix| {
            self.rtnl.add_address(link.index, ip, prefix).at("give an address to", &name)
        };
        give(pair.host.into(), PREFIX)?;
        if self.has_ipv6 {
            give(pair.host6.into(), PREFIX6)?;
        }
        self.rtnl.set_up(link.index).at("take up", &name)?;
        if self.has_ipv6 {
            let route = Route::loopback(link.index);
            self.rtnl.add_route(route).at("route the loopback address on", &name)?;
        }
        Ok(())
    }

    /// Has the host pass packets on.
    fn forward(&mut self) -> Result<(), StandaloneError> {
        if sysctl::forward_ipv4()? {
            self.findings.push(Finding::Forwarding("IPv4"));
        }
        if self.has_ipv6 && sysctl::forward_ipv6()? {
            self.findings.push(Finding::Forwarding("IPv6"));
        }
        Ok(())
    }

    fn connect(
        &mut self,
        interface: &StandaloneInterface,
        uplink: Option<&Uplink>,
    ) -> Result<(Wired, Vec<IpAddr>), StandaloneError> {
        let binding = match &interface.connection {
            Connection::Masquerade(masquerade) => Binding::Masquerade(masquerade.clone()),
            Connection::Pod(_) => Binding::Bridge,
            Connection::Bridge(bridge) => {
                let wired = self.on_bridge(interface, bridge).map_err(not_connected(interface))?;
                return Ok((wired, Vec::new()));
            }
        };
        let Some(Uplink { namespace, pair }) = uplink else {
            return Err(not_connected(interface)(WiringError::NoLink(INSIDE.into())));
        };
        let plan = interface.in_namespace(self.plan, binding);
        let wired = wire(namespace.as_fd(), INSIDE, &plan).map_err(not_connected(interface))?;
        let mut addresses = vec![pair.inside.into()];
        if self.has_ipv6 && interface.has_ipv6() {
            addresses.push(IpAddr::V6(pair.inside6));
        }
        Ok((wired, addresses))
    }

    /// A TAP on a bridge that the host has.
    fn on_bridge(
        &mut self,
        interface: &StandaloneInterface,
        bridge: &str,
    ) -> Result<Wired, WiringError> {
        let link = find(&mut self.rtnl, bridge)?;
        if link.kind != "bridge" {
            return Err(WiringError::NotABridge(bridge.into()));
        }
        let _lock = lock()?;
        let links = self.rtnl.links().at("list the interfaces beside", bridge)?;
        let taken: BTreeSet<_> = links.iter().map(|link| link.name.as_str()).collect();
        let mut names = (0_u32..).map(|number| format!("cortentap{number}"));
        let name = names.find(|name| !taken.contains(name.as_str()));
        let name = name.ok_or_else(|| WiringError::NoLink("cortentap".into()))?;
        let tap = Tap::create_down(&name, interface.pairs)?;
        let most = u16::try_from(link.mtu).unwrap_or(u16::MAX);
        let mtu = interface.mtu.map_or(most, |wanted| wanted.min(most));
        attach_tap(&mut self.rtnl, &name, mtu, link.index)?;
        Ok(Wired {
            name: interface.name.clone(),
            tap: name,
            queues: tap.into_queues(),
            dhcp4: None,
            dhcp6: None,
            router: None,
            addressing: Addressing::default(),
            mac: interface.mac,
            mtu,
        })
    }

    fn look_at_hidden(
        &mut self,
        interface: &StandaloneInterface,
        guests: &[Network],
        routes: &[Route],
    ) {
        // A broad route still leads to the rest of what it covers.
        let known =
            routes.iter().filter(|one| one.table == MAIN_TABLE && one.destination.prefix >= 16);
        let servers = &self.plan.resolver.servers;
        for guest in guests {
            let route = known.clone().find(|route| guest.overlaps(route.destination));
            let server = servers.iter().find(|server| guest.contains(**server));
            let route = route.map(|route| route.destination.to_string());
            if let Some(behind) =
                route.or_else(|| server.map(|server| format!("name server {server}")))
            {
                self.findings.push(Finding::Hidden {
                    interface: interface.name.clone(),
                    network: guest.to_string(),
                    behind,
                });
            }
        }
    }

    fn look_at_resolver(&mut self) {
        let resolver = &self.plan.resolver;
        if !resolver.unreachable.is_empty() {
            self.findings.push(Finding::NameServers(resolver.unreachable.clone()));
        }
        if resolver.servers.is_empty() {
            self.findings.push(Finding::NoNameServer);
        }
    }

    fn look_at_firewall(&mut self, pair: &Pair) {
        // Only to say so: where it cannot be seen, nothing is said.
        let four = nft::dropping_forward_chains(Family::Ipv4).unwrap_or_default();
        let six = nft::dropping_forward_chains(Family::Ipv6).unwrap_or_default();
        for chain in four.into_iter().chain(six) {
            let (table, chain) = (chain.table, chain.chain);
            let finding = Finding::Firewall { table, chain, link: pair.link() };
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }
}

/// The namespace as a CNI plugin would leave it.
fn prepare_inside(pair: &Pair, has_ipv6: bool) -> Result<(), WiringError> {
    let mut rtnl = Rtnl::open().at("list the interfaces beside", INSIDE)?;
    let lo = find(&mut rtnl, "lo")?;
    rtnl.set_up(lo.index).at("take up", "lo")?;
    let inside = find(&mut rtnl, INSIDE)?;
    rtnl.set_up(inside.index).at("take up", INSIDE)?;
    let mut ways = vec![(IpAddr::from(pair.inside), PREFIX, IpAddr::from(pair.host))];
    if has_ipv6 && sysctl::has_ipv6() {
        ways.push((pair.inside6.into(), PREFIX6, pair.host6.into()));
    }
    for (ip, prefix, gateway) in ways {
        rtnl.add_address(inside.index, ip, prefix).at("give an address to", INSIDE)?;
        let route = Route::way_out(gateway, inside.index);
        rtnl.add_route(route).at("set the way out of", INSIDE)?;
    }
    Ok(())
}

/// A lock that all processes of the host's namespace share: on the namespace itself. It goes with the descriptor.
pub(crate) fn lock() -> Result<File, NamespaceError> {
    let file = File::from(OwnedFd::from(Namespace::current()?));
    file.lock().map_err(NamespaceError::Open)?;
    Ok(file)
}

fn open() -> Result<Rtnl, StandaloneError> {
    Rtnl::open().map_err(failed("look at the host's network"))
}

fn failed(step: &'static str) -> impl Fn(NetlinkError) -> StandaloneError {
    move |source| StandaloneError::Host { step, source }
}

fn not_connected(interface: &StandaloneInterface) -> impl Fn(WiringError) -> StandaloneError {
    let name = interface.name.clone();
    move |source| StandaloneError::Interface { name: name.clone(), source }
}
