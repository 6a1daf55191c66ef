//! Can this /dev/kvm run a stock kernel? Found by trying, for whoever is about to start one: the `corten` command, the lab.
//!
//! A software KVM serves the ioctls but interprets guest instructions, and knows only integer ones; CPU flags do not
//! tell. So a guest of a few instructions, the kind that every compiled kernel and libc uses, is run in 64-bit mode.

use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd};

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use thiserror::Error;

/// Result port of the trial guest.
const PORT: u16 = 0x10;
/// What the trial guest computes with SSE2, x87 and POPCNT from [`INPUT`].
const EXPECTED: u8 = 84 + 7 + 6;
/// Doubled by SSE2 in the guest.
const INPUT: u64 = 42;

const MEMORY: usize = 2 << 20;
const CODE: usize = 0x1000;
const PML4: usize = 0x2000;
const PDPT: usize = 0x3000;
const PD: usize = 0x4000;
const STACK: u64 = 0x8000;

/// 64-bit code: rax = (int)(2.0 * rcx) + 7 through the x87 stack + popcnt(0x3f), then OUT and HLT.
const TRIAL: &[u8] = &[
    0x66, 0x0f, 0xef, 0xc0, //                   pxor xmm0, xmm0
    0xf2, 0x48, 0x0f, 0x2a, 0xc1, //             cvtsi2sd xmm0, rcx
    0xf2, 0x0f, 0x58, 0xc0, //                   addsd xmm0, xmm0
    0xf2, 0x48, 0x0f, 0x2c, 0xd8, //             cvttsd2si rbx, xmm0
    0xdb, 0xe3, //                               fninit
    0x6a, 0x07, //                               push 7
    0xdf, 0x2c, 0x24, //                         fild qword [rsp]
    0xdf, 0x3c, 0x24, //                         fistp qword [rsp]
    0x58, //                                     pop rax
    0x48, 0x01, 0xc3, //                         add rbx, rax
    0xb9, 0x3f, 0x00, 0x00, 0x00, //             mov ecx, 0x3f
    0xf3, 0x0f, 0xb8, 0xc1, //                   popcnt eax, ecx
    0x48, 0x01, 0xd8, //                         add rax, rbx
    0xe6, 0x10, //                               out 0x10, al
    0xf4, //                                     hlt
];

/// Why a KVM is not used.
#[derive(Debug, Error)]
pub enum KvmUnusable {
    /// The device cannot be opened.
    #[error("/dev/kvm cannot be opened: {0}")]
    Absent(std::io::Error),
    /// A KVM call failed.
    #[error("/dev/kvm fails at {step}: {error}")]
    Call {
        /// What was tried.
        step: &'static str,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// The guest did not get through.
    #[error("/dev/kvm cannot run ordinary guest code ({0}): a software KVM")]
    Interpreter(String),
}

/// Runs the trial guest.
pub fn try_kvm() -> Result<(), KvmUnusable> {
    let device = File::options().read(true).write(true).open("/dev/kvm");
    let device = device.map_err(KvmUnusable::Absent)?;
    // SAFETY: the descriptor comes from a file that is given up here, so Kvm is its only owner.
    let kvm = unsafe { Kvm::from_raw_fd(device.into_raw_fd()) };
    let step =
        |step| move |error: kvm_ioctls::Error| KvmUnusable::Call { step, error: error.into() };
    // Before the VM, so that it is dropped after it.
    let memory = TrialMemory::map().map_err(|error| KvmUnusable::Call { step: "mmap", error })?;
    let vm = kvm.create_vm().map_err(step("KVM_CREATE_VM"))?;
    memory.attach(&vm).map_err(step("KVM_SET_USER_MEMORY_REGION"))?;
    let mut vcpu = vm.create_vcpu(0).map_err(step("KVM_CREATE_VCPU"))?;
    let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(step("CPUID"))?;
    vcpu.set_cpuid2(&cpuid).map_err(step("KVM_SET_CPUID2"))?;
    enter_long_mode(&vcpu).map_err(step("setting registers"))?;
    match vcpu.run().map_err(step("KVM_RUN"))? {
        VcpuExit::IoOut(PORT, [EXPECTED]) => Ok(()),
        VcpuExit::IoOut(PORT, data) => {
            Err(KvmUnusable::Interpreter(format!("wrong result {data:?}")))
        }
        other => Err(KvmUnusable::Interpreter(format!("exit {other:?}"))),
    }
}

fn enter_long_mode(vcpu: &VcpuFd) -> Result<(), kvm_ioctls::Error> {
    let mut sregs = vcpu.get_sregs()?;
    let code = kvm_segment {
        limit: u32::MAX,
        selector: 8,
        type_: 11,
        present: 1,
        s: 1,
        l: 1,
        g: 1,
        ..Default::default()
    };
    sregs.cs = code;
    let data = kvm_segment { selector: 16, type_: 3, l: 0, db: 1, ..code };
    (sregs.ds, sregs.es, sregs.ss, sregs.fs, sregs.gs) = (data, data, data, data, data);
    sregs.cr3 = PML4 as u64;
    sregs.cr4 = 1 << 5 | 1 << 9 | 1 << 10; // PAE, and SSE with its exceptions
    sregs.cr0 = 1 << 31 | 1 << 4 | 1 << 1 | 1; // paging, x87, protected mode
    sregs.efer = 1 << 8 | 1 << 10; // long mode
    vcpu.set_sregs(&sregs)?;
    let mut regs = vcpu.get_regs()?;
    (regs.rip, regs.rsp, regs.rcx, regs.rflags) = (CODE as u64, STACK, INPUT, 2);
    vcpu.set_regs(&regs)
}

/// Guest memory of the trial, unmapped when it is over.
struct TrialMemory(std::ptr::NonNull<std::ffi::c_void>);

impl TrialMemory {
    fn map() -> std::io::Result<Self> {
        let size = std::num::NonZeroUsize::new(MEMORY).ok_or(std::io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of ours.
        let start = unsafe { mmap_anonymous(None, size, access, MapFlags::MAP_PRIVATE) }?;
        let memory = Self(start);
        memory.write(CODE, TRIAL);
        memory.write(PML4, &(PDPT as u64 | 3).to_le_bytes());
        memory.write(PDPT, &(PD as u64 | 3).to_le_bytes());
        memory.write(PD, &0x83_u64.to_le_bytes());
        Ok(memory)
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= MEMORY);
        // SAFETY: the range was just checked to lie inside the mapping, and no guest runs yet.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.0.as_ptr().cast::<u8>().wrapping_add(at),
                bytes.len(),
            );
        }
    }

    fn attach(&self, vm: &VmFd) -> Result<(), kvm_ioctls::Error> {
        let region = kvm_userspace_memory_region {
            memory_size: MEMORY as u64,
            userspace_addr: self.0.as_ptr() as u64,
            ..Default::default()
        };
        // SAFETY: the mapping is exactly that large and outlives the VM, which the caller drops first.
        unsafe { vm.set_user_memory_region(region) }
    }
}

impl Drop for TrialMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this size by `map` and nothing refers to it any more.
        let _ = unsafe { munmap(self.0, MEMORY) };
    }
}
