//! Images that are damaged: an error for what is, and never a read outside the file. The bytes of tests end the test if
//! they are read past their end.

use proptest::prelude::*;

use super::*;
use crate::block::images::qcow2::testing::put;

/// Reads everything that can be, in sectors; whether all could.
fn read_all(chain: &Chain<Bytes>) -> bool {
    let mut is_whole = true;
    let mut at = 0;
    // Disks that damage made huge are looked at in a few places.
    let step = (chain.size() / 512 / 4096).max(1) * 512;
    while at < chain.size() {
        is_whole &= chain.read(at, &mut [0; 512]).is_ok();
        let found = chain.locate(at, chain.size() - at, |content, length| {
            if let Found::File(Bytes(bytes), offset) = content {
                assert!(offset + length <= bytes.len() as u64, "what is found is in the file");
            }
            length
        });
        assert!(found.is_ok_and(|length| length > 0) || !is_whole, "something, or an error");
        at += step;
    }
    is_whole
}

/// One of everything.
fn sample(zstd: bool) -> ImageBuilder {
    let mut image = ImageBuilder::new(9, 70 * 512)
        .data(0, 1)
        .data(1, 2)
        .with(2, Content::Zeroes)
        .with(4, Content::Compressed(pattern(512)))
        .with(66, Content::Compressed(vec![6; 512]))
        .data(69, 3);
    image.zstd = zstd;
    image
}

/// Where the entry of a cluster is.
fn entry_of(image: &[u8], cluster: usize) -> usize {
    let pointer_at = 512 + cluster / 64 * 8;
    let pointer = u64::from_be_bytes(image[pointer_at..pointer_at + 8].try_into().unwrap());
    usize::try_from(pointer & 0xffff).unwrap() + cluster % 64 * 8
}

#[test]
fn entry_that_points_outside_fails_its_cluster_alone() {
    let good = sample(false).build().0;
    let entries: [u64; 4] =
        [0x1000_0000, 1 << 62 | 0x1000_0000, !0 << 62 | 0x200, 0x0fff_ffff_ffff_fe00];
    for entry in entries {
        let mut image = good.clone();
        let at = entry_of(&image, 1);
        put(&mut image, at, &entry.to_be_bytes());
        let chain = chain(vec![(Bytes(image), ImageFormat::Qcow2)]).unwrap();
        let mut sector = [0; 512];
        chain.read(0, &mut sector).unwrap();
        assert_eq!(sector, [1; 512]);
        assert!(chain.read(512, &mut sector).is_err(), "{entry:#x}");
        assert!(chain.read(256, &mut sector).is_err(), "{entry:#x}");
        chain.read(1024, &mut sector).unwrap();
        assert_eq!(sector, [0; 512]);
    }
}

#[test]
fn table_that_is_outside_fails_its_clusters_alone() {
    for pointer in [0x1000_0000_u64, u64::MAX] {
        let mut image = sample(false).build().0;
        put(&mut image, 512, &pointer.to_be_bytes());
        let chain = chain(vec![(Bytes(image), ImageFormat::Qcow2)]).unwrap();
        let mut sector = [0; 512];
        assert!(chain.read(0, &mut sector).is_err());
        chain.read(69 * 512, &mut sector).unwrap();
        assert_eq!(sector, [3; 512]);
    }
}

#[test]
fn image_that_ends_anywhere_is_refused_or_read() {
    for zstd in [false, true] {
        let (Bytes(bytes), format) = qcow2(&sample(zstd));
        let whole = bytes.len();
        for length in 0..=whole {
            let image = (Bytes(bytes[..length].to_vec()), format);
            let is_whole = chain(vec![image]).is_ok_and(|chain| read_all(&chain));
            assert!(is_whole || length < whole, "{length} bytes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn flipped_bits_are_an_error_or_other_content(
        zstd: bool,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..8), 1..8),
        in_tables in prop::collection::vec((0_usize..128, 0_u32..64), 0..4),
    ) {
        let mut top = sample(zstd).on("base").build().0;
        let mut base = sample(!zstd).build().0;
        for (index, bit) in flips {
            let image = if bit % 2 == 0 { &mut top } else { &mut base };
            let at = index.index(image.len());
            image[at] ^= 1 << bit;
        }
        // Where a bit matters most.
        for (cluster, bit) in in_tables {
            let at = entry_of(&sample(zstd).build().0, cluster % 128);
            let byte = at + 7 - usize::try_from(bit).unwrap() / 8;
            top[byte] ^= 1 << (bit % 8);
        }
        let images = vec![(Bytes(top), ImageFormat::Qcow2), (Bytes(base), ImageFormat::Qcow2)];
        if let Ok(chain) = chain(images) {
            read_all(&chain);
        }
    }

    #[test]
    fn any_compressed_bytes_are_an_error_or_a_cluster(
        zstd: bool,
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        kept in 0_usize..64,
    ) {
        // A good beginning gets further.
        let (Bytes(mut image), format) = qcow2(&ImageBuilder {
            zstd,
            ..ImageBuilder::new(12, 4096).with(0, Content::Compressed(pattern(CLUSTER)))
        });
        let start = 3 * CLUSTER + kept;
        image.resize(image.len().max(start + bytes.len()), 0);
        put(&mut image, start, &bytes);
        let most = 1_u64 << 62 | 15 << 58 | (3 * CLUSTER) as u64;
        put(&mut image, 2 * CLUSTER, &most.to_be_bytes());
        let chain = chain(vec![(Bytes(image), format)]).unwrap();
        read_all(&chain);
    }
}
