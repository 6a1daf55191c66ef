//! Wiring in network namespaces that the tests make themselves: a place outside, a Pod or a host, a guest. They need root.

mod bridge;
mod guest;
mod masquerade;
mod standalone;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cidr::Network;
use crate::link;
use crate::namespace::Namespace;
use crate::rtnl::{Change, Kind, MAIN_TABLE, Route, Rtnl};
use crate::sysctl;

pub(super) const OUTSIDE: &str = "192.0.2.1";
pub(super) const OUTSIDE_6: &str = "2001:db8::1";
pub(super) const INSIDE: &str = "192.0.2.2";
pub(super) const INSIDE_6: &str = "2001:db8::2";

/// Long enough for a machine under load.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Does `work` in `namespace`.
pub(super) fn within<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    Namespace::enter(namespace.as_fd(), work).unwrap()
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Makes a link of the calling thread's namespace ready.
pub(super) fn configure(name: &str, addresses: &[(&str, u8)], ways_out: &[&str]) {
    let mut rtnl = Rtnl::open().unwrap();
    let link = rtnl.link(name).unwrap().unwrap().index;
    rtnl.change_link(link, Change { up: Some(true), ..Change::default() }).unwrap();
    for (address, prefix) in addresses {
        rtnl.add_address(link, ip(address), *prefix).unwrap();
    }
    for gateway in ways_out {
        rtnl.add_route(Route::way_out(ip(gateway), link)).unwrap();
    }
}

pub(super) fn add_route(destination: &str, gateway: Option<&str>, link: u32) {
    let (address, prefix) = destination.split_once('/').unwrap();
    let route = Route {
        table: MAIN_TABLE,
        destination: Network::new(ip(address), prefix.parse().unwrap()),
        gateway: gateway.map(ip),
        link: Some(link),
        is_kernels: false,
        kind: Kind::Unicast,
    };
    Rtnl::open().unwrap().add_route(route).unwrap();
}

/// Two namespaces with a pair of links between: `eth0` in each, the second's way out is the first.
pub(super) struct Lan {
    pub(super) outside: Namespace,
    pub(super) inside: Namespace,
}

impl Lan {
    pub(super) fn new(inside_addresses: &[(&str, u8)], ways_out: &[&str]) -> Self {
        let (outside, inside) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        within(&outside, || {
            link::set_up("lo").unwrap();
            let mut rtnl = Rtnl::open().unwrap();
            rtnl.create_veth("eth0", "eth0", inside.as_fd(), 1400).unwrap();
            configure("eth0", &[(OUTSIDE, 24), (OUTSIDE_6, 64)], &[]);
        });
        within(&inside, || {
            // A new namespace has IPv4 forwarding from the machine, which may have it on.
            sysctl::set("ipv4/ip_forward", "0").unwrap();
            link::set_up("lo").unwrap();
            configure("eth0", inside_addresses, ways_out);
        });
        Self { outside, inside }
    }

    pub(super) fn dual() -> Self {
        Self::new(&[(INSIDE, 24), (INSIDE_6, 64)], &[OUTSIDE, OUTSIDE_6])
    }
}

/// Serves one TCP connection at `address`: tells who asks.
pub(super) fn serve(namespace: &Namespace, address: &str) -> JoinHandle<()> {
    let address: SocketAddr = address.parse().unwrap();
    let listener = within(namespace, || TcpListener::bind(address).unwrap());
    thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        write!(stream, "{}", peer.ip()).unwrap();
    })
}

/// Connects to `address` and reads what is told there.
pub(super) fn ask(namespace: &Namespace, address: &str) -> std::io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    within(namespace, || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        Ok(told)
    })
}

/// Whom a server at `at` in `server` sees when `to` is asked from `client`.
pub(super) fn seen(server: &Namespace, at: &str, client: &Namespace, to: &str) -> String {
    let serving = serve(server, at);
    let told = ask(client, to).unwrap_or_else(|error| panic!("{to}: {error}"));
    serving.join().unwrap();
    told
}

/// A UDP socket in `namespace` that waits for as long as one should.
pub(super) fn udp(namespace: &Namespace, address: &str) -> UdpSocket {
    let address: SocketAddr = address.parse().unwrap();
    let socket = within(namespace, || UdpSocket::bind(address).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}
