//! Why a vCPU stopped running guest code.

use kvm_bindings::{
    KVM_EXIT_FAIL_ENTRY, KVM_EXIT_HLT, KVM_EXIT_INTERNAL_ERROR, KVM_EXIT_INTR, KVM_EXIT_IO,
    KVM_EXIT_IO_IN, KVM_EXIT_MMIO, KVM_EXIT_SHUTDOWN, kvm_run,
};

/// What the guest did, or what became of it.
#[derive(Debug)]
pub enum Exit<'a> {
    /// An access to a port: `data` holds `count` values of `size` bytes, one after the other.
    Port {
        /// Which one.
        port: u16,
        /// Bytes of one value.
        size: usize,
        /// Values to write, or to be filled in before the vCPU runs again.
        access: Access<'a>,
    },
    /// An access to memory that is not RAM.
    Memory {
        /// Guest address.
        address: u64,
        /// Bytes to write, or to be filled in before the vCPU runs again.
        access: Access<'a>,
    },
    /// Somebody wants the vCPU's thread.
    Kicked,
    /// The guest halted with nobody to wake it: there is no interrupt controller in the kernel.
    Halted,
    /// Triple fault.
    TripleFault,
    /// KVM gave up.
    Failed(Failure),
}

/// A read or a write.
#[derive(Debug)]
pub enum Access<'a> {
    /// To be filled in.
    Read(&'a mut [u8]),
    /// To be taken.
    Write(&'a [u8]),
}

/// Why KVM gave up on a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The processor refused the guest's state.
    Entry {
        /// The processor's reason.
        reason: u64,
    },
    /// KVM could not go on, often for an instruction it cannot emulate.
    Internal {
        /// KVM_INTERNAL_ERROR_*.
        suberror: u32,
    },
    /// An exit that this machine never asks for.
    Unknown {
        /// KVM_EXIT_*.
        reason: u32,
    },
}

/// Reads the exit out of the page that KVM shares with us, and makes its data accessible.
///
/// kvm-ioctls' own enumeration leaves out the size of one value, without which a string instruction of 4 bytes
/// cannot be told from one access of 4 bytes. `page_size` bytes are mapped at `run`.
pub(super) fn decode(run: &mut kvm_run, page_size: usize) -> Exit<'_> {
    match run.exit_reason {
        KVM_EXIT_IO => port(run, page_size),
        KVM_EXIT_MMIO => memory(run),
        KVM_EXIT_INTR => Exit::Kicked,
        KVM_EXIT_HLT => Exit::Halted,
        KVM_EXIT_SHUTDOWN => Exit::TripleFault,
        KVM_EXIT_FAIL_ENTRY => {
            // SAFETY: KVM fills this member of the union for this exit reason.
            let entry = unsafe { run.__bindgen_anon_1.fail_entry };
            Exit::Failed(Failure::Entry { reason: entry.hardware_entry_failure_reason })
        }
        KVM_EXIT_INTERNAL_ERROR => {
            // SAFETY: KVM fills this member of the union for this exit reason.
            let internal = unsafe { run.__bindgen_anon_1.internal };
            Exit::Failed(Failure::Internal { suberror: internal.suberror })
        }
        reason => Exit::Failed(Failure::Unknown { reason }),
    }
}

fn port(run: &mut kvm_run, page_size: usize) -> Exit<'_> {
    let unknown = Exit::Failed(Failure::Unknown { reason: KVM_EXIT_IO });
    // SAFETY: KVM fills this member of the union for this exit reason.
    let io = unsafe { run.__bindgen_anon_1.io };
    let size = usize::from(io.size);
    let (Ok(offset), Ok(count)) = (usize::try_from(io.data_offset), usize::try_from(io.count))
    else {
        return unknown;
    };
    let length = size.saturating_mul(count);
    if size == 0 || offset.saturating_add(length) > page_size {
        return unknown;
    }
    let data = (&raw mut *run).cast::<u8>().wrapping_add(offset);
    // SAFETY: the range was just checked to lie in the mapping, and nobody else touches it until the vCPU runs again,
    // for which the borrow of `run` must have ended.
    let data = unsafe { std::slice::from_raw_parts_mut(data, length) };
    let access = if u32::from(io.direction) == KVM_EXIT_IO_IN {
        Access::Read(data)
    } else {
        Access::Write(data)
    };
    Exit::Port { port: io.port, size, access }
}

fn memory(run: &mut kvm_run) -> Exit<'_> {
    // SAFETY: KVM fills this member of the union for this exit reason; every bit pattern of it is valid.
    let mmio = unsafe { &mut run.__bindgen_anon_1.mmio };
    let length = usize::try_from(mmio.len).unwrap_or(0).min(mmio.data.len());
    let data = &mut mmio.data[..length];
    let access = if mmio.is_write != 0 { Access::Write(data) } else { Access::Read(data) };
    Exit::Memory { address: mmio.phys_addr, access }
}
