//! A way to the API server from outside the cluster's network namespace: a port on the machine's loopback.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result};

use crate::addresses::{API_PORT, MACHINE};

/// A port that waits to be opened.
#[derive(Debug)]
pub struct Door(TcpListener);

impl Door {
    /// Takes a free port. To be called before this process enters the namespace: a socket stays where it was made.
    pub fn reserve() -> Result<Self> {
        Ok(Self(TcpListener::bind("127.0.0.1:0").context("no port is free on the loopback")?))
    }

    /// Where it is.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.0.local_addr()?)
    }

    /// Relays connections to the API server, on threads of its own. To be called inside the namespace.
    pub fn open(self) -> Result<()> {
        std::thread::Builder::new().name("door".into()).spawn(move || {
            for client in self.0.incoming().flatten() {
                let relay = std::thread::Builder::new().name("relay".into());
                // A client that cannot be served finds its connection closed.
                let _ = relay.spawn(move || relay_to(client, (MACHINE, API_PORT)));
            }
        })?;
        Ok(())
    }
}

fn relay_to(client: TcpStream, server: (&str, u16)) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    let upward = std::thread::Builder::new().spawn(move || copy(from_client, to_server))?;
    copy(server, client);
    let _ = upward.join();
    Ok(())
}

/// One direction, until its source ends. Then its sink is told so; the other direction may go on.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    if io::copy(&mut from, &mut to).is_err() {
        // Half a connection is of no use to anybody.
        let _ = from.shutdown(Shutdown::Both);
    }
    let _ = to.shutdown(Shutdown::Write);
}
