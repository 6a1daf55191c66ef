//! For the fuzz target: from a chain to a request, without a disk.

use virtio_queue::desc::split::Descriptor;
use vm_memory::Bytes;

use super::request::{MAX_LENGTH, OK, Reject, Request, Rules, parse};
use crate::virtio::GuestRam;

/// Sectors of the disk that requests are for.
const CAPACITY: u64 = 1 << 20;

/// Reads a request of descriptors by address, length, flags and successor, and asserts what holds of any. Bits of `disk`
/// say of what kind the disk is.
pub fn look_at_request(ram: &GuestRam, descriptors: &[(u64, u32, u16)], disk: u8) {
    let rules = Rules {
        capacity: CAPACITY,
        block_size: if disk & 1 == 0 { 512 } else { 4096 },
        read_only: disk & 2 != 0,
        discard: disk & 4 != 0,
        write_zeroes: disk & 8 != 0,
    };
    let descriptor =
        |(address, length, flags): &(u64, u32, u16)| Descriptor::new(*address, *length, *flags, 0);
    match parse(7, descriptors.iter().map(descriptor), ram, &rules) {
        Ok(request) => {
            request.action.check(ram, &rules).expect("what was taken is taken again");
            assert!(request.action.length() <= MAX_LENGTH, "a request is not longer");
            ram.write_obj(OK, request.status).expect("the status has a place");
            let saved = serde_json::to_string(&request).expect("a request can be held");
            let loaded: Request = serde_json::from_str(&saved).expect("and loaded");
            assert_eq!(loaded, request);
        }
        Err(Reject::Answered { status, code, .. }) => {
            assert_ne!(code, OK);
            ram.write_obj(code, status).expect("the status has a place");
        }
        Err(Reject::Unanswerable) => {}
    }
}
