//! Chains of images that are written byte by byte, and of some that qemu-img 7.2 made.

mod damage;
mod layers;
mod refused;

use super::chain::{Chain, Content as Found};
use super::qcow2::testing::{Bytes, Content, ImageBuilder};
use super::read_at::ReadAt;
use super::{ImageError, ImageFormat};

const CLUSTER: usize = 4096;

fn chain(images: Vec<(Bytes, ImageFormat)>) -> Result<Chain<Bytes>, ImageError> {
    let with_length = |(bytes, format): (Bytes, ImageFormat)| {
        let length = bytes.0.len() as u64;
        (bytes, length, format)
    };
    Chain::open(images.into_iter().map(with_length).collect())
}

fn qcow2(image: &ImageBuilder) -> (Bytes, ImageFormat) {
    (image.build(), ImageFormat::Qcow2)
}

fn raw(bytes: Vec<u8>) -> (Bytes, ImageFormat) {
    (Bytes(bytes), ImageFormat::Raw)
}

/// The disk, read in one go, and byte ranges of all kinds against it.
fn content<S: ReadAt>(chain: &Chain<S>) -> Vec<u8> {
    let size = usize::try_from(chain.size()).unwrap();
    let mut whole = vec![0xee; size];
    chain.read(0, &mut whole).unwrap();
    for step in [511, 512, 4095, 70_000] {
        for start in (0..size).step_by(step) {
            let mut part = vec![0xee; step.min(size - start)];
            chain.read(start as u64, &mut part).unwrap();
            assert_eq!(part, &whole[start..start + part.len()], "at {start}");
        }
    }
    whole
}

/// Where things are found: a letter and a length for each run.
fn map<S: ReadAt>(chain: &Chain<S>) -> Vec<(char, u64)> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < chain.size() {
        let run = chain.locate(at, chain.size() - at, |content, length| match content {
            Found::Zeroes => ('z', length),
            Found::File(..) => ('f', length),
            Found::Memory(_) => ('m', length),
        });
        let run = run.unwrap();
        at += run.1;
        runs.push(run);
    }
    runs
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 5 % 251).to_le_bytes()[0]).collect()
}

#[test]
fn clusters_of_all_kinds_are_read() {
    for (version, zstd) in [(2, false), (3, false), (3, true)] {
        let mut image = ImageBuilder::new(12, 10 * CLUSTER as u64 + 512)
            .data(1, 1)
            .data(2, 2)
            .with(4, Content::Compressed(pattern(CLUSTER)))
            .with(5, Content::Compressed(vec![5; CLUSTER]))
            .data(10, 10);
        if version == 3 {
            image = image.with(7, Content::Zeroes);
        }
        (image.version, image.zstd) = (version, zstd);
        let chain = chain(vec![qcow2(&image)]).unwrap();
        let mut expected = vec![0; 10 * CLUSTER + 512];
        expected[CLUSTER..2 * CLUSTER].fill(1);
        expected[2 * CLUSTER..3 * CLUSTER].fill(2);
        expected[4 * CLUSTER..5 * CLUSTER].copy_from_slice(&pattern(CLUSTER));
        expected[5 * CLUSTER..6 * CLUSTER].fill(5);
        expected[10 * CLUSTER..].fill(10);
        assert!(content(&chain) == expected, "version {version}, zstd {zstd}");
    }
}

#[test]
fn neighbours_in_the_file_are_one_run() {
    let image = ImageBuilder::new(12, 8 * CLUSTER as u64)
        .data(1, 1)
        .data(2, 2)
        .with(3, Content::Zeroes)
        .with(4, Content::Zeroes)
        .with(5, Content::Compressed(vec![5; CLUSTER]));
    let size = CLUSTER as u64;
    let chain = chain(vec![qcow2(&image)]).unwrap();
    let expected = [('z', size), ('f', 2 * size), ('z', 2 * size), ('m', size), ('z', 2 * size)];
    assert_eq!(map(&chain), expected);
}

#[test]
fn all_sizes_of_clusters_are_read() {
    for bits in 9..=21 {
        let size = 1_u64 << bits;
        // Past the first L2 table where clusters are small.
        let clusters = if bits < 12 { size / 8 * 3 } else { 5 };
        let last = clusters - 1;
        let cluster = pattern(1 << bits);
        let image = ImageBuilder::new(bits, clusters * size)
            .data(0, 7)
            .with(2, Content::Compressed(cluster.clone()))
            .with(last, Content::Data(cluster.clone()));
        let chain = chain(vec![qcow2(&image)]).unwrap();
        let mut read = vec![0; cluster.len()];
        for (number, expected) in [
            (0, vec![7; cluster.len()]),
            (1, vec![0; cluster.len()]),
            (2, cluster.clone()),
            (last, cluster),
        ] {
            chain.read(number * size, &mut read).unwrap();
            assert!(read == expected, "cluster {number} of 2^{bits} bytes");
        }
    }
}

#[test]
fn what_an_image_lacks_comes_from_those_behind_it() {
    let size = 6 * CLUSTER as u64;
    let top = ImageBuilder::new(12, size).on("middle").data(0, 1).with(1, Content::Zeroes);
    // Other clusters than those on top of it, and a shorter disk.
    let middle = ImageBuilder::new(9, size - 512)
        .on("base")
        .data(8, 2)
        .with(17, Content::Zeroes)
        .with(24, Content::Compressed(vec![3; 512]));
    let base = vec![9; 5 * CLUSTER + 100];
    let chain = chain(vec![qcow2(&top), qcow2(&middle), raw(base)]).unwrap();
    let mut expected = vec![9; 6 * CLUSTER];
    expected[..CLUSTER].fill(1);
    expected[CLUSTER..2 * CLUSTER].fill(0);
    expected[17 * 512..18 * 512].fill(0);
    expected[24 * 512..25 * 512].fill(3);
    expected[5 * CLUSTER + 100..].fill(0);
    assert!(content(&chain) == expected);
}

#[test]
fn raw_images_of_odd_length_lose_no_sector() {
    let chain = chain(vec![raw(pattern(5000))]).unwrap();
    assert_eq!(chain.size(), 4608);
    assert!(content(&chain) == pattern(5000)[..4608]);
}

#[test]
fn cluster_that_the_file_cuts_off_goes_on_as_zeroes() {
    let image = ImageBuilder::new(12, 4 * CLUSTER as u64).data(0, 1).data(1, 2);
    let (Bytes(mut bytes), format) = qcow2(&image);
    bytes.truncate(bytes.len() - 1000);
    let chain = chain(vec![(Bytes(bytes), format)]).unwrap();
    let mut expected = vec![0; 4 * CLUSTER];
    expected[..CLUSTER].fill(1);
    expected[CLUSTER..2 * CLUSTER - 1000].fill(2);
    assert!(content(&chain) == expected);
}

/// What the golden images were made of, by `qemu-img convert`.
fn golden_base() -> Vec<u8> {
    let byte = |number: usize| number.to_le_bytes()[0];
    let sector = |number: usize| match number {
        32..64 => vec![0; 512],
        _ => {
            [vec![byte(number * 7 % 251); 256], (0..256).map(|at| byte(at * 3 + number)).collect()]
                .concat()
        }
    };
    (0..128).flat_map(sector).collect()
}

fn golden(bytes: &[u8]) -> (Bytes, ImageFormat) {
    (Bytes(bytes.to_vec()), ImageFormat::Qcow2)
}

#[test]
fn images_of_qemu_img_are_read() {
    for bytes in [
        &include_bytes!("tests/golden/v2-deflate.qcow2")[..],
        include_bytes!("tests/golden/v3-zstd.qcow2"),
        include_bytes!("tests/golden/v3-plain.qcow2"),
    ] {
        let chain = chain(vec![golden(bytes)]).unwrap();
        assert!(content(&chain) == golden_base());
    }
}

#[test]
fn chain_of_qemu_img_is_read() {
    let top = golden(include_bytes!("tests/golden/v3-on-zstd.qcow2"));
    let base = golden(include_bytes!("tests/golden/v3-zstd.qcow2"));
    let chain = chain(vec![top, base]).unwrap();
    // qemu-io -c 'write -P 0x5a 3000 5000' -c 'write -z 16384 8192' -c 'write -P 0xa5 70000 512'
    let mut expected = golden_base();
    expected.resize(96 << 10, 0);
    expected[3000..8000].fill(0x5a);
    expected[16384..24576].fill(0);
    expected[70000..70512].fill(0xa5);
    assert!(content(&chain) == expected);
}
