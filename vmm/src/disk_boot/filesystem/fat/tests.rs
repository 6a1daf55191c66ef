use proptest::prelude::*;

use crate::disk_boot::filesystem::{FileSystem, ReadError, read_any};
use crate::disk_boot::testing::{Table, fat, with_window};

fn with_files<T>(table: Table, look: impl FnOnce(&FileSystem<'_>) -> T) -> T {
    let large: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
    let image = fat(
        table,
        &[
            ("/EFI/debian/grub.cfg", b"configfile x"),
            ("/loader/entries/a long name with blanks, and more than 26 letters.conf", b"linux /l"),
            ("/large", &large),
            ("/empty", b""),
        ],
    );
    with_window(&image, |window| look(&FileSystem::open(window).unwrap().unwrap()))
}

#[test]
fn files_are_read_by_long_names_in_any_case() {
    for (table, kind) in [(Table::Fat12, "FAT12"), (Table::Fat16, "FAT16"), (Table::Fat32, "FAT32")]
    {
        with_files(table, |files| {
            assert_eq!(files.kind(), kind);
            assert_eq!((files.uuid().as_str(), files.label()), ("1234-ABCD", "BOOT"));
            assert_eq!(files.read("/efi/DEBIAN/grub.CFG", 100).unwrap(), b"configfile x");
            assert_eq!(files.read("/EFI/../EFI/./debian//grub.cfg", 100).unwrap(), b"configfile x");
            let entries = files.list("/loader/entries").unwrap();
            assert_eq!(entries, ["a long name with blanks, and more than 26 letters.conf"]);
            let path = format!("/loader/entries/{}", entries[0]);
            assert_eq!(files.read(&path, 100).unwrap(), b"linux /l");
            assert_eq!(files.read("/empty", 100).unwrap(), b"");
            let large = files.read("/large", 1 << 20).unwrap();
            let expected: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
            assert!(large == expected);
        });
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    with_files(Table::Fat16, |files| {
        assert!(matches!(files.read("/nothing", 10), Err(ReadError::NotFound)));
        assert!(matches!(files.read("/EFI", 10), Err(ReadError::NotA("file"))));
        assert!(matches!(files.list("/large"), Err(ReadError::NotA("directory"))));
        let error = files.read("/large", 100).unwrap_err();
        assert!(matches!(error, ReadError::TooLarge { size: 80_000, limit: 100 }));
    });
}

#[test]
fn circles_of_clusters_end() {
    let mut image = fat(Table::Fat16, &[("/a", &[7; 5000])]);
    // The chain of the file, from its second cluster on, leads back to its first.
    image[32 * 512 + 6..32 * 512 + 8].copy_from_slice(&2_u16.to_le_bytes());
    with_window(&image, |window| {
        let files = FileSystem::open(window).unwrap().unwrap();
        assert_eq!(files.read("/a", 5000).unwrap(), [7; 5000]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_volumes_are_no_panic(
        changes in prop::collection::vec((0_usize..0x4000, any::<u8>()), 1..40),
        cut in 0_usize..200_000,
    ) {
        let mut image = fat(Table::Fat12, &[("/loader/entries/x.conf", b"linux /x"), ("/l", &[1; 3000])]);
        let places = [0..64, 32 * 512..33 * 512, 48 * 512..60 * 512];
        for (at, byte) in changes {
            let place = &places[at % 3];
            image[place.start + at % place.len()] = byte;
        }
        image.truncate(image.len().saturating_sub(cut));
        read_any(&image);
    }
}
