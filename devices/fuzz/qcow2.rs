//! Any bytes, as images on top of each other, are refused or are a disk whose every part is where it can be read.
#![no_main]

use corten_devices::block::read_any_images;
use libfuzzer_sys::fuzz_target;

/// What all images begin with, so that not all inputs fail at once: the magic number and the version.
fn any_image(version: u8, bytes: &[u8]) -> Vec<u8> {
    [b"QFI\xfb\0\0\0", &[2 | version & 1][..], bytes].concat()
}

/// The header in the first cluster and the L1 table in the next. Its entries lead to clusters of the image; what these hold, and
/// what the L2 tables in them lead to, is anybody's guess. The first byte says how large clusters are: of 512 bytes to 2 MiB, as
/// large ones hold so little of an input, most often small.
fn likely_image(kind: u8, is_on_another: bool, bytes: &[u8]) -> Vec<u8> {
    const ENTRIES: usize = 4;
    let (choice, bytes) = bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest));
    let bits = if choice & 3 == 0 { 9 + choice / 4 % 13 } else { 9 + choice / 4 % 4 };
    let cluster_size = 1_usize << bits;
    let mut image = vec![0; cluster_size];
    let mut put = |at: usize, field: &[u8]| image[at..at + field.len()].copy_from_slice(field);
    put(0, b"QFI\xfb\0\0\0");
    put(7, &[2 | kind & 1]);
    if is_on_another {
        put(15, &[0xc0]);
        put(19, &[4]);
        put(0xc0, b"base");
    }
    put(23, &[bits]);
    // As much as the L1 table is for, or a little less.
    let size = (ENTRIES * cluster_size / 8 * cluster_size) as u64 - u64::from(kind & 0x30) * 32;
    put(24, &size.to_be_bytes());
    put(39, &[8]);
    put(40, &(cluster_size as u64).to_be_bytes());
    put(103, &[112]);
    // Compressed by zstd.
    if kind & 9 == 9 {
        put(79, &[8]);
        put(104, &[1]);
    }
    for at in 0..ENTRIES {
        let cluster = u64::from(bytes.get(at).copied().unwrap_or(0) % 16);
        image.extend((1 << 63 | cluster << bits).to_be_bytes());
    }
    image.resize(2 * cluster_size, 0);
    image.extend(bytes.iter().skip(ENTRIES));
    image
}

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (kind, top, base) = input;
    let is_on_another = kind >> 1 & 3 != 0;
    let image = |kind: u8, is_on_another: bool, bytes: &[u8]| match kind & 0x40 {
        0 => likely_image(kind, is_on_another, bytes),
        _ => any_image(kind, bytes),
    };
    let top = image(kind, is_on_another, top);
    match kind >> 1 & 3 {
        0 => read_any_images(&[&top], false),
        1 => read_any_images(&[&top, base], true),
        _ => read_any_images(&[&top, &image(kind >> 3, false, base)], false),
    }
});
