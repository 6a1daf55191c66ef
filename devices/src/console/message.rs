//! Messages of the control queues (virtio 1.2, section 5.3.6.2).

use super::config::TerminalSize;

/// Length of a message, without what may follow it.
pub(super) const HEADER: usize = 8;

const DEVICE_READY: u16 = 0;
const DEVICE_ADD: u16 = 1;
const PORT_READY: u16 = 3;
const CONSOLE_PORT: u16 = 4;
const RESIZE: u16 = 5;
const PORT_OPEN: u16 = 6;
const PORT_NAME: u16 = 7;

/// What a driver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FromGuest {
    /// It can, or cannot, take messages.
    DeviceReady { is_ready: bool },
    /// It has, or cannot have, a port.
    PortReady { port: u32, is_ready: bool },
    /// A program has opened a port, or closed it.
    PortOpen { port: u32, is_open: bool },
}

impl FromGuest {
    /// None for a message that no driver sends.
    pub(super) fn from_bytes(bytes: [u8; HEADER]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = bytes;
        let port = u32::from_le_bytes([a, b, c, d]);
        let is_so = u16::from_le_bytes([g, h]) != 0;
        match u16::from_le_bytes([e, f]) {
            // Of the device, whatever the port says.
            DEVICE_READY => Some(Self::DeviceReady { is_ready: is_so }),
            PORT_READY => Some(Self::PortReady { port, is_ready: is_so }),
            PORT_OPEN => Some(Self::PortOpen { port, is_open: is_so }),
            _ => None,
        }
    }
}

/// What a driver is told of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToGuest {
    /// It is there.
    Add,
    /// It is a console.
    Console,
    /// What it is called.
    Name,
    /// How large its terminal is.
    Resize,
    /// The host has closed it, or opened it.
    Open(bool),
}

impl ToGuest {
    /// The message about a port of this number and name.
    pub(super) fn to_bytes(self, port: u32, name: &str, size: TerminalSize) -> Vec<u8> {
        let (event, value) = match self {
            Self::Add => (DEVICE_ADD, 1),
            Self::Console => (CONSOLE_PORT, 1),
            Self::Name => (PORT_NAME, 1),
            Self::Resize => (RESIZE, 1),
            Self::Open(is_open) => (PORT_OPEN, u16::from(is_open)),
        };
        let mut bytes = Vec::with_capacity(HEADER + name.len());
        bytes.extend(port.to_le_bytes());
        bytes.extend(event.to_le_bytes());
        bytes.extend(value.to_le_bytes());
        match self {
            // Not ended by a zero.
            Self::Name => bytes.extend(name.as_bytes()),
            // In this order by the specification; for many years Linux took them the other way round.
            Self::Resize => {
                bytes.extend(size.columns.to_le_bytes());
                bytes.extend(size.rows.to_le_bytes());
            }
            Self::Add | Self::Console | Self::Open(_) => {}
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: TerminalSize = TerminalSize { columns: 0x0102, rows: 0x0304 };

    #[test]
    fn messages_to_the_guest_are_laid_out_as_in_the_specification() {
        let bytes = |message: ToGuest| message.to_bytes(0x0807_0605, "ab", SIZE);
        assert_eq!(bytes(ToGuest::Add), [5, 6, 7, 8, 1, 0, 1, 0]);
        assert_eq!(bytes(ToGuest::Console), [5, 6, 7, 8, 4, 0, 1, 0]);
        assert_eq!(bytes(ToGuest::Resize), [5, 6, 7, 8, 5, 0, 1, 0, 2, 1, 4, 3]);
        assert_eq!(bytes(ToGuest::Open(true)), [5, 6, 7, 8, 6, 0, 1, 0]);
        assert_eq!(bytes(ToGuest::Open(false)), [5, 6, 7, 8, 6, 0, 0, 0]);
        assert_eq!(bytes(ToGuest::Name), [5, 6, 7, 8, 7, 0, 1, 0, b'a', b'b']);
    }

    #[test]
    fn messages_of_the_guest_are_those_of_the_specification() {
        let of = |event: u8, value: u8| FromGuest::from_bytes([3, 0, 0, 0, event, 0, 0, value]);
        let known: Vec<u8> = (0..=u8::MAX).filter(|event| of(*event, 0).is_some()).collect();
        assert_eq!(known, [0, 3, 6]);
        assert_eq!(of(0, 1), Some(FromGuest::DeviceReady { is_ready: true }));
        assert_eq!(of(3, 0), Some(FromGuest::PortReady { port: 3, is_ready: false }));
        assert_eq!(of(6, 1), Some(FromGuest::PortOpen { port: 3, is_open: true }));
        assert_eq!(FromGuest::from_bytes([3, 0, 0, 0, 6, 1, 1, 0]), None);
    }
}
