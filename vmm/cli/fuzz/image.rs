//! Any bytes either are layers of an image, whose files have plain paths, or are refused; so are documents.
#![no_main]

use corten_cli::oci::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, bool, u16, Vec<u8>)| {
    let (is_document, mend, size, mut bytes) = input;
    if is_document {
        return fuzzing::document(&bytes);
    }
    if mend {
        // Headers whose checksum is right, which no random bytes have.
        for block in bytes.chunks_exact_mut(512) {
            let sum: u32 =
                block[..148].iter().chain(&block[156..]).map(|byte| u32::from(*byte)).sum();
            let text = format!("{:06o}\0 ", sum + 8 * 32);
            block[148..156].copy_from_slice(&text.as_bytes()[..8]);
        }
    }
    let size = (usize::from(size) / 512 + 1) * 512;
    fuzzing::layers(bytes.chunks(size));
});
