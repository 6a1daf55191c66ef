//! What a guest is told of its addresses, over real sockets: Corten on one side of a link, Linux on the other. These tests need
//! root.

pub(super) mod link;

use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use corten_link::{
    AddressCounters, Addressing, Counters, EndReason, Event, Ipv4Addressing, Ipv6Addressing,
    MachineDescription, NetworkDescription, NetworkHost, Request, Role,
};
use corten_tests::process::{VmProcess, machine};
use corten_tests::vmm::microguest;
use corten_vmm::addresses::{Addresses, Interface};
use corten_vmm::machine::Hosts;
use nix::sys::socket::{setsockopt, sockopt};

use self::link::{GUEST, GuestLink, host_side};

/// Addresses that are not checked for duplicates yet, solicitations that are lost: a few seconds on a quiet machine.
const SOON: Duration = Duration::from_secs(60);

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);

fn addressing() -> Result<Addressing> {
    Ok(Addressing {
        ipv4: Some(Ipv4Addressing {
            address: ADDRESS,
            prefix: 24,
            server: HOST,
            gateway: Some(HOST),
            routes: Vec::new(),
            dns: vec![HOST],
        }),
        ipv6: Some(Ipv6Addressing {
            address: "fd10:0:2::2".parse()?,
            prefix: 120,
            is_router: true,
            router_mac: None,
            dns: Vec::new(),
        }),
        hostname: "guest".into(),
        ..Addressing::default()
    })
}

/// A link whose guest's questions are answered.
fn answered(addressing: Addressing) -> Result<(GuestLink, Addresses)> {
    let mut link = GuestLink::new(HOST)?;
    let interface = Interface { name: "net1".into(), mac: link.mac, addressing };
    let addresses = Addresses::start(&[interface], &mut link.sockets)?;
    addresses.follow(true);
    Ok((link, addresses))
}

fn counted(addresses: &Addresses) -> AddressCounters {
    let mut counters = Counters::default();
    addresses.count(&mut counters);
    counters.networks["net1"].addresses
}

/// Waits until so many questions are answered: an answer is counted once it was sent, and may be here before that.
fn until_answered(addresses: &Addresses, count: u64) -> Result<AddressCounters> {
    let deadline = Instant::now() + SOON;
    loop {
        let counters = counted(addresses);
        if counters.answered >= count {
            return Ok(counters);
        }
        ensure!(Instant::now() < deadline, "{counters:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The guest's socket at this address.
fn client(address: impl Into<SocketAddr>) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address.into())?;
    setsockopt(&socket, sockopt::BindToDevice, &OsString::from(GUEST))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    Ok(socket)
}

/// Asks until there is an answer: datagrams may be lost, and a link takes a while to be up.
fn ask(socket: &UdpSocket, question: &[u8], to: impl Into<SocketAddr>) -> Result<Vec<u8>> {
    let (to, deadline) = (to.into(), Instant::now() + SOON);
    let mut answer = vec![0; 2000];
    loop {
        let sent = socket.send_to(question, to);
        match sent.and_then(|_| socket.recv(&mut answer)) {
            Ok(length) => return Ok(answer[..length].to_vec()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).context("no answer");
            }
            // Not at once: it may have been refused.
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// A message of the guest with these options behind its kind.
fn dhcp4(link: &GuestLink, current: Ipv4Addr, options: &[u8]) -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0, 1, 2, 3, 4, 0, 0, 0, 0];
    message.extend(current.octets());
    message.extend([0; 12]);
    message.extend(link.mac);
    message.resize(236, 0);
    message.extend([99, 130, 83, 99]);
    message.extend(options);
    message.push(255);
    message
}

/// The kind of the answer, which is its first option, and the address that it gives.
fn granted(answer: &[u8]) -> Result<(u8, Ipv4Addr)> {
    ensure!(answer.len() >= 300 && answer[240..242] == [53, 1], "{answer:?}");
    let octets: [u8; 4] = answer[16..20].try_into()?;
    Ok((answer[242], octets.into()))
}

#[test]
fn guest_without_an_address_gets_one_and_renews_it() -> Result<()> {
    let (link, addresses) = answered(addressing()?)?;
    let none = Ipv4Addr::UNSPECIFIED;
    let socket = client((none, 68))?;
    socket.set_broadcast(true)?;
    let everybody = (Ipv4Addr::BROADCAST, 67);
    let offer = ask(&socket, &dhcp4(&link, none, &[53, 1, 1]), everybody)?;
    ensure!(granted(&offer)? == (2, ADDRESS), "{offer:?}");
    let mut choice = vec![53, 1, 3, 50, 4];
    choice.extend(ADDRESS.octets());
    choice.extend([54, 4]);
    choice.extend(HOST.octets());
    let answer = ask(&socket, &dhcp4(&link, none, &choice), everybody)?;
    ensure!(granted(&answer)? == (5, ADDRESS), "{answer:?}");
    drop(socket);
    // With it, and by it alone: such a socket does not hear broadcasts.
    corten_net::set_ipv4(GUEST, ADDRESS, 24)?;
    let socket = client((ADDRESS, 68))?;
    let answer = ask(&socket, &dhcp4(&link, ADDRESS, &[53, 1, 3]), (HOST, 67))?;
    ensure!(granted(&answer)? == (5, ADDRESS), "{answer:?}");
    let counters = until_answered(&addresses, 3)?;
    ensure!(counters.malformed == 0, "{counters:?}");
    Ok(())
}

#[test]
fn somebody_else_on_the_link_gets_no_address() -> Result<()> {
    let (mut link, addresses) = answered(addressing()?)?;
    let socket = client((Ipv4Addr::UNSPECIFIED, 68))?;
    socket.set_broadcast(true)?;
    let own = dhcp4(&link, Ipv4Addr::UNSPECIFIED, &[53, 1, 1]);
    link.mac[5] ^= 1;
    let other = dhcp4(&link, Ipv4Addr::UNSPECIFIED, &[53, 1, 1]);
    ask(&socket, &own, (Ipv4Addr::BROADCAST, 67))?;
    let before = until_answered(&addresses, 1)?;
    let deadline = Instant::now() + SOON;
    while counted(&addresses).ignored == before.ignored {
        socket.send_to(&other, (Ipv4Addr::BROADCAST, 67))?;
        ensure!(Instant::now() < deadline, "{:?}", counted(&addresses));
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(counted(&addresses).answered == before.answered, "{:?}", counted(&addresses));
    Ok(())
}

#[test]
fn guest_gets_an_ipv6_address_over_its_link_local_one() -> Result<()> {
    let (link, _addresses) = answered(addressing()?)?;
    let socket = client((Ipv6Addr::UNSPECIFIED, 546))?;
    // A solicitation with a rapid commit: what the client is called, and what it wants an address for.
    let mut question = vec![1, 7, 8, 9, 0, 14, 0, 0, 0, 1, 0, 10, 0, 3, 0, 1];
    question.extend(link.mac);
    question.extend([0, 3, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let servers = SocketAddrV6::new("ff02::1:2".parse()?, 547, 0, link.index);
    let answer = ask(&socket, &question, servers)?;
    ensure!(answer[..4] == [7, 7, 8, 9], "{answer:?}");
    let address: Ipv6Addr = "fd10:0:2::2".parse()?;
    let is_given = answer.windows(16).any(|octets| octets == address.octets());
    ensure!(is_given, "{answer:?}");
    Ok(())
}

/// Linux's own solicitations, and what it makes of the answer.
#[test]
fn linux_finds_its_way_out_by_an_advertisement() -> Result<()> {
    let (_link, addresses) = answered(addressing()?)?;
    let deadline = Instant::now() + SOON;
    loop {
        let routes = std::fs::read_to_string("/proc/thread-self/net/ipv6_route")?;
        let nowhere = "0".repeat(32);
        // Destination, source, next hop; the first two with their lengths.
        let is_default = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[0] == nowhere
                && words[1] == "00"
                && words[4].starts_with("fe80")
                && words[9] == GUEST
        };
        if routes.lines().any(|line| is_default(&line)) {
            let on_link =
                routes.lines().any(|line| line.starts_with("fd1000000002000000000000000000"));
            ensure!(on_link, "no route to the link's prefix:\n{routes}");
            break;
        }
        ensure!(Instant::now() < deadline, "{:?}\n{routes}", counted(&addresses));
        std::thread::sleep(Duration::from_millis(50));
    }
    let counters = counted(&addresses);
    ensure!(counters.answered + counters.advertised > 0, "{counters:?}");
    Ok(())
}

#[test]
fn flood_of_questions_costs_little_and_is_over_when_it_ends() -> Result<()> {
    let (link, addresses) = answered(addressing()?)?;
    let socket = client((Ipv4Addr::UNSPECIFIED, 68))?;
    socket.set_broadcast(true)?;
    let question = dhcp4(&link, Ipv4Addr::UNSPECIFIED, &[53, 1, 1]);
    ask(&socket, &question, (Ipv4Addr::BROADCAST, 67))?;
    let before = counted(&addresses);
    let (begin, mut sent) = (Instant::now(), 0);
    while sent < 2000 {
        sent += u32::from(socket.send_to(&question, (Ipv4Addr::BROADCAST, 67)).is_ok());
    }
    let counters = counted(&addresses);
    // A burst, and then one every 20 ms.
    let allowed = 64 + begin.elapsed().as_millis() / 20 + 1;
    let answered = counters.answered - before.answered;
    ensure!(u128::from(answered) <= allowed, "{counters:?} of {allowed}");
    ensure!(counters.throttled > 0, "{counters:?}");
    while socket.recv(&mut [0; 2000]).is_ok() {}
    let offer = ask(&socket, &question, (Ipv4Addr::BROADCAST, 67))?;
    ensure!(granted(&offer)? == (2, ADDRESS), "{offer:?}");
    Ok(())
}

/// A machine with an interface on a TAP that nobody looks at: what is asked comes in by the link.
fn machine_on(link: &GuestLink) -> Result<(MachineDescription, Vec<(Role, OwnedFd)>)> {
    let (_, tap) = host_side(HOST)?;
    let host = NetworkHost { addressing: Some(addressing()?), ..NetworkHost::default() };
    let mut machine = machine(1, 32 << 20);
    let (name, mac) = ("net1".into(), link.mac);
    machine.networks = vec![NetworkDescription { name, mac, mtu: None, pairs: 1, host }];
    let mut devices = vec![(Role::tap("net1", 0)?, tap)];
    for (role, socket) in &link.sockets {
        devices.push((role.clone(), socket.try_clone()?));
    }
    Ok((machine, devices))
}

fn clones(devices: &[(Role, OwnedFd)]) -> Result<Vec<(Role, OwnedFd)>> {
    devices.iter().map(|(role, fd)| Ok((role.clone(), fd.try_clone()?))).collect()
}

#[test]
fn vm_process_answers_through_resets_and_in_a_new_process() -> Result<()> {
    let link = GuestLink::new(HOST)?;
    let (machine, devices) = machine_on(&link)?;
    let socket = client((Ipv4Addr::UNSPECIFIED, 68))?;
    socket.set_broadcast(true)?;
    let question = dhcp4(&link, Ipv4Addr::UNSPECIFIED, &[53, 1, 1]);
    let offered = || -> Result<()> {
        let offer = ask(&socket, &question, (Ipv4Addr::BROADCAST, 67))?;
        ensure!(granted(&offer)? == (2, ADDRESS), "{offer:?}");
        Ok(())
    };
    let source = microguest("doorbell port=0x64 size=1 value=0xfe")?;
    let mut process = VmProcess::boot_granted(machine.clone(), source, clones(&devices)?)?;
    offered()?;
    for _ in 0..3 {
        ensure!(process.next_event(SOON)? == Event::Reset);
    }
    offered()?;
    let counters = process.counters()?.networks["net1"].addresses;
    ensure!(counters.answered >= 2 && counters.malformed == 0, "{counters:?}");
    process.must(Request::Pause)?;
    let saved = process.must(Request::Save)?;
    drop(process);
    let mut process = VmProcess::load_granted(saved, devices, Hosts::of(&machine))?;
    process.must(Request::Resume)?;
    offered()?;
    let deadline = Instant::now() + SOON;
    while process.counters()?.networks["net1"].addresses.advertised == 0 {
        ensure!(Instant::now() < deadline, "a machine that goes on has no router");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn vm_process_names_the_socket_that_is_missing_or_for_nothing() -> Result<()> {
    let link = GuestLink::new(HOST)?;
    let ends = |machine: MachineDescription, devices, text: &str| -> Result<()> {
        let process = VmProcess::boot_granted(machine, microguest("hello")?, devices)?;
        let (status, said) = process.end(SOON)?;
        ensure!(status == i32::from(EndReason::NotStarted.exit_status()), "{status}: {said}");
        ensure!(said.contains(text), "{said}");
        Ok(())
    };
    let (machine, mut devices) = machine_on(&link)?;
    devices.retain(|(role, _)| !role.as_str().starts_with("router/"));
    ends(machine, devices, "the descriptor router/net1 was not granted")?;
    let (mut machine, devices) = machine_on(&link)?;
    machine.networks[0].host.addressing = None;
    ends(machine, devices, "the descriptor dhcp4/net1 was granted, and there are no addresses")
}
