//! Networks on a host without Kubernetes, and what is left of them.

use std::env;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, TcpListener};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use corten_link::{DhcpOptions, PrivateOption, Resolver};

use super::guest::Guest;
use super::{INSIDE, INSIDE_6, Lan, OUTSIDE, OUTSIDE_6, PATIENCE, ask, seen, udp, within};
use crate::nft::{self, Family};
use crate::rtnl::Rtnl;
use crate::standalone::{
    Connection, Finding, StandaloneError, StandaloneInterface, StandaloneNetwork, StandalonePlan,
};
use crate::{Masquerade, Port, Protocol, sysctl};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const GUEST: [(&str, u8); 2] = [("10.0.2.2", 24), ("fd10:0:2::2", 120)];
const GATEWAYS: [&str; 2] = ["10.0.2.1", "fd10:0:2::1"];

fn port(protocol: Protocol, number: u16) -> Port {
    Port { protocol, number }
}

fn interface(name: &str, ports: &[Port]) -> StandaloneInterface {
    let masquerade = Masquerade { ports: ports.to_vec(), ..Masquerade::default() };
    StandaloneInterface {
        name: name.into(),
        connection: Connection::Masquerade(masquerade),
        mac: Some(MAC),
        pairs: 1,
        mtu: None,
        options: DhcpOptions::default(),
    }
}

fn plan(interfaces: &[StandaloneInterface]) -> StandalonePlan {
    StandalonePlan {
        hostname: "guest".into(),
        resolver: Resolver::parse("nameserver 192.0.2.53\n"),
        interfaces: interfaces.to_vec(),
    }
}

/// A host with a place outside. It is `inside` of the pair.
fn host() -> Lan {
    Lan::dual()
}

fn create(host: &Lan, plan: &StandalonePlan) -> Result<StandaloneNetwork, StandaloneError> {
    within(&host.inside, || StandaloneNetwork::create(plan))
}

fn guest(network: &mut StandaloneNetwork, number: usize) -> Guest {
    let queues = std::mem::take(&mut network.interfaces[number].wired.queues);
    Guest::new(queues, MAC, &GUEST, &GATEWAYS)
}

fn at(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

/// Waits until the host has no link or rule of ours.
fn await_nothing(host: &Lan) {
    let deadline = Instant::now() + PATIENCE;
    let left = || {
        within(&host.inside, || {
            let links = Rtnl::open().unwrap().links().unwrap();
            let ours =
                links.into_iter().map(|link| link.name).filter(|name| name.starts_with("corten"));
            let tables = [Family::Ipv4, Family::Ipv6].into_iter().flat_map(nft::table_names);
            ours.chain(tables).collect::<Vec<_>>()
        })
    };
    while !left().is_empty() {
        assert!(Instant::now() < deadline, "left: {:?}", left());
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn guest_reaches_the_world_and_the_host_reaches_it() {
    let host = host();
    let mut network = create(&host, &plan(&[interface("default", &[])])).unwrap();
    let guest = guest(&mut network, 0);
    let (inside, outside) = (&guest.namespace, &host.outside);
    assert_eq!(seen(outside, "0.0.0.0:90", inside, &format!("{OUTSIDE}:90")), INSIDE);
    assert_eq!(seen(outside, "[::]:90", inside, &format!("[{OUTSIDE_6}]:90")), INSIDE_6);

    let addresses = network.interfaces[0].addresses.clone();
    assert_eq!(addresses.len(), 2);
    for address in addresses {
        seen(inside, "[::]:80", &host.inside, &at(address, 80));
    }
    let traffic = network.held.traffic();
    assert!(traffic["default"].received_bytes > 0 && traffic["default"].sent > 0, "{traffic:?}");
    // The host did not forward before.
    let wanted = [Finding::Forwarding("IPv4"), Finding::Forwarding("IPv6")];
    assert_eq!(network.findings, wanted);
    assert_eq!(network.interfaces[0].wired.addressing.mtu, Some(1400));
}

#[test]
fn ports_of_the_host_lead_to_the_guest_from_everywhere() {
    let host = host();
    let ports = [port(Protocol::Tcp, 80), port(Protocol::Udp, 53)];
    let mut network = create(&host, &plan(&[interface("default", &ports)])).unwrap();
    let guest = guest(&mut network, 0);
    let inside = &guest.namespace;
    // From outside, with the true source.
    assert_eq!(seen(inside, "0.0.0.0:80", &host.outside, &format!("{INSIDE}:80")), OUTSIDE);
    assert_eq!(seen(inside, "[::]:80", &host.outside, &format!("[{INSIDE_6}]:80")), OUTSIDE_6);
    // From the host, by its own addresses and its loopback; from the guest itself.
    for to in [
        format!("{INSIDE}:80"),
        format!("[{INSIDE_6}]:80"),
        "127.0.0.1:80".into(),
        "[::1]:80".into(),
    ] {
        seen(inside, "[::]:80", &host.inside, &to);
    }
    for to in [format!("{INSIDE}:80"), format!("[{INSIDE_6}]:80")] {
        seen(inside, "[::]:80", inside, &to);
    }
    let (server, client) = (udp(inside, "10.0.2.2:53"), udp(&host.outside, "0.0.0.0:0"));
    client.send_to(b"question", format!("{INSIDE}:53")).unwrap();
    let (_, peer) = server.recv_from(&mut [0; 16]).unwrap();
    server.send_to(b"answer", peer).unwrap();
    assert_eq!(client.recv(&mut [0; 16]).unwrap(), 6);

    let error = ask(&host.outside, &format!("{INSIDE}:81")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn thousands_of_ports_lead_to_the_guests() {
    let host = host();
    let ports = |protocol, first: u16| (0..1024).map(move |number| port(protocol, first + number));
    let wanted = [
        interface("a", &ports(Protocol::Tcp, 2000).collect::<Vec<_>>()),
        interface("b", &ports(Protocol::Udp, 4000).collect::<Vec<_>>()),
        interface("c", &ports(Protocol::Tcp, 6000).collect::<Vec<_>>()),
        interface("d", &ports(Protocol::Udp, 8000).collect::<Vec<_>>()),
    ];
    let mut network = create(&host, &plan(&wanted)).unwrap();
    let guest = guest(&mut network, 2);
    for port in [6000, 6500, 7023] {
        let (server, to) = (format!("0.0.0.0:{port}"), format!("{INSIDE}:{port}"));
        assert_eq!(seen(&guest.namespace, &server, &host.outside, &to), OUTSIDE);
    }
    let error = ask(&host.outside, &format!("{INSIDE}:7024")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    drop((guest, network));
    await_nothing(&host);
}

#[test]
fn port_that_is_taken_is_refused() {
    let host = host();
    let wanted = plan(&[interface("default", &[port(Protocol::Tcp, 8080)])]);
    let listener = within(&host.inside, || TcpListener::bind("127.0.0.1:8080").unwrap());
    let error = create(&host, &wanted).unwrap_err();
    assert_eq!(error.to_string(), "port 8080/tcp of the host is taken by another program");
    drop(listener);

    // Another VM is another program.
    let first = create(&host, &wanted).unwrap();
    assert!(matches!(create(&host, &wanted), Err(StandaloneError::PortTaken(_))));
    drop(first);
    create(&host, &wanted).unwrap();

    let twice = plan(&[
        interface("a", &[port(Protocol::Udp, 1)]),
        interface("b", &[port(Protocol::Udp, 1)]),
    ]);
    assert!(matches!(create(&host, &twice), Err(StandaloneError::PortTwice(_))));
    let twice = plan(&[interface("a", &[]), interface("a", &[])]);
    assert!(matches!(create(&host, &twice), Err(StandaloneError::NameTwice(_))));
}

#[test]
fn interfaces_and_machines_do_not_meet() {
    let host = host();
    let both = plan(&[interface("a", &[]), interface("b", &[])]);
    let mut first = create(&host, &both).unwrap();
    let second = create(&host, &both).unwrap();
    let all = first.interfaces.iter().chain(&second.interfaces);
    let mut addresses: Vec<_> = all.flat_map(|one| one.addresses.clone()).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 8);
    // The second time there was nothing to switch on.
    assert!(second.findings.is_empty());

    // Two interfaces with the same network.
    let (a, b) = (guest(&mut first, 0), guest(&mut first, 1));
    for guest in [&a, &b] {
        let seen = seen(&host.outside, "0.0.0.0:90", &guest.namespace, &format!("{OUTSIDE}:90"));
        assert_eq!(seen, INSIDE);
    }
}

#[test]
fn host_bridge_gets_a_tap() {
    let host = host();
    within(&host.inside, || {
        let mut rtnl = Rtnl::open().unwrap();
        rtnl.create_bridge("br0", [2, 0, 0, 0, 0, 9]).unwrap();
        super::configure("br0", &[("198.51.100.1", 24)], &[]);
    });
    let on = |bridge: &str| StandaloneInterface {
        connection: Connection::Bridge(bridge.into()),
        ..interface("default", &[])
    };
    let mut network = create(&host, &plan(&[on("br0")])).unwrap();
    let wired = &mut network.interfaces[0].wired;
    assert!(wired.dhcp4.is_none() && wired.dhcp6.is_none() && wired.router.is_none());
    assert_eq!(wired.addressing.ipv4, None);
    let queues = std::mem::take(&mut wired.queues);
    let guest = Guest::new(queues, MAC, &[("198.51.100.2", 24)], &[]);
    let told = seen(&guest.namespace, "0.0.0.0:80", &host.inside, "198.51.100.2:80");
    assert_eq!(told, "198.51.100.1");
    let traffic = within(&host.inside, || network.held.traffic());
    assert!(traffic["default"].received > 0, "{traffic:?}");
    // Nothing was switched on for it.
    within(&host.inside, || assert_eq!(sysctl::get("ipv4/ip_forward").as_deref(), Some("0")));

    let error = create(&host, &plan(&[on("eth0")])).unwrap_err();
    assert_eq!(error.to_string(), "network interface default is not connected");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "network interface eth0 is not a bridge");
    assert!(create(&host, &plan(&[on("br1")])).is_err());
    drop((guest, network));
    await_nothing(&host);
}

#[test]
fn guest_in_the_place_of_a_pod_has_its_address_and_the_ports_of_the_host() {
    let host = host();
    let connection = Connection::Pod(vec![port(Protocol::Tcp, 80)]);
    let one = StandaloneInterface { connection, ..interface("default", &[]) };
    let mut network = create(&host, &plan(&[one])).unwrap();
    let addresses = network.interfaces[0].addresses.clone();
    let wired = &mut network.interfaces[0].wired;
    assert!(wired.dhcp4.is_some() && wired.dhcp6.is_none() && wired.router.is_none());
    let told = wired.addressing.ipv4.clone().unwrap();
    assert_eq!(addresses, [IpAddr::V4(told.address)]);
    assert_eq!(told.dns, ["192.0.2.53".parse::<std::net::Ipv4Addr>().unwrap()]);
    let (address, gateway) = (told.address.to_string(), told.gateway.unwrap().to_string());
    let queues = std::mem::take(&mut wired.queues);
    let guest = Guest::new(queues, MAC, &[(&address, told.prefix)], &[&gateway]);
    let inside = &guest.namespace;
    assert_eq!(
        seen(&host.outside, "0.0.0.0:90", inside, &format!("{OUTSIDE}:90")),
        INSIDE,
        "to the world it is the host"
    );
    assert_eq!(seen(inside, "0.0.0.0:80", &host.outside, &format!("{INSIDE}:80")), OUTSIDE);
    for to in [format!("{INSIDE}:80"), "127.0.0.1:80".into(), format!("{address}:80")] {
        seen(inside, "0.0.0.0:80", &host.inside, &to);
    }
    // Nobody would answer there, so it is not as if somebody did.
    let error = ask(&host.outside, &format!("[{INSIDE_6}]:80")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    drop((guest, network));
    await_nothing(&host);
}

#[test]
fn options_of_an_interface_are_told_with_its_addresses() {
    let host = host();
    let options = DhcpOptions {
        boot_file: "pxelinux.0".into(),
        private: vec![PrivateOption { code: 240, value: "site".into() }],
        ..DhcpOptions::default()
    };
    let one = StandaloneInterface { options: options.clone(), ..interface("default", &[]) };
    let network = create(&host, &plan(&[one, interface("other", &[])])).unwrap();
    let told = |number: usize| network.interfaces[number].wired.addressing.options.clone();
    assert_eq!(told(0), options);
    assert!(told(1).is_empty());
}

#[test]
fn findings_name_firewalls_hidden_networks_and_servers() {
    let host = Lan::new(&[("10.0.2.15", 24)], &["10.0.2.3"]);
    let mut wanted = plan(&[interface("default", &[])]);
    wanted.resolver = Resolver::parse("nameserver 127.0.0.53\n");
    within(&host.inside, || nft::make_firewall("filter"));
    let network = create(&host, &wanted).unwrap();
    let said: Vec<_> = network.findings.iter().map(ToString::to_string).collect();
    assert!(
        said.iter().any(|one| one.starts_with("firewall chain filter/forward drops")),
        "{said:?}"
    );
    assert!(said[0].contains("10.0.2.0/24 hides 10.0.2.0/24"), "{said:?}");
    let servers = Finding::NameServers(vec!["127.0.0.53".into()]);
    assert!(
        network.findings.contains(&servers) && network.findings.contains(&Finding::NoNameServer)
    );
}

#[test]
fn dropped_network_leaves_nothing() {
    let host = host();
    let network = create(&host, &plan(&[interface("default", &[])])).unwrap();
    within(&host.inside, || assert_eq!(nft::table_names(Family::Ipv4).len(), 1));
    drop(network);
    await_nothing(&host);
}

/// Set for a process that only holds a network until it is killed.
const HOLDER: &str = "CORTEN_NET_TEST_HOLDER";

#[test]
fn killed_process_leaves_nothing() {
    if env::var_os(HOLDER).is_some() {
        let ports = [port(Protocol::Tcp, 8080)];
        let _network = StandaloneNetwork::create(&plan(&[interface("default", &ports)])).unwrap();
        println!("\nholding");
        thread::sleep(PATIENCE);
        return;
    }
    let host = host();
    let mut holder = within(&host.inside, || {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "tests::standalone::killed_process_leaves_nothing", "--nocapture"])
            .env(HOLDER, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "holding"));
    within(&host.inside, || {
        let links = Rtnl::open().unwrap().links().unwrap();
        assert!(links.iter().any(|link| link.name.starts_with("corten")));
        assert_eq!(nft::table_names(Family::Ipv6).len(), 1);
        assert!(TcpListener::bind("0.0.0.0:8080").is_err());
    });

    holder.kill().unwrap();
    holder.wait().unwrap();
    await_nothing(&host);
    within(&host.inside, || drop(TcpListener::bind("0.0.0.0:8080").unwrap()));
}

#[test]
fn thread_without_capabilities_is_told_what_is_needed() {
    let error = thread::spawn(|| {
        drop_capabilities();
        StandaloneNetwork::create(&plan(&[interface("default", &[])])).unwrap_err()
    });
    let error = error.join().unwrap();
    let wanted = "a network needs CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN: run it as root, or \
                  without a network";
    assert_eq!(error.to_string(), wanted);
}

/// Takes all capabilities from the calling thread.
fn drop_capabilities() {
    // Version 3 (linux/capability.h), this thread.
    let header = [0x2008_0522_u32, 0];
    let none = [0_u32; 6];
    // SAFETY: both point to values of the layout and size that version 3 has: two words, and two times three.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0);
}

#[test]
fn lock_on_the_host_is_shared_by_its_namespaces_processes() {
    let host = host();
    within(&host.inside, || {
        let first = crate::standalone::lock_of_host().unwrap();
        let second = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        assert!(second.try_lock().is_err());
        drop(first);
        second.try_lock().unwrap();
    });
}
