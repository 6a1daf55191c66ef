//! Volume descriptors (ECMA-119, section 8; Joliet, section "SVD").

use super::names::Naming;
use super::{SECTOR, both16, both32, field};

const PRIMARY: u8 = 1;
const SUPPLEMENTARY: u8 = 2;
const TERMINATOR: u8 = 255;
/// UCS-2, level 3.
const JOLIET_ESCAPE: &[u8] = b"%/E";

/// What a descriptor says.
pub(super) struct Volume<'a> {
    pub(super) label: &'a str,
    pub(super) sectors: usize,
    /// Little-endian, big-endian.
    pub(super) tables: [usize; 2],
    pub(super) table_length: usize,
    /// The root directory's record.
    pub(super) root: Vec<u8>,
}

impl Volume<'_> {
    pub(super) fn descriptor(&self, naming: Naming) -> Vec<u8> {
        let kind = match naming {
            Naming::Plain => PRIMARY,
            Naming::Joliet => SUPPLEMENTARY,
        };
        let mut bytes = begin(kind);
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(8, &text(naming, "", 32));
        put(40, &text(naming, self.label, 32));
        put(80, &both32(field(self.sectors)));
        if naming == Naming::Joliet {
            put(88, JOLIET_ESCAPE);
        }
        // One volume, the first.
        put(120, &both16(1));
        put(124, &both16(1));
        put(128, &both16(2048));
        put(132, &both32(field(self.table_length)));
        put(140, &field(self.tables[0]).to_le_bytes());
        put(148, &field(self.tables[1]).to_be_bytes());
        put(156, &self.root);
        // Volume set, publisher, preparer, application; then three names of files that there are not.
        for at in [190, 318, 446, 574] {
            put(at, &text(naming, "", 128));
        }
        for at in [702, 739, 776] {
            put(at, &text(naming, "", 37));
        }
        // Times of creation and so on: none is given.
        for at in [813, 830, 847, 864] {
            put(at, b"0000000000000000\0");
        }
        put(881, &[1]);
        bytes
    }
}

/// The last descriptor.
pub(super) fn terminator() -> Vec<u8> {
    begin(TERMINATOR)
}

fn begin(kind: u8) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR];
    bytes[0] = kind;
    bytes[1..6].copy_from_slice(b"CD001");
    bytes[6] = 1;
    bytes
}

/// A field of text, filled up with spaces.
fn text(naming: Naming, text: &str, length: usize) -> Vec<u8> {
    match naming {
        Naming::Plain => text.bytes().chain(std::iter::repeat(b' ')).take(length).collect(),
        Naming::Joliet => {
            // Of an odd length the last byte is zero.
            let units = text.encode_utf16().chain(std::iter::repeat(u16::from(b' ')));
            let mut bytes: Vec<u8> = units.take(length / 2).flat_map(u16::to_be_bytes).collect();
            bytes.resize(length, 0);
            bytes
        }
    }
}
