//! Directories: records of 32 bytes, long names in front of the record that they belong to.

use crate::disk_boot::source::{le16, le32};

const RECORD: usize = 32;
const VOLUME_LABEL: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
const LONG_NAME: u8 = 0x0f;
const FREE: u8 = 0xe5;
/// The first record of a long name, which has its end.
const LAST_LONG: u8 = 0x40;
/// Records that the longest name takes.
const MAX_LONG: u8 = 20;
/// Where a record of a long name has its letters.
const LETTERS: [usize; 13] = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    /// The name of eight letters and three.
    pub(super) short: String,
    pub(super) is_directory: bool,
    pub(super) cluster: u32,
    pub(super) size: u32,
}

/// The long name that is being read, and what it belongs to.
#[derive(Default)]
struct Long {
    letters: Vec<u16>,
    checksum: u8,
    /// Number of the record that comes next; 0 when all are there.
    next: u8,
}

/// The entries of a directory's content.
pub(super) fn entries(content: &[u8]) -> impl Iterator<Item = Entry> {
    let records = content.as_chunks::<RECORD>().0.iter().take_while(|record| record[0] != 0);
    let mut long = None;
    records.filter_map(move |record| {
        if record[11] & 0x3f == LONG_NAME {
            take_long(&mut long, record);
            return None;
        }
        let long = long.take();
        if record[0] == FREE || record[11] & VOLUME_LABEL != 0 {
            return None;
        }
        let short = short_name(record);
        let cluster = u32::from(le16(record, 20)) << 16 | u32::from(le16(record, 26));
        Some(Entry {
            name: long_name(long, record).unwrap_or_else(|| short.clone()),
            short,
            is_directory: record[11] & DIRECTORY != 0,
            cluster,
            size: le32(record, 28),
        })
    })
}

/// Takes a record of a long name: its last part comes first.
fn take_long(long: &mut Option<Long>, record: &[u8; RECORD]) {
    let number = record[0] & !LAST_LONG;
    if record[0] & LAST_LONG != 0 {
        *long = (1..=MAX_LONG).contains(&number).then(|| Long {
            letters: Vec::new(),
            checksum: record[13],
            next: number,
        });
    }
    let Some(name) = long.as_mut() else { return };
    if name.next != number || name.checksum != record[13] || number == 0 {
        *long = None;
        return;
    }
    name.next -= 1;
    let mut letters: Vec<u16> = LETTERS.iter().map(|at| le16(record, *at)).collect();
    letters.append(&mut name.letters);
    name.letters = letters;
}

fn long_name(long: Option<Long>, record: &[u8; RECORD]) -> Option<String> {
    let sum = |sum: u8, byte: &u8| sum.rotate_right(1).wrapping_add(*byte);
    let checksum = record[..11].iter().fold(0, sum);
    let long = long.filter(|long| long.next == 0 && long.checksum == checksum)?;
    let end = long.letters.iter().position(|letter| *letter == 0).unwrap_or(long.letters.len());
    String::from_utf16(&long.letters[..end]).ok()
}

fn short_name(record: &[u8; RECORD]) -> String {
    // Windows NT keeps the case of a name that needs no long one in two bits.
    let part = |bytes: &[u8], lower: bool| {
        let text = String::from_utf8_lossy(bytes).trim_end().to_owned();
        if lower { text.to_lowercase() } else { text }
    };
    let name = part(&record[..8], record[12] & 0x08 != 0);
    let extension = part(&record[8..11], record[12] & 0x10 != 0);
    if extension.is_empty() { name } else { format!("{name}.{extension}") }
}
