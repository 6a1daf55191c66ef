//! Segments as both entries want them.

use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};
use vm_memory::GuestAddress;

pub(super) const CR0_PROTECTION: u64 = 1;
pub(super) const CR0_EXTENSION_TYPE: u64 = 1 << 4;
const RFLAGS_RESERVED: u64 = 2;

/// Selectors of the Linux boot protocol, which PVH does not mind.
pub(super) const CODE: u16 = 0x10;
const DATA: u16 = 0x18;

pub(super) fn regs_at(entry: GuestAddress) -> kvm_regs {
    kvm_regs { rip: entry.0, rflags: RFLAGS_RESERVED, ..Default::default() }
}

/// Flat segments, with 64-bit code if `long`.
pub(super) fn flat_segments(mut sregs: kvm_sregs, long: bool) -> kvm_sregs {
    let code = kvm_segment {
        selector: CODE,
        limit: u32::MAX,
        type_: 0xb,
        present: 1,
        s: 1,
        g: 1,
        l: u8::from(long),
        db: u8::from(!long),
        ..Default::default()
    };
    let data = kvm_segment { selector: DATA, type_: 3, l: 0, db: 1, ..code };
    sregs.cs = code;
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    // No processor enters a guest without a busy task state segment.
    sregs.tr = kvm_segment { limit: 0x67, type_: 0xb, present: 1, ..Default::default() };
    sregs
}
