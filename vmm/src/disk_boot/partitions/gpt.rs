//! The GUID partition table (UEFI 2.10, section 5.3).

use std::io;

use super::{Partition, Purpose, Scheme};
use crate::disk_boot::checksum::crc32;
use crate::disk_boot::source::{Window, array, le32, le64};

/// What a header has at least.
const HEADER: usize = 92;
/// Tables of real disks have 16 KiB.
const MAX_TABLE: u64 = 1 << 20;

/// GUIDs as they are on the disk.
const EFI_SYSTEM: u128 = on_disk(0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b);
const EXTENDED_BOOT: u128 = on_disk(0xbc13c2ff_59e6_4262_a352_b275fd6f7172);
const ROOT_X86_64: u128 = on_disk(0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709);
const BIOS_BOOT: u128 = on_disk(0x21686148_6449_6e6f_744e_656564454649);
const MICROSOFT_RESERVED: u128 = on_disk(0xe3c9e316_0b5c_4db8_817d_f92df00215ae);

/// A GUID in the order in which it is written, as the little-endian number that the disk has: its first three groups are
/// turned around.
const fn on_disk(guid: u128) -> u128 {
    let [a, b, c, d, e, f, g, h, rest @ ..] = guid.to_be_bytes();
    let [i, j, k, l, m, n, o, p] = rest;
    u128::from_le_bytes([d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p])
}

/// The table, if there is a good one: the first, or else the one at the end of the disk.
pub(super) fn read(disk: &Window<'_>, sector: u64) -> io::Result<Option<(Scheme, Vec<Partition>)>> {
    let Some(last) = (disk.size() / sector).checked_sub(1) else { return Ok(None) };
    for (scheme, block) in [(Scheme::Gpt, 1), (Scheme::GptBackup, last)] {
        if let Some(partitions) = table(disk, sector, block)? {
            return Ok(Some((scheme, partitions)));
        }
    }
    Ok(None)
}

/// The table whose header is in this block; none if it or its checksums are wrong.
fn table(disk: &Window<'_>, sector: u64, block: u64) -> io::Result<Option<Vec<Partition>>> {
    let Some(place) = disk.part(block.saturating_mul(sector), sector) else { return Ok(None) };
    let header = place.bytes(0, usize::try_from(place.size()).unwrap_or(0))?;
    let length = usize::try_from(le32(&header, 12)).unwrap_or(usize::MAX);
    let Some(covered) = header.get(..length).filter(|_| length >= HEADER) else { return Ok(None) };
    let mut covered = covered.to_vec();
    covered[16..20].fill(0);
    if !header.starts_with(b"EFI PART")
        || crc32(&covered) != le32(&header, 16)
        || le64(&header, 24) != block
    {
        return Ok(None);
    }
    let (count, size) = (u64::from(le32(&header, 80)), u64::from(le32(&header, 84)));
    let bytes = count.saturating_mul(size);
    if size < 128 || bytes > MAX_TABLE {
        return Ok(None);
    }
    let start = le64(&header, 72).saturating_mul(sector);
    let Some(place) = disk.part(start, bytes).filter(|place| place.size() == bytes) else {
        return Ok(None);
    };
    let entries = place.bytes(0, usize::try_from(bytes).unwrap_or(0))?;
    if crc32(&entries) != le32(&header, 88) {
        return Ok(None);
    }
    let entries = entries.chunks(usize::try_from(size).unwrap_or(usize::MAX));
    Ok(Some((1..).zip(entries).filter_map(|entry| partition(disk, sector, entry)).collect()))
}

/// An entry that is in use and on the disk.
fn partition(disk: &Window<'_>, sector: u64, (number, entry): (u32, &[u8])) -> Option<Partition> {
    let kind = u128::from_le_bytes(array(entry, 0));
    let (first, last) = (le64(entry, 32), le64(entry, 40));
    let blocks = last.checked_sub(first)?.checked_add(1)?;
    let start = first.checked_mul(sector).filter(|_| kind != 0)?;
    let place = disk.part(start, blocks.saturating_mul(sector))?;
    let purpose = match kind {
        EXTENDED_BOOT => Purpose::ExtendedBoot,
        EFI_SYSTEM => Purpose::EfiSystem,
        ROOT_X86_64 => Purpose::Root,
        BIOS_BOOT | MICROSOFT_RESERVED => Purpose::Reserved,
        _ => Purpose::Other,
    };
    let uuid = Some(text(array(entry, 16)));
    Some(Partition { number, purpose, start, size: place.size(), uuid })
}

/// A GUID of the disk as people write it.
fn text(guid: [u8; 16]) -> String {
    let number = u128::from_be_bytes(on_disk(u128::from_be_bytes(guid)).to_le_bytes());
    let digits = format!("{number:032x}");
    let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    groups.join("-")
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A disk of `blocks` with these partitions: type, first and last block.
    pub(in crate::disk_boot) fn gpt(
        sector: usize,
        blocks: usize,
        partitions: &[(u128, u64, u64)],
    ) -> Vec<u8> {
        let mut entries = vec![0; 128 * 128];
        for (number, (kind, first, last)) in partitions.iter().enumerate() {
            let entry = &mut entries[number * 128..(number + 1) * 128];
            entry[..16].copy_from_slice(&on_disk(*kind).to_le_bytes());
            entry[16..32].copy_from_slice(&on_disk(0xabcd + number as u128).to_le_bytes());
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        let mut disk = vec![0; sector * blocks];
        let table_blocks = entries.len() / sector;
        let last = blocks - 1;
        for (own, other, table) in [(1, last, 2), (last, 1, last - table_blocks)] {
            let mut header = vec![0; HEADER];
            header[..8].copy_from_slice(b"EFI PART");
            header[8..12].copy_from_slice(&0x10000_u32.to_le_bytes());
            header[12..16].copy_from_slice(&92_u32.to_le_bytes());
            header[24..32].copy_from_slice(&(own as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(other as u64).to_le_bytes());
            header[72..80].copy_from_slice(&(table as u64).to_le_bytes());
            header[80..84].copy_from_slice(&128_u32.to_le_bytes());
            header[84..88].copy_from_slice(&128_u32.to_le_bytes());
            header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
            let sum = crc32(&header);
            header[16..20].copy_from_slice(&sum.to_le_bytes());
            disk[own * sector..own * sector + HEADER].copy_from_slice(&header);
            disk[table * sector..table * sector + entries.len()].copy_from_slice(&entries);
        }
        disk
    }
}

#[cfg(test)]
mod tests {
    use super::super::{read, testing::gpt};
    use super::*;
    use crate::disk_boot::source::Budget;

    const LINUX: u128 = 0x0fc63daf_8483_4772_8e79_3d69d8477de4;
    const ESP: u128 = 0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b;
    const XBOOTLDR: u128 = 0xbc13c2ff_59e6_4262_a352_b275fd6f7172;

    fn of(disk: &Vec<u8>, sector: u64) -> (Scheme, Vec<Partition>) {
        let budget = Budget::new(1 << 30);
        read(&Window::whole(disk, &budget), sector).unwrap()
    }

    fn numbers(disk: &Vec<u8>, sector: u64) -> (Scheme, Vec<u32>) {
        let (scheme, partitions) = of(disk, sector);
        (scheme, partitions.iter().map(|partition| partition.number).collect())
    }

    const THREE: [(u128, u64, u64); 3] = [(LINUX, 40, 49), (ESP, 50, 59), (XBOOTLDR, 60, 60)];

    #[test]
    fn partitions_are_looked_at_by_their_purpose() {
        for sector in [512, 4096] {
            let disk = gpt(sector, 128, &THREE);
            assert_eq!(numbers(&disk, 512), (Scheme::Gpt, vec![3, 2, 1]));
            assert_eq!(numbers(&disk, 4096), (Scheme::Gpt, vec![3, 2, 1]));
        }
        let (_, partitions) = of(&gpt(512, 128, &THREE), 512);
        assert_eq!((partitions[0].start, partitions[0].size), (60 * 512, 512));
        assert_eq!(partitions[2].uuid.as_deref(), Some("00000000-0000-0000-0000-00000000abcd"));
    }

    #[test]
    fn damaged_table_is_made_good_by_the_one_at_the_end() {
        for at in [512, 512 + 30, 1024 + 33] {
            let mut disk = gpt(512, 128, &THREE);
            disk[at] ^= 1;
            assert_eq!(numbers(&disk, 512), (Scheme::GptBackup, vec![3, 2, 1]), "{at}");
        }
        let mut disk = gpt(512, 128, &THREE);
        disk[512] ^= 1;
        disk[127 * 512] ^= 1;
        assert_eq!(numbers(&disk, 512), (Scheme::Whole, vec![0]));
    }

    #[test]
    fn partitions_that_are_not_on_the_disk_are_left_out_or_cut() {
        let ends = [(LINUX, 100, 1000), (LINUX, 9, 8), (LINUX, 500, 600), (LINUX, 7, u64::MAX)];
        let (_, partitions) = of(&gpt(512, 128, &ends), 512);
        let ranges: Vec<_> = partitions.iter().map(|found| (found.start, found.size)).collect();
        assert_eq!(ranges, [(100 * 512, 28 * 512), (7 * 512, 121 * 512)]);
    }

    #[test]
    fn tiny_disks_have_no_table() {
        assert_eq!(numbers(&Vec::new(), 512), (Scheme::Whole, Vec::new()));
        for size in [1, 511, 512, 600, 1024] {
            assert_eq!(numbers(&vec![0; size], 512).0, Scheme::Whole);
        }
    }
}
