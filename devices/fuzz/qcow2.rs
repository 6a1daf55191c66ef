//! Any bytes, as images on top of each other, are refused or are a disk whose every part is where it can be read.
#![no_main]

use corten_devices::block::read_any_images;
use libfuzzer_sys::fuzz_target;

/// What all images begin with, so that not all inputs fail at once: the magic number and the version.
fn image(version: u8, bytes: &[u8]) -> Vec<u8> {
    [b"QFI\xfb\0\0\0", &[2 | version & 1][..], bytes].concat()
}

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (kind, top, base) = input;
    let top = image(kind, top);
    match kind >> 1 & 3 {
        0 => read_any_images(&[&top], false),
        1 => read_any_images(&[&top, base], true),
        _ => read_any_images(&[&top, &image(kind >> 3, base)], false),
    }
});
