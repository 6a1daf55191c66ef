//! By images of mke2fs and debugfs (`golden/make`), and damaged ones of them.

use proptest::prelude::*;

use crate::disk_boot::filesystem::{FileSystem, ReadError, read_any};
use crate::disk_boot::testing::{self, unpacked, with_window};

const EXT4: &[u8] = include_bytes!("../golden/ext4.img.gz");
const INLINE: &[u8] = include_bytes!("../golden/inline.img.gz");
const CLUSTERS: &[u8] = include_bytes!("../golden/clusters.img.gz");
const EXT3: &[u8] = include_bytes!("../golden/ext3.img.gz");

fn variant(base: &[u8], blocks: &[u8]) -> Vec<u8> {
    testing::variant(&unpacked(base), blocks)
}

fn with_files<T>(image: &Vec<u8>, look: impl FnOnce(&FileSystem<'_>) -> T) -> T {
    with_window(image, |window| look(&FileSystem::open(window).unwrap().unwrap()))
}

/// What is in grub.cfg, all of which is one word again and again.
fn word(image: &Vec<u8>) -> String {
    let content = with_files(image, |files| files.read("/boot/grub/grub.cfg", 4096).unwrap());
    assert_eq!(content.len(), 1024);
    let (first, rest) = content.split_at(4);
    assert!(rest.chunks(4).skip(1).all(|word| word == &rest[..4]));
    String::from_utf8_lossy(if first == b"\xc0\x3b\x39\x98" { &rest[..4] } else { first })
        .trim()
        .into()
}

fn numbers(blocks: std::ops::Range<u32>) -> Vec<u8> {
    blocks.flat_map(|number| format!("{number} ").repeat(256).into_bytes()).collect()
}

#[test]
fn files_links_and_directories_are_read() {
    for (image, kind) in [(EXT4, "ext4"), (EXT3, "ext3")] {
        with_files(&unpacked(image), |files| {
            assert_eq!((files.kind(), files.label()), (kind, "gold"));
            assert_eq!(files.uuid(), "c0471e40-0000-4000-8000-0000000000a4");
            for path in ["/boot/vmlinuz-6.1", "/boot/vmlinuz", "/absolute", "/boot/long"] {
                assert!(files.read(path, 1 << 20).unwrap() == numbers(100..140), "{path}");
            }
            // Through blocks of block numbers, or a tree of extents.
            assert!(files.read("/large", 1 << 20).unwrap() == numbers(100..500));
            let sparse = files.read("/sparse", 1 << 20).unwrap();
            assert!(sparse.len() == 100_004 && sparse.ends_with(b"\0\0end\n"));
            let mut names = files.list("/many").unwrap();
            names.sort();
            assert_eq!((names.len(), names[42].as_str()), (100, "file-with-a-long-name-42"));
            assert_eq!(files.read("/many/file-with-a-long-name-97", 10).unwrap(), b"97\n");
        });
    }
}

#[test]
fn content_in_inodes_and_blocks_in_clusters_are_read() {
    for image in [INLINE, CLUSTERS] {
        with_files(&unpacked(image), |files| {
            assert_eq!(files.read("/boot/k", 10).unwrap(), b"k");
            let hundred = files.read("/boot/link", 100).unwrap();
            assert!(hundred.len() == 100 && hundred.ends_with(b"007"), "{hundred:?}");
            assert_eq!(files.list("/boot/extlinux").unwrap(), ["extlinux.conf"]);
            assert_eq!(files.list("/boot/more").unwrap().len(), 5);
            assert_eq!(files.read("/boot/more/name-3", 10).unwrap(), b"3\n");
            assert_eq!(files.read("/boot/block", 4096).unwrap(), numbers(100..101));
            assert!(files.troubles().is_empty(), "{:?}", files.troubles());
        });
    }
}

#[test]
fn what_is_there_and_cannot_be_read_is_kept_in_mind_once() {
    with_files(&unpacked(EXT4), |files| {
        assert!(files.read("/nothing", 10).is_err() && files.list("/large").is_err());
        assert!(files.troubles().is_empty());
        for _ in 0..2 {
            assert!(files.read("/large", 1000).is_err());
        }
        let expected = ["/large: it has 409600 bytes, and there is room for 1000"];
        assert_eq!(files.troubles(), expected);
    });
}

#[test]
fn what_cannot_be_read_is_told_apart() {
    with_files(&unpacked(EXT4), |files| {
        let error = |path| files.read(path, 1000).unwrap_err();
        assert!(matches!(error("/nothing"), ReadError::NotFound));
        assert!(matches!(error("/boot"), ReadError::NotA("file")));
        assert!(matches!(error("/boot/vmlinuz/x"), ReadError::NotA("directory")));
        assert!(matches!(error("/circle"), ReadError::Damaged("a link leads in circles")));
        assert!(matches!(error("/large"), ReadError::TooLarge { size: 409_600, limit: 1000 }));
    });
}

/// What e2fsck makes of the same images stands in `golden/make`.
#[test]
fn journal_has_the_last_word() {
    assert_eq!(word(&unpacked(EXT4)), "old");
    for (base, blocks, expected) in [
        (EXT4, &include_bytes!("../golden/ext4-committed.gz")[..], "new"),
        (EXT4, include_bytes!("../golden/ext4-unfinished.gz"), "new"),
        (EXT4, include_bytes!("../golden/ext4-revoked.gz"), "old"),
        (EXT4, include_bytes!("../golden/ext4-again.gz"), "yes"),
        (EXT4, include_bytes!("../golden/ext4-escaped.gz"), "esc"),
        (EXT3, include_bytes!("../golden/ext3-committed.gz"), "new"),
        (EXT3, include_bytes!("../golden/ext3-unfinished.gz"), "new"),
        (EXT3, include_bytes!("../golden/ext3-revoked.gz"), "old"),
        (EXT3, include_bytes!("../golden/ext3-again.gz"), "yes"),
        (EXT3, include_bytes!("../golden/ext3-escaped.gz"), "esc"),
        (EXT3, include_bytes!("../golden/ext3-wrapped.gz"), "yes"),
    ] {
        assert_eq!(word(&variant(base, blocks)), expected);
    }
}

#[test]
fn escaped_block_gets_its_first_bytes_back() {
    let image = variant(EXT4, include_bytes!("../golden/ext4-escaped.gz"));
    let content = with_files(&image, |files| files.read("/boot/grub/grub.cfg", 4096).unwrap());
    assert!(content.starts_with(b"\xc0\x3b\x39\x98esc "));
}

#[test]
fn damaged_transaction_and_all_behind_it_do_not_count() {
    let good = variant(EXT4, include_bytes!("../golden/ext4-again.gz"));
    let is_logged = |block: &[u8]| block.starts_with(b"yes yes") || block.starts_with(b"new new");
    let logged: Vec<usize> = good
        .chunks(1024)
        .enumerate()
        .filter(|(_, block)| is_logged(block))
        .map(|(at, _)| at)
        .collect();
    let [first, second] = logged[..] else { panic!("{logged:?}") };
    for (block, expected) in [(second, "old"), (first, "old")] {
        let mut image = good.clone();
        image[block * 1024 + 500] ^= 1;
        assert_eq!(word(&image), expected);
    }
}

#[test]
fn features_that_are_not_understood_are_named() {
    for (bit, expected) in [(0x8_u8, "a journal on another device"), (0x1, "compression")] {
        let mut image = unpacked(EXT4);
        image[1024 + 0x60] |= bit;
        let error =
            with_window(&image, |window| FileSystem::open(window).err().unwrap().to_string());
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn damaged_volumes_are_no_panic(
        changes in prop::collection::vec((any::<u32>(), any::<u8>()), 1..60),
        cut in 0_usize..3_000_000,
        base in 0_usize..4,
    ) {
        let mut image = match base {
            0 => variant(EXT4, include_bytes!("../golden/ext4-again.gz")),
            1 => variant(EXT3, include_bytes!("../golden/ext3-wrapped.gz")),
            2 => unpacked(INLINE),
            _ => unpacked(EXT3),
        };
        // Superblock, descriptors, inodes and the journal's first blocks: what all else depends on.
        let used: Vec<usize> = image.chunks(1024).enumerate()
            .filter(|(_, block)| block.iter().any(|byte| *byte != 0)).map(|(at, _)| at).collect();
        for (at, byte) in changes {
            let at = at as usize;
            let block = if at.is_multiple_of(3) { 1 } else { used[at / 1024 % used.len()] };
            image[block * 1024 + at % 1024] = byte;
        }
        image.truncate(image.len().saturating_sub(cut));
        read_any(&image);
    }
}
