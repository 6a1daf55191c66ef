//! Any bytes are a disk whose partitions, if it has some, lie on it.
#![no_main]

use corten_vmm::disk_boot::fuzzing::read_any_partitions;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| read_any_partitions(&bytes.to_vec()));
