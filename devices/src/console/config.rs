//! What a console device is made with.

use std::io;
use std::os::fd::OwnedFd;

use thiserror::Error;

/// Ports of a device. Each has two queues of the guest's memory, and two vectors.
pub const MAX_PORTS: usize = 16;
/// Bytes of a port's name.
pub const MAX_NAME: usize = 64;

/// What a console device is made with: part of the blueprint, as the guest sees all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleConfig {
    /// Its ports, in order. Port 0 is a console: drivers without multiport know of no other.
    pub ports: Vec<PortConfig>,
    /// How large the consoles' terminals are, until somebody says otherwise.
    pub size: TerminalSize,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// What programs of the guest know it by: `/dev/virtio-ports/NAME` with udev. Letters, digits, dots, dashes and
    /// underscores.
    pub name: Option<String>,
    /// Whether it is a console (`hvc0`) and not a stream (`vport0p1`).
    pub is_console: bool,
}

/// The size of a terminal, in characters. Zeros if nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// How wide it is.
    pub columns: u16,
    /// How high it is.
    pub rows: u16,
}

impl TerminalSize {
    /// Whether there is anything to tell a guest.
    pub(super) fn is_known(self) -> bool {
        self != Self::default()
    }
}

/// What is at the host's end of a port when the device is made.
#[derive(Debug)]
pub enum PortEnd {
    /// Nothing, or nothing yet.
    Nothing,
    /// Of a console: where its output goes, as long as the device lives, and where input comes from. Both are made not to
    /// block, for everyone who shares the open file.
    Terminal {
        /// Something that can be written to.
        output: OwnedFd,
        /// A pipe, a terminal or a socket.
        input: Option<OwnedFd>,
    },
    /// A connected stream socket, as [`HostSide::attach`](super::HostSide::attach) takes it.
    Socket(OwnedFd),
}

/// Why there can be no such device.
#[derive(Debug, Error)]
pub enum ConsoleError {
    /// None, or more than can be.
    #[error("a console device cannot have {0} ports: it has from 1 to {MAX_PORTS}")]
    Ports(usize),
    /// Drivers without multiport would have no console.
    #[error("port 0 of a console device is not a console")]
    FirstPort,
    /// Not a name that a file can have, or too long.
    #[error("port {port} of a console device cannot be called {name:?}")]
    Name {
        /// Its number.
        port: usize,
        /// What it was to be called.
        name: String,
    },
    /// Programs of the guest could not tell them apart.
    #[error("two ports of a console device are called {0}")]
    NameTwice(String),
    /// Not one for each port.
    #[error("{found} host ends for the {ports} ports of a console device")]
    PortEnds {
        /// How many there are.
        found: usize,
        /// How many ports.
        ports: usize,
    },
    /// A stream has no terminal.
    #[error("port {0} of a console device is no console and cannot have a terminal")]
    Terminal(usize),
    /// The host is short of something.
    #[error("cannot make the console device's descriptors")]
    Descriptors(#[source] io::Error),
    /// A descriptor that was handed in is of no use.
    #[error("port {port} of a console device cannot use the {what} that it was given")]
    Descriptor {
        /// Its number.
        port: usize,
        /// Which one.
        what: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl ConsoleConfig {
    pub(super) fn check(&self) -> Result<(), ConsoleError> {
        let ports = &self.ports;
        if !(1..=MAX_PORTS).contains(&ports.len()) {
            return Err(ConsoleError::Ports(ports.len()));
        }
        if !ports.first().is_some_and(|port| port.is_console) {
            return Err(ConsoleError::FirstPort);
        }
        for (number, port) in ports.iter().enumerate() {
            let Some(name) = &port.name else { continue };
            if !name_can_be(name) {
                return Err(ConsoleError::Name { port: number, name: name.clone() });
            }
            if ports[..number].iter().any(|other| other.name.as_ref() == Some(name)) {
                return Err(ConsoleError::NameTwice(name.clone()));
            }
        }
        Ok(())
    }
}

/// It becomes the name of a file in the guest.
fn name_can_be(name: &str) -> bool {
    let can_be = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(can_be) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> PortConfig {
        PortConfig { name: Some(name.into()), is_console: false }
    }

    fn check(ports: impl IntoIterator<Item = PortConfig>) -> Result<(), String> {
        let console = PortConfig { name: None, is_console: true };
        let ports = [console].into_iter().chain(ports).collect();
        let config = ConsoleConfig { ports, size: TerminalSize::default() };
        config.check().map_err(|error| error.to_string())
    }

    #[test]
    fn usual_ports_can_be() {
        assert_eq!(check([]), Ok(()));
        assert_eq!(check([port("org.qemu.guest_agent.0"), port("a-b")]), Ok(()));
        assert_eq!(check((1..16).map(|number| port(&format!("port.{number}")))), Ok(()));
    }

    #[test]
    fn names_that_no_file_has_are_refused() {
        let long = "x".repeat(MAX_NAME + 1);
        for name in ["", ".", "..", "a/b", "a b", "a\0", "\n", "ä", long.as_str()] {
            let error = check([port(name)]).unwrap_err();
            assert!(error.contains("port 1 of a console device cannot be called"), "{error}");
        }
    }

    #[test]
    fn ports_that_cannot_be_told_apart_are_refused() {
        let error = check([port("a"), port("b"), port("a")]).unwrap_err();
        assert_eq!(error, "two ports of a console device are called a");
    }

    #[test]
    fn number_of_ports_is_bounded() {
        let config = ConsoleConfig { ports: Vec::new(), size: TerminalSize::default() };
        assert!(matches!(config.check(), Err(ConsoleError::Ports(0))));
        let error = check((0..16).map(|number| port(&format!("port.{number}")))).unwrap_err();
        assert_eq!(error, "a console device cannot have 17 ports: it has from 1 to 16");
    }

    #[test]
    fn first_port_is_a_console() {
        let config = ConsoleConfig { ports: vec![port("a")], size: TerminalSize::default() };
        assert!(matches!(config.check(), Err(ConsoleError::FirstPort)));
    }
}
