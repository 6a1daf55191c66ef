//! Any changes to a file system, or any bytes at all, are read to an end or refused.
#![no_main]

use std::sync::LazyLock;

use corten_vmm::disk_boot::fuzzing::{boot_any, example_volumes, read_any_volume};
use libfuzzer_sys::fuzz_target;

static EXAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(example_volumes);

fuzz_target!(|input: (u8, Vec<(u32, u8)>, &[u8])| {
    let (kind, changes, bytes) = input;
    let Some(example) = EXAMPLES.get(usize::from(kind >> 1)) else {
        return read_any_volume(&bytes.to_vec());
    };
    let mut volume = example.clone();
    for (at, byte) in changes {
        let at = at as usize % volume.len();
        volume[at] = byte;
    }
    // A stretch of it is of the fuzzer's own.
    let start = bytes.len() * 7919 % volume.len();
    let end = (start + bytes.len()).min(volume.len());
    volume[start..end].copy_from_slice(&bytes[..end - start]);
    if kind & 1 == 0 { read_any_volume(&volume) } else { boot_any(volume) }
});
