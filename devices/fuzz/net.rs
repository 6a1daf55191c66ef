//! Whatever a guest has in its memory and describes: no reader of network chains and commands goes past it.
#![no_main]

use corten_devices::net::look_at_chain;
use corten_devices::testing::guest_ram;
use libfuzzer_sys::fuzz_target;
use vm_memory::{Bytes, GuestAddress};

/// Address, length and flags.
type Descriptor = (u64, u32, u16);

fuzz_target!(|input: (u64, Vec<Descriptor>, &[u8])| {
    let (features, descriptors, memory) = input;
    let ram = guest_ram();
    // 64 KiB, and so are the longest inputs.
    let _ = ram.write(memory, GuestAddress(0));
    look_at_chain(&ram, &descriptors, features);
});
