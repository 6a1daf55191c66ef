//! Random register accesses, as a hostile guest makes them.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::Registers;

/// One access of a guest.
#[derive(Clone, Debug)]
pub(super) enum Access {
    Read { offset: u64, size: usize },
    Write { offset: u64, data: Vec<u8> },
}

/// Accesses of all sizes in a range of `size` registers, now and then outside.
pub(super) fn accesses(size: u64) -> impl Strategy<Value = Vec<Access>> {
    vec(access(size), 0..64)
}

fn access(size: u64) -> impl Strategy<Value = Access> {
    let offset = || prop_oneof![20 => 0..size, 1 => any::<u64>()];
    // Bytes reach most: they come most often.
    let length = || prop_oneof![6 => Just(1_usize), 1 => Just(2), 1 => Just(4), 1 => Just(8)];
    prop_oneof![
        (offset(), length()).prop_map(|(offset, size)| Access::Read { offset, size }),
        (offset(), length().prop_flat_map(|length| vec(any::<u8>(), length)))
            .prop_map(|(offset, data)| Access::Write { offset, data }),
    ]
}

/// Makes the accesses. What reads find is returned.
pub(super) fn apply(device: &impl Registers, accesses: &[Access]) -> Vec<u8> {
    let mut found = Vec::new();
    for access in accesses {
        match access {
            Access::Read { offset, size } => found.extend(read(device, *offset, *size)),
            Access::Write { offset, data } => {
                let _ = device.write(*offset, data);
            }
        }
    }
    found
}

/// What a read of `size` bytes at `offset` finds.
pub(super) fn read(device: &impl Registers, offset: u64, size: usize) -> Vec<u8> {
    let mut data = vec![0x5a; size];
    device.read(offset, &mut data);
    data
}

/// What a read of one byte at `offset` finds.
pub(super) fn read_byte(device: &impl Registers, offset: u64) -> u8 {
    read(device, offset, 1)[0]
}
