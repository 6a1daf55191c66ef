//! Messages as bytes: a header, a fixed part, and attributes that may hold attributes.

use std::net::IpAddr;

/// Length of `struct nlmsghdr`.
pub(super) const HEADER: usize = 16;
/// Length of an attribute's own header.
const ATTRIBUTE: usize = 4;
/// This attribute holds attributes.
const NESTED: u16 = 1 << 15;
/// What is left of an attribute's kind without its flags.
const KIND: u16 = 0x3fff;

/// A message that is being written. Its length and number are filled in when it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message of `kind`, with its fixed part.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend([0; 4]);
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(fixed);
        Self { bytes }.aligned()
    }

    /// Adds an attribute.
    pub(crate) fn bytes(self, kind: u16, value: &[u8]) -> Self {
        self.attribute(kind, |bytes| bytes.extend(value))
    }

    /// Adds a number in the machine's order, as rtnetlink has them.
    pub(crate) fn word(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Adds a number in the network's order, as nf_tables has them.
    pub(crate) fn big(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Adds a string with its final NUL.
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, |bytes| {
            bytes.extend(value.as_bytes());
            bytes.push(0);
        })
    }

    /// Adds an address of either family.
    pub(crate) fn address(self, kind: u16, value: IpAddr) -> Self {
        match value {
            IpAddr::V4(address) => self.bytes(kind, &address.octets()),
            IpAddr::V6(address) => self.bytes(kind, &address.octets()),
        }
    }

    /// Adds an attribute that holds what `fill` adds.
    pub(crate) fn nest(self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let at = self.bytes.len();
        let mut filled = fill(self.bytes(kind | NESTED, &[]));
        filled.set_length(at);
        filled
    }

    /// Adds bytes that are neither header nor attribute: the fixed part of a message within a message.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self.aligned()
    }

    /// The message with its length, flags added to those it has, and its number.
    pub(super) fn finish(mut self, more_flags: u16, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("a message is a few hundred bytes");
        let flags = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | more_flags;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }

    fn attribute(mut self, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) -> Self {
        let at = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        fill(&mut self.bytes);
        self.set_length(at);
        self.aligned()
    }

    fn set_length(&mut self, at: usize) {
        let length = u16::try_from(self.bytes.len() - at)
            .expect("attributes here are names, addresses and the expressions of one rule");
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    }

    fn aligned(mut self) -> Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }
}

/// The attributes in `bytes`, up to the first that does not fit.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
        let kind = u16::from_ne_bytes([*bytes.get(2)?, *bytes.get(3)?]) & KIND;
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The first attribute of `kind`.
pub(crate) fn first(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// A number in the machine's order.
pub(crate) fn word(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// A string up to its NUL.
pub(crate) fn text(value: &[u8]) -> Option<&str> {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    str::from_utf8(&value[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_attributes_are_aligned_and_read_back() {
        let message = Message::new(16, 1, &[7; 3])
            .nest(9, |message| message.text(1, "veth").word(2, 5))
            .bytes(3, &[1, 2, 3]);
        let bytes = message.finish(4, 77);
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()), 52);
        assert_eq!(bytes[6], 5);

        let found: Vec<_> = attributes(&bytes[HEADER + 4..]).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], (3, &[1, 2, 3][..]));
        assert_eq!(first(found[0].1, 1).and_then(text), Some("veth"));
        assert_eq!(first(found[0].1, 2).and_then(word), Some(5));
    }

    #[test]
    fn attributes_that_do_not_fit_end_the_list() {
        assert_eq!(attributes(&[8, 0, 1, 0, 1, 2]).count(), 0);
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0);
        assert_eq!(attributes(&[0]).count(), 0);
        // The last one's padding may be missing.
        assert_eq!(attributes(&[5, 0, 1, 0, 9]).collect::<Vec<_>>(), [(1, &[9][..])]);
    }
}
