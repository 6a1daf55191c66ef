//! The master boot record, with logical partitions in an extended one.

use std::io;

use super::{Partition, Purpose};
use crate::disk_boot::source::{Window, le32};

/// Logical partitions are a list on the disk; a longer one is taken for a circle.
const MAX_LOGICAL: u32 = 60;
const ENTRIES: usize = 446;
const ACTIVE: u8 = 0x80;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
const PROTECTIVE: u8 = 0xee;

/// One entry of a table.
#[derive(Clone, Copy)]
struct Entry {
    status: u8,
    kind: u8,
    first: u64,
    blocks: u64,
}

/// The partitions, if there is a table.
pub(super) fn read(disk: &Window<'_>, sector: u64) -> io::Result<Option<Vec<Partition>>> {
    if disk.size() < 512 {
        return Ok(None);
    }
    let record = disk.bytes(0, 512)?;
    let Some(entries) = entries(&record) else { return Ok(None) };
    let signature = le32(&record, 440);
    let mut partitions = Vec::new();
    let mut logical = 5;
    for (number, entry) in (1..).zip(entries) {
        if EXTENDED.contains(&entry.kind) {
            read_logical(disk, sector, entry, (&mut logical, signature), &mut partitions)?;
        } else {
            partitions.extend(partition(disk, sector, (number, signature), entry));
        }
    }
    // A boot sector of a file system ends with the same mark.
    Ok((!partitions.is_empty()).then_some(partitions))
}

/// Those of a record; none if it is none.
fn entries(record: &[u8]) -> Option<[Entry; 4]> {
    let entry = |number: usize| {
        let entry = record.get(ENTRIES + number * 16..)?.first_chunk::<16>()?;
        let (first, blocks) = (le32(entry, 8).into(), le32(entry, 12).into());
        Some(Entry { status: entry[0], kind: entry[4], first, blocks })
    };
    let entries = [entry(0)?, entry(1)?, entry(2)?, entry(3)?];
    let is_marked = record.get(510..512) == Some(&[0x55, 0xaa]);
    let are_entries = entries.iter().all(|entry| entry.status & !ACTIVE == 0);
    (is_marked && are_entries).then_some(entries)
}

/// Each extended boot record has a partition, which is counted from it, and the next record, which is counted from the
/// first.
fn read_logical(
    disk: &Window<'_>,
    sector: u64,
    extended: Entry,
    (number, signature): (&mut u32, u32),
    partitions: &mut Vec<Partition>,
) -> io::Result<()> {
    let mut at = extended.first;
    for _ in 0..MAX_LOGICAL {
        let Some(place) = disk.part(at.saturating_mul(sector), 512) else { return Ok(()) };
        if place.size() < 512 {
            return Ok(());
        }
        let Some([entry, next, ..]) = entries(&place.bytes(0, 512)?) else { return Ok(()) };
        let entry = Entry { first: at.saturating_add(entry.first), ..entry };
        if entry.blocks > 0 {
            partitions.extend(partition(disk, sector, (*number, signature), entry));
            *number += 1;
        }
        if !EXTENDED.contains(&next.kind) || next.first == 0 {
            return Ok(());
        }
        at = extended.first.saturating_add(next.first);
    }
    Ok(())
}

fn partition(
    disk: &Window<'_>,
    sector: u64,
    (number, signature): (u32, u32),
    entry: Entry,
) -> Option<Partition> {
    let Entry { status, kind, first, blocks } = entry;
    if kind == 0 || kind == PROTECTIVE || first == 0 {
        return None;
    }
    let start = first.checked_mul(sector)?;
    let place = disk.part(start, blocks.saturating_mul(sector))?;
    let purpose = match kind {
        0xea => Purpose::ExtendedBoot,
        0xef => Purpose::EfiSystem,
        _ if status == ACTIVE => Purpose::Active,
        _ => Purpose::Other,
    };
    let uuid = Some(format!("{signature:08x}-{number:02x}"));
    Some(Partition { number, purpose, start, size: place.size(), uuid })
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A record with these entries: status, type, first block, number of blocks.
    pub(in crate::disk_boot) fn mbr(entries: &[(u8, u8, u32, u32)]) -> Vec<u8> {
        let mut record = vec![0; 512];
        record[440..444].copy_from_slice(&0x1234_abcd_u32.to_le_bytes());
        for (number, (status, kind, first, blocks)) in entries.iter().enumerate() {
            let entry = &mut record[ENTRIES + number * 16..][..16];
            entry[0] = *status;
            entry[4] = *kind;
            entry[8..12].copy_from_slice(&first.to_le_bytes());
            entry[12..16].copy_from_slice(&blocks.to_le_bytes());
        }
        record[510..].copy_from_slice(&[0x55, 0xaa]);
        record
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::mbr;
    use super::super::{Scheme, read};
    use super::*;
    use crate::disk_boot::source::Budget;

    fn numbers(disk: &Vec<u8>) -> (Scheme, Vec<(u32, u64)>) {
        let budget = Budget::new(1 << 30);
        let (scheme, partitions) = read(&Window::whole(disk, &budget), 512).unwrap();
        let found = partitions.iter().map(|found| (found.number, found.start / 512));
        (scheme, found.collect())
    }

    fn disk(records: &[(usize, Vec<u8>)]) -> Vec<u8> {
        let mut disk = vec![0; 512 * 1000];
        for (block, record) in records {
            disk[block * 512..(block + 1) * 512].copy_from_slice(record);
        }
        disk
    }

    #[test]
    fn active_partition_comes_first() {
        let record = mbr(&[(0, 0x83, 10, 5), (0x80, 0x83, 20, 5), (0, 0xef, 30, 5)]);
        assert_eq!(numbers(&disk(&[(0, record)])), (Scheme::Mbr, vec![(3, 30), (2, 20), (1, 10)]));
    }

    #[test]
    fn logical_partitions_are_counted_from_five() {
        let records = [
            (0, mbr(&[(0, 0x83, 10, 5), (0, 0x05, 100, 800)])),
            (100, mbr(&[(0, 0x83, 2, 10), (0, 0x05, 50, 20)])),
            (150, mbr(&[(0, 0x83, 3, 10)])),
        ];
        assert_eq!(numbers(&disk(&records)), (Scheme::Mbr, vec![(1, 10), (5, 102), (6, 153)]));
    }

    #[test]
    fn circle_of_logical_partitions_ends() {
        let records = [
            (0, mbr(&[(0, 0x0f, 100, 800)])),
            (100, mbr(&[(0, 0x83, 2, 10), (0, 0x0f, 50, 20)])),
            (150, mbr(&[(0, 0x83, 3, 10), (0, 0x0f, 50, 20)])),
        ];
        assert_eq!(numbers(&disk(&records)).1.len(), MAX_LOGICAL as usize);
    }

    #[test]
    fn boot_sectors_of_file_systems_are_no_tables() {
        let mut sector = mbr(&[]);
        assert_eq!(numbers(&disk(&[(0, sector.clone())])).0, Scheme::Whole);
        sector[ENTRIES..510].fill(0x41);
        assert_eq!(numbers(&disk(&[(0, sector)])).0, Scheme::Whole);
        let behind = mbr(&[(0, 0x83, 5000, 5), (0, 0xee, 1, 999)]);
        assert_eq!(numbers(&disk(&[(0, behind)])).0, Scheme::Whole);
    }
}
