//! Whatever a guest has in its memory and describes is a request that can be done, or is refused.
#![no_main]

use corten_devices::block::look_at_request;
use corten_devices::testing::guest_ram;
use libfuzzer_sys::fuzz_target;
use vm_memory::{Bytes, GuestAddress};

/// Address, length and flags.
type Descriptor = (u64, u32, u16);

fuzz_target!(|input: (u8, Vec<Descriptor>, &[u8])| {
    let (disk, mut descriptors, memory) = input;
    let ram = guest_ram();
    // 64 KiB, and so are the longest inputs.
    let _ = ram.write(memory, GuestAddress(0));
    // Most chains as they should be: in memory, linked, with a status.
    if disk & 0x80 == 0 {
        let last = descriptors.len().saturating_sub(1);
        for (at, (address, length, flags)) in descriptors.iter_mut().enumerate() {
            *address &= 0xffff;
            *length &= 0xffff;
            *flags = *flags & 2 | u16::from(at != last);
        }
    }
    look_at_request(&ram, &descriptors, disk);
});
