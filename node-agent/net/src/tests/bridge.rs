//! The bridge binding: the guest in the uplink's place, and what is found again.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;

use corten_link::Ipv4Route;

use super::guest::Guest;
use super::{INSIDE, INSIDE_6, Lan, OUTSIDE, OUTSIDE_6, add_route, seen, within};
use crate::rtnl::{Change, Link, Rtnl};
use crate::{Binding, InterfacePlan, Wired, wire};

fn plan() -> InterfacePlan {
    InterfacePlan {
        name: "default".into(),
        binding: Binding::Bridge,
        pairs: 1,
        ..InterfacePlan::default()
    }
}

fn wired(lan: &Lan) -> Wired {
    wire(lan.inside.as_fd(), "eth0", &plan()).unwrap()
}

fn link(lan: &Lan, name: &str) -> Link {
    within(&lan.inside, || Rtnl::open().unwrap().link(name).unwrap().unwrap())
}

/// A Pod with a route of its own beside the way out.
fn pod() -> Lan {
    let lan = Lan::dual();
    let eth0 = link(&lan, "eth0").index;
    within(&lan.inside, || add_route("198.51.100.0/24", Some("192.0.2.9"), eth0));
    lan
}

fn check(lan: &Lan, mac: [u8; 6], mut wired: Wired) {
    let told = wired.addressing.ipv4.clone().unwrap();
    assert_eq!((told.address.to_string(), told.prefix), (INSIDE.into(), 24));
    assert_eq!(told.gateway, Some(OUTSIDE.parse().unwrap()));
    let route = Ipv4Route {
        destination: Ipv4Addr::new(198, 51, 100, 0),
        prefix: 24,
        gateway: Ipv4Addr::new(192, 0, 2, 9),
    };
    assert_eq!(told.routes, [route]);
    assert_eq!((wired.mac, wired.mtu), (Some(mac), 1400));
    assert!(wired.addressing.ipv6.is_none() && wired.dhcp6.is_none() && wired.router.is_none());
    assert_ne!(link(lan, "eth0-nic").mac, Some(mac));
    assert_eq!(link(lan, "eth0").mac, Some(mac));

    let addresses = [(INSIDE, 24), (INSIDE_6, 64)];
    let guest =
        Guest::new(std::mem::take(&mut wired.queues), mac, &addresses, &[OUTSIDE, OUTSIDE_6]);
    let (inside, outside) = (&guest.namespace, &lan.outside);
    assert_eq!(seen(inside, "0.0.0.0:80", outside, &format!("{INSIDE}:80")), OUTSIDE);
    assert_eq!(seen(outside, "0.0.0.0:81", inside, &format!("{OUTSIDE}:81")), INSIDE);
    assert_eq!(seen(inside, "[::]:80", outside, &format!("[{INSIDE_6}]:80")), OUTSIDE_6);
}

#[test]
fn guest_takes_the_uplinks_place() {
    let lan = pod();
    let mac = link(&lan, "eth0").mac.unwrap();
    let wired = wired(&lan);
    check(&lan, mac, wired);
}

#[test]
fn wiring_again_finds_what_the_uplink_had() {
    let lan = pod();
    let mac = link(&lan, "eth0").mac.unwrap();
    drop(wired(&lan));
    drop(wired(&lan));
    check(&lan, mac, wired(&lan));
}

#[test]
fn wiring_goes_on_where_another_stopped() {
    // The uplink is down and has lost its routes, or has its other name already; what it had was kept before.
    for renamed in [false, true] {
        let lan = pod();
        let mac = link(&lan, "eth0").mac.unwrap();
        within(&lan.inside, || {
            let mut rtnl = Rtnl::open().unwrap();
            let names = crate::names::Names::of("eth0").unwrap();
            crate::bridge::keep_only(&mut rtnl, "eth0", &names).unwrap();
            let eth0 = rtnl.link("eth0").unwrap().unwrap().index;
            rtnl.change_link(eth0, Change { up: Some(false), ..Change::default() }).unwrap();
            let name = renamed.then_some("eth0-nic");
            rtnl.change_link(eth0, Change { name, ..Change::default() }).unwrap();
        });
        let wired = wired(&lan);
        check(&lan, mac, wired);
    }
}

#[test]
fn half_of_what_is_kept_is_not_believed() {
    let lan = pod();
    let mac = link(&lan, "eth0").mac.unwrap();
    within(&lan.inside, || {
        Rtnl::open().unwrap().create_bridge("eth0-old", [2, 0, 0, 0, 0, 9]).unwrap();
    });
    let wired = wired(&lan);
    check(&lan, mac, wired);
}

#[test]
fn guest_asks_for_its_address_over_the_bridge() {
    let lan = pod();
    let mut wired = wired(&lan);
    let guest = Guest::new(
        std::mem::take(&mut wired.queues),
        wired.mac.unwrap(),
        &[("192.0.2.200", 24)],
        &[OUTSIDE],
    );
    let client = super::udp(&guest.namespace, "0.0.0.0:68");
    client.set_broadcast(true).unwrap();
    client.send_to(b"discover", "255.255.255.255:67").unwrap();
    let dhcp = UdpSocket::from(wired.dhcp4.unwrap());
    dhcp.set_nonblocking(false).unwrap();
    dhcp.set_read_timeout(Some(super::PATIENCE)).unwrap();
    assert_eq!(dhcp.recv(&mut [0; 16]).unwrap(), 8);
    dhcp.send_to(b"offer", "255.255.255.255:68").unwrap();
    assert_eq!(client.recv(&mut [0; 16]).unwrap(), 5);
}

#[test]
fn uplink_without_addresses_is_bridged_without_dhcp() {
    let lan = Lan::new(&[], &[]);
    let wired = wired(&lan);
    assert!(wired.addressing.ipv4.is_none() && wired.dhcp4.is_none());
    assert!(wired.mac.is_some());
}
