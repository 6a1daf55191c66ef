//! Domain names as they stand in packets (RFC 1035, section 3.1), and lists of them that end where the room does.

use super::AddressingError;

const MAX_LABEL: usize = 63;
const MAX_NAME: usize = 255;
/// What a pointer can reach (RFC 1035, section 4.1.4).
const MAX_POINTER: usize = 0x3fff;
const POINTER: u16 = 0xc000;

/// Domains that short names are looked up in.
#[derive(Clone, Debug, Default)]
pub(super) struct Domains {
    first: String,
    plain: List,
    compressed: List,
}

/// Names behind each other. As pointers only point back, each beginning of the list is a list.
#[derive(Clone, Debug, Default)]
struct List {
    bytes: Vec<u8>,
    /// Where names end.
    ends: Vec<usize>,
}

impl Domains {
    /// The root, which a Pod may list, is no domain to look short names up in.
    pub(super) fn new(names: &[String]) -> Result<Self, AddressingError> {
        let names: Vec<&str> = names
            .iter()
            .map(|name| name.strip_suffix('.').unwrap_or(name))
            .filter(|name| !name.is_empty())
            .collect();
        let (mut plain, mut compressed) = (List::default(), List::default());
        // Where a name, or the end of one, stands already.
        let mut known: Vec<(&str, u16)> = Vec::new();
        for name in &names {
            plain.push(&encode(name)?);
            let at = compressed.bytes.len();
            compressed.push(&compress(name, at, &mut known));
        }
        let first = names.first().copied().unwrap_or_default().to_owned();
        Ok(Self { first, plain, compressed })
    }

    /// The first one as text; empty if there is none.
    pub(super) fn first(&self) -> &str {
        &self.first
    }

    /// As many as `room` has place for.
    pub(super) fn plain(&self, room: usize) -> &[u8] {
        self.plain.within(room)
    }

    /// The same for receivers that know pointers.
    pub(super) fn compressed(&self, room: usize) -> &[u8] {
        self.compressed.within(room)
    }
}

impl List {
    fn push(&mut self, name: &[u8]) {
        self.bytes.extend(name);
        self.ends.push(self.bytes.len());
    }

    fn within(&self, room: usize) -> &[u8] {
        let end = self.ends.iter().rev().find(|end| **end <= room);
        &self.bytes[..end.copied().unwrap_or(0)]
    }
}

/// A name as labels, with the root at its end.
pub(super) fn encode(name: &str) -> Result<Vec<u8>, AddressingError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let mut bytes = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|_| label.len() <= MAX_LABEL);
        let length = length.filter(|length| *length > 0 && label.bytes().all(allowed));
        bytes.push(length.ok_or_else(|| AddressingError::Name(name.into()))?);
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    if bytes.len() > MAX_NAME { Err(AddressingError::Name(name.into())) } else { Ok(bytes) }
}

/// A name that can be encoded, at this place: up to the longest end of it that stands before.
fn compress<'a>(name: &'a str, at: usize, known: &mut Vec<(&'a str, u16)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = name;
    loop {
        if let Some((_, place)) = known.iter().find(|(end, _)| *end == rest) {
            bytes.extend((POINTER | *place).to_be_bytes());
            return bytes;
        }
        let place = at + bytes.len();
        if let Some(place) = u16::try_from(place).ok().filter(|_| place <= MAX_POINTER) {
            known.push((rest, place));
        }
        let (label, behind) = rest.split_once('.').map_or((rest, None), |(a, b)| (a, Some(b)));
        // It is not longer than 63 bytes, or it had not been encoded.
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend(label.bytes());
        let Some(behind) = behind else {
            bytes.push(0);
            return bytes;
        };
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains(names: &[&str]) -> Domains {
        Domains::new(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn names_are_labels_with_the_root_at_the_end() {
        assert_eq!(encode("svc.cluster").unwrap(), b"\x03svc\x07cluster\0");
    }

    #[test]
    fn odd_names_are_refused() {
        let (label, name) = ("x".repeat(64), ["x"; 128].join("."));
        for odd in ["", ".", "a..b", "a b", "\u{e4}", "a\0", &label, &name] {
            assert!(encode(odd).is_err(), "{odd:?}");
        }
        assert!(encode(&["x"; 127].join(".")).is_ok());
    }

    /// As RFC 3397, section 2, has it, with names of a Pod.
    #[test]
    fn ends_of_names_that_stand_before_are_pointed_at() {
        let domains = domains(&["default.svc.cluster.local", "svc.cluster.local.", ".", "local"]);
        assert_eq!(domains.first(), "default.svc.cluster.local");
        let mut expected = b"\x07default\x03svc\x07cluster\x05local\0".to_vec();
        assert_eq!(domains.plain(27), expected);
        expected.extend([0xc0, 8, 0xc0, 20]);
        assert_eq!(domains.compressed(1000), expected);
    }

    #[test]
    fn list_ends_with_the_last_name_that_fits() {
        let domains = domains(&["a.b", "c.b", "d.b"]);
        for (room, plain, compressed) in [(4, 0, 0), (5, 5, 5), (8, 5, 5), (9, 5, 9), (14, 10, 13)]
        {
            assert_eq!(domains.plain(room).len(), plain, "{room}");
            assert_eq!(domains.compressed(room).len(), compressed, "{room}");
        }
    }
}
