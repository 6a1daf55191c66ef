//! Reads images for tests, the way Linux does: by Rock Ridge.

use super::SECTOR;

fn number(bytes: &[u8], at: usize) -> usize {
    let field: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
    u32::from_le_bytes(field).try_into().unwrap()
}

/// A file's content as text; none if there is no such file.
pub(crate) fn content(image: &[u8], path: &str) -> Option<String> {
    let root = &image[16 * SECTOR + 156..];
    let mut extent = (number(root, 2), number(root, 10));
    for name in path.split('/') {
        extent = entries(image, extent).into_iter().find(|(found, _)| found == name)?.1;
    }
    let bytes = &image[extent.0 * SECTOR..][..extent.1];
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// The volume label.
pub(crate) fn label(image: &[u8]) -> String {
    String::from_utf8_lossy(&image[16 * SECTOR + 40..][..32]).trim_end().to_owned()
}

/// Names in a directory, each with sector and length.
fn entries(image: &[u8], (sector, length): (usize, usize)) -> Vec<(String, (usize, usize))> {
    let directory = &image[sector * SECTOR..][..length];
    let mut found = Vec::new();
    let mut at = 0;
    while at < directory.len() {
        let record = &directory[at..];
        let length = usize::from(record[0]);
        if length == 0 {
            at = (at + 1).next_multiple_of(SECTOR);
            continue;
        }
        let identifier = usize::from(record[32]);
        let beside = (33 + identifier).next_multiple_of(2);
        let name = name(image, &record[beside..length]);
        found.push((name, (number(record, 2), number(record, 10))));
        at += length;
    }
    found
}

/// The name that entries beside a record give, those of continuations among them.
fn name<'a>(image: &'a [u8], mut entries: &'a [u8]) -> String {
    let mut bytes = Vec::new();
    while entries.len() > 3 {
        let (entry, rest) = entries.split_at(usize::from(entries[2]));
        entries = rest;
        match &entry[..2] {
            b"NM" => bytes.extend(&entry[5..]),
            b"CE" => {
                let area = number(entry, 4) * SECTOR + number(entry, 12);
                entries = &image[area..][..number(entry, 20)];
            }
            _ => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
