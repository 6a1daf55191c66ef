//! Any text is carried out to an end, whatever boot loader it is taken for.
#![no_main]

use corten_vmm::disk_boot::fuzzing::read_any_configuration;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| read_any_configuration(text));
