//! Packets: the header that each begins with, and what a guest may put into it.

/// Length of a header.
pub(super) const HEADER: usize = 44;
/// The only type of socket on offer: a stream.
pub(super) const STREAM: u16 = 1;
/// In a SHUTDOWN: the sender of it will receive no more.
pub(super) const SHUT_RECEIVE: u32 = 1;
/// In a SHUTDOWN: the sender of it will send no more.
pub(super) const SHUT_SEND: u32 = 2;
/// Neither.
pub(super) const SHUT_BOTH: u32 = SHUT_RECEIVE | SHUT_SEND;

/// What a packet is for (virtio 1.2, section 5.10.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Asks for a connection.
    Request,
    /// There is one.
    Response,
    /// There is none, or no longer.
    Reset,
    /// One direction or both are over.
    Shutdown,
    /// Carries bytes.
    Data,
    /// Says how many bytes may be sent.
    CreditUpdate,
    /// Asks how many.
    CreditRequest,
}

impl Operation {
    /// None for a number that means nothing.
    pub(super) fn of(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Request),
            2 => Some(Self::Response),
            3 => Some(Self::Reset),
            4 => Some(Self::Shutdown),
            5 => Some(Self::Data),
            6 => Some(Self::CreditUpdate),
            7 => Some(Self::CreditRequest),
            _ => None,
        }
    }

    /// Its number.
    pub(super) fn number(self) -> u16 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
            Self::Reset => 3,
            Self::Shutdown => 4,
            Self::Data => 5,
            Self::CreditUpdate => 6,
            Self::CreditRequest => 7,
        }
    }
}

/// What a packet begins with: `struct virtio_vsock_hdr`, whatever its fields say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) source_cid: u64,
    pub(super) target_cid: u64,
    pub(super) source_port: u32,
    pub(super) target_port: u32,
    /// Bytes behind the header.
    pub(super) length: u32,
    /// Of the socket.
    pub(super) kind: u16,
    pub(super) operation: u16,
    pub(super) flags: u32,
    /// How many bytes the sender keeps of what it is sent, at most.
    pub(super) buffer: u32,
    /// How many bytes it has passed on, ever; wraps around.
    pub(super) forwarded: u32,
}

impl Header {
    pub(super) fn from_bytes(bytes: &[u8; HEADER]) -> Self {
        Self {
            source_cid: u64::from_le_bytes(field(bytes, 0)),
            target_cid: u64::from_le_bytes(field(bytes, 8)),
            source_port: u32::from_le_bytes(field(bytes, 16)),
            target_port: u32::from_le_bytes(field(bytes, 20)),
            length: u32::from_le_bytes(field(bytes, 24)),
            kind: u16::from_le_bytes(field(bytes, 28)),
            operation: u16::from_le_bytes(field(bytes, 30)),
            flags: u32::from_le_bytes(field(bytes, 32)),
            buffer: u32::from_le_bytes(field(bytes, 36)),
            forwarded: u32::from_le_bytes(field(bytes, 40)),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..8].copy_from_slice(&self.source_cid.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.target_cid.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.source_port.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.target_port.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.kind.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.operation.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.flags.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.buffer.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.forwarded.to_le_bytes());
        bytes
    }

    /// What it is for; none if it is for nothing known.
    pub(super) fn operation(&self) -> Option<Operation> {
        Operation::of(self.operation)
    }

    /// The RST that answers it: of the same type, whatever that is, with the ends swapped.
    pub(super) fn refusal(&self) -> Self {
        Self {
            source_cid: self.target_cid,
            target_cid: self.source_cid,
            source_port: self.target_port,
            target_port: self.source_port,
            kind: self.kind,
            operation: Operation::Reset.number(),
            ..Self::default()
        }
    }
}

fn field<const N: usize>(bytes: &[u8; HEADER], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER_OF_LINUX: Header = Header {
        source_cid: 0x0807_0605_0403_0201,
        target_cid: 0x100f_0e0d_0c0b_0a09,
        source_port: 0x1413_1211,
        target_port: 0x1817_1615,
        length: 0x1c1b_1a19,
        kind: 0x1e1d,
        operation: 0x201f,
        flags: 0x2423_2221,
        buffer: 0x2827_2625,
        forwarded: 0x2c2b_2a29,
    };

    #[test]
    fn header_is_laid_out_as_in_the_specification() {
        let bytes: [u8; HEADER] = std::array::from_fn(|at| u8::try_from(at + 1).unwrap());
        assert_eq!(Header::from_bytes(&bytes), HEADER_OF_LINUX);
        assert_eq!(HEADER_OF_LINUX.to_bytes(), bytes);
    }

    #[test]
    fn operations_have_the_numbers_of_the_specification() {
        let known: Vec<u16> =
            (0..=u16::MAX).filter(|number| Operation::of(*number).is_some()).collect();
        assert_eq!(known, [1, 2, 3, 4, 5, 6, 7]);
        assert!(known.iter().all(|number| Operation::of(*number).unwrap().number() == *number));
        assert_eq!(Operation::Reset.number(), 3);
        assert_eq!(Operation::Data.number(), 5);
    }

    #[test]
    fn refusal_goes_back_where_the_packet_came_from() {
        let refusal = HEADER_OF_LINUX.refusal();
        assert_eq!(refusal.source_port, HEADER_OF_LINUX.target_port);
        assert_eq!(refusal.target_port, HEADER_OF_LINUX.source_port);
        assert_eq!(refusal.target_cid, HEADER_OF_LINUX.source_cid);
        assert_eq!((refusal.kind, refusal.operation), (HEADER_OF_LINUX.kind, 3));
        assert_eq!((refusal.length, refusal.buffer, refusal.forwarded), (0, 0, 0));
    }
}
