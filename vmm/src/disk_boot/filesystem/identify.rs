//! What is on a volume that is not read here, by the marks it has at fixed places.

use std::io;

use crate::disk_boot::source::Window;

/// The furthest mark, that of btrfs, ends here.
const BEGINNING: u64 = 0x1_0048;

/// Marks: where they are, what they are, what has them.
const MARKS: [(usize, &[u8], &str); 20] = [
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (3, b"-FVE-FS-", "an encrypted volume (BitLocker)"),
    (0, b"XFSB", "an xfs file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0x18, b"LVM2 001", "an LVM volume"),
    (0x218, b"LVM2 001", "an LVM volume"),
    (0x418, b"LVM2 001", "an LVM volume"),
    (0x618, b"LVM2 001", "an LVM volume"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a part of a software RAID"),
    (0, b"\xfc\x4e\x2b\xa9", "a part of a software RAID"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0, b"hsqs", "a squashfs file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an f2fs file system"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an erofs file system"),
    (0x1_0000, b"ReIsEr", "a ReiserFS file system"),
    (0x1018, b"\xc6\x85\x73\xf6", "a bcachefs file system"),
    (0, b"QFI\xfb", "a qcow2 image, where the content of a disk should be"),
];

/// What is on `volume`; none if it has no mark that is known.
pub(in crate::disk_boot) fn identify(volume: &Window<'_>) -> io::Result<Option<&'static str>> {
    let length = volume.size().min(BEGINNING);
    let beginning = volume.bytes(0, usize::try_from(length).unwrap_or(0))?;
    let has = |at: usize, mark: &[u8]| beginning.get(at..).is_some_and(|at| at.starts_with(mark));
    if let Some((_, _, what)) = MARKS.iter().find(|(at, mark, _)| has(*at, mark)) {
        return Ok(Some(what));
    }
    Ok(beginning.iter().all(|byte| *byte == 0).then_some("nothing (zeroes)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_boot::source::Budget;

    fn identified(disk: &Vec<u8>) -> Option<&'static str> {
        let budget = Budget::new(1 << 20);
        identify(&Window::whole(disk, &budget)).unwrap()
    }

    #[test]
    fn volumes_are_called_by_their_name() {
        for (at, mark, name) in MARKS {
            let mut disk = vec![0x11; 1 << 17];
            disk[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(identified(&disk), Some(name));
        }
    }

    #[test]
    fn unknown_and_short_volumes_have_no_name() {
        assert_eq!(identified(&vec![0x11; 1 << 17]), None);
        assert_eq!(identified(&vec![0x11; 3]), None);
        assert_eq!(identified(&vec![0; 512]), Some("nothing (zeroes)"));
    }
}
