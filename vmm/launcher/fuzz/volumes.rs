//! Any paths and bytes are an ISO image within its bounds or are refused, and any bytes are a disk image or are refused.
#![no_main]

use corten_launcher::volumes::iso9660::{MAX_SIZE, Tree, image};
use corten_launcher::volumes::probe::probe_any_bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, Vec<(&str, &[u8])>, &[u8])| {
    let (label, files, bytes) = input;
    let mut tree = Tree::new(0o644);
    for (path, content) in files {
        // What is refused leaves the rest as it was.
        let _ = tree.add(path, content.to_vec());
    }
    if let Ok(image) = image(&tree, label) {
        assert!(image.len() <= MAX_SIZE && image.len().is_multiple_of(2048));
        assert_eq!(&image[16 * 2048 + 1..16 * 2048 + 6], b"CD001");
    }
    probe_any_bytes(bytes);
});
